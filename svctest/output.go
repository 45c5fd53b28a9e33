package svctest

import (
	"io"
	"sync"
	"testing"
)

// output is the output of a test, until the test ends. A goroutine may log later, and a test does
// not accept that.
type output struct {
	mu sync.Mutex
	to io.Writer
}

func newOutput(t testing.TB) *output {
	o := &output{to: t.Output()}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.to = io.Discard
	})
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}
