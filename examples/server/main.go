// Command server runs svc as an HTTP server over a SQLite file or a PostgreSQL database. Use it to
// try the interface, or copy its code into a host. Run it with -help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	ctx, stop := signal.NotifyContext(context.Background(), endsProgram(os.Stdin)...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// run runs the command of the command line until it is done or ctx ends. Results go to stdout, logs
// to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	of, args := find(args)
	c := &call{stdout: stdout, stderr: stderr}
	do, err := c.parse(of, args)
	if errors.Is(err, flag.ErrHelp) {
		return help(stdout, of)
	} else if err != nil {
		return err
	}
	c.log = c.Log.logger(stderr)
	return do(ctx)
}

func (l logConfig) logger(to io.Writer) *slog.Logger {
	var options slog.HandlerOptions
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // it is checked
	options.Level = level
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, &options))
	}
	return slog.New(slog.NewTextHandler(to, &options))
}

// exitCode prints an error and returns the exit code: 2 for a mistake on the command line, 141 in
// silence for a reader of the standard output that has gone, 1 for another error, 0 for none.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	} else if leftByReader(err) {
		return brokenPipe
	}
	fmt.Fprintln(stderr, "server:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, "\nRun server -help for the usage.")
		return 2
	}
	return 1
}
