package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
)

// endsProgram returns the signals that end the program in order. SIGHUP is one of them in a
// terminal, unless nohup ignores it.
func endsProgram(stdin *os.File) []os.Signal {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if isTerminal(stdin) && !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	return ends
}

// oneSignal is how long further signals count as the first one. Some programs, such as GNU timeout,
// send a signal to a process and then to its group, so that the process gets it twice.
const oneSignal = time.Second

// obeyLaterSignals calls stop oneSignal after ctx has ended. From then on, a signal ends the process
// immediately.
func obeyLaterSignals(ctx context.Context, stop func()) {
	context.AfterFunc(ctx, func() { time.AfterFunc(oneSignal, stop) })
}

// hangUps returns each SIGHUP until stop. In a terminal it ends the program instead.
func hangUps() (received chan os.Signal, stop func()) {
	if isTerminal(os.Stdin) || signal.Ignored(syscall.SIGHUP) {
		return nil, func() {}
	}
	received = make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	return received, func() { signal.Stop(received) }
}

func isTerminal(file *os.File) bool { return isatty.IsTerminal(file.Fd()) }

// brokenPipe is what a shell shows of a program that SIGPIPE has ended.
const brokenPipe = 128 + int(syscall.SIGPIPE)

// leftByReader reports whether the reader of the standard output has gone, such as head.
func leftByReader(err error) bool {
	fault, ok := errors.AsType[*fs.PathError](err)
	return ok && fault.Path == os.Stdout.Name() && errors.Is(fault, syscall.EPIPE)
}
