package svctest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/svctest"
)

// TestNothingIsLeft: everything that a server has started ends with the test, including requests that hang.
func TestNothingIsLeft(t *testing.T) {
	checked, done := make(chan error, 1), make(chan []string)
	go pprof.Do(t.Context(), pprof.Labels(label, "yes"), func(context.Context) { // goroutines inherit the label
		done <- outside(func(t testing.TB) { leave(t, checked) }).failures
	})
	if failures := <-done; len(failures) > 0 {
		t.Fatal(failures)
	}
	if err := <-checked; err != nil { // the source has answered after all
		t.Error(err)
	}
	for began := time.Now(); strings.Contains(running(), label); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal(running())
		}
	}
}

const label = "svctest-leak"

// leave is a test that ends while two calls wait for sources.
func leave(t testing.TB, checked chan<- error) {
	server := svctest.New(t)
	acme, other := server.Source("acme", svctest.Template{ID: "notes"}), server.Source("other")
	if got := status(server.Admin, "POST", notes+"/install", installNotes); got != 200 {
		t.Fatalf("install: %d", got)
	}
	asked, _ := acme.Hang()
	go func() { // ends whatever its context
		_, err := server.Service.Templates.CheckUpdate(context.Background(), svc.Host, "notes")
		checked <- err
	}()
	<-asked
	asked, _ = other.Hang()
	go status(server.Admin, "GET", sources+"/other/templates", "")
	<-asked
	if !strings.Contains(running(), label) {
		t.Errorf("nothing is running")
	}
}

func running() string {
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	return all.String()
}

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
