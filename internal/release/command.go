package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// cmd is a command that is not started yet.
type cmd struct {
	folder string
	env    []string // on top of that of this process
	args   []string
}

func command(folder string, env []string, args ...string) cmd { return cmd{folder, env, args} }

// output runs the command and returns its standard output. Its standard error is part of the error. The end of
// the context kills the command with all that it has started, and nothing stays of what go had begun.
func (c cmd) output(ctx context.Context) (printed []byte, err error) {
	begun, err := os.MkdirTemp("", "release-begun-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(begun)) }()
	run := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	run.Dir, run.Env = c.folder, append(append(os.Environ(), "GOTMPDIR="+begun), c.env...)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	var out, said bytes.Buffer
	run.Stdout, run.Stderr = &out, &said
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s",
			strings.Join(c.args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}

func (c cmd) line(ctx context.Context) (string, error) {
	out, err := c.output(ctx)
	return strings.TrimSpace(string(out)), err
}
