// Command server runs svc as an HTTP server over a SQLite file or a PostgreSQL database. Use it to
// try the interface, or copy its code into a host. Run it with -help.
package main

import (
	"context"
	"errors"
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
	obeyLaterSignals(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("stopped by a signal: %w", err) // whose cause may look like a fault
	}
	os.Exit(exitCode(err, os.Stderr))
}

// run runs the command of the command line until it is done or ctx ends. Results go to stdout, logs
// to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &call{args: doubled(args), stdout: stdout, stderr: stderr}
	do, err := c.read(ctx)
	if err != nil || do == nil {
		return err
	}
	c.again = func() (config, error) {
		next := &call{args: c.args, stdout: io.Discard, stderr: io.Discard}
		_, err := next.read(ctx)
		return next.config, err
	}
	c.level.Set(c.Log.slogLevel())
	c.log = c.Log.logger(stderr, &c.level)
	for _, variable := range c.unknown {
		c.log.Warn("the variable " + variable)
	}
	return do(ctx)
}

// read reads the command line, and the configuration that it names. Nil: there is nothing to do.
func (c *call) read(ctx context.Context) (do job, err error) {
	program := c.program(&do)
	program.SetArgs(c.args)
	err = program.ExecuteContext(ctx)
	return do, err
}

func (l logConfig) logger(to io.Writer, level slog.Leveler) *slog.Logger {
	options := slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, &options))
	}
	return slog.New(slog.NewTextHandler(to, &options))
}

// exitCode prints an error and returns the exit code: 2 for a mistake on the command line, 141
// without a word for a reader of the standard output that has gone, 1 for
// another error, 0 for none.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	} else if leftByReader(err) {
		return brokenPipe
	} else if code, is := errors.AsType[silent](err); is {
		return int(code)
	}
	fmt.Fprintln(stderr, "server:", plainLines(err.Error()))
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, "\nRun server -help for the usage.")
		return 2
	}
	return 1
}
