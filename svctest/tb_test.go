package svctest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
)

// outside runs a test outside of go test, and returns it after its end.
func outside(test func(t testing.TB)) *tb {
	ctx, cancel := context.WithCancel(context.Background())
	t, done := &tb{ctx: ctx}, make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			for _, end := range slices.Backward(t.ends) {
				end()
			}
		}()
		test(t)
	}()
	<-done
	return t
}

// tb is the part of testing.TB that svctest needs.
type tb struct {
	testing.TB
	ctx      context.Context
	ends     []func()
	failures []string
	output   bytes.Buffer
}

func (t *tb) Helper()                  {}
func (t *tb) Context() context.Context { return t.ctx }
func (t *tb) Cleanup(end func())       { t.ends = append(t.ends, end) }
func (t *tb) Output() io.Writer        { return &t.output }
func (t *tb) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}
func (t *tb) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}
