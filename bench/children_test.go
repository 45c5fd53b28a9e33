package bench_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// childVariable holds, in a child of this program, the name of its task and the arguments, one a
// line.
const childVariable = "SVC_BENCH_CHILD"

// children are the tasks that a child of this program can run.
var children = map[string]func(args []string) error{
	"be slow": beSlowInChild,
	"follow":  followInChild,
	"look up": lookUpInChild,
	"repeat":  repeatInChild,
	"revoke":  revokeInChild,
	"serve":   serveInChild,
}

// runAsChild runs the task of a child, if this process is one.
func runAsChild() bool {
	name, rest, _ := strings.Cut(os.Getenv(childVariable), "\n")
	do, is := children[name]
	if !is {
		return false
	}
	if err := do(strings.Split(rest, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	return true
}

// child is a process of this program. It reads and prints lines. It ends when its input ends.
type child struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

func startChild(does string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{command: exec.Command(self)}
	c.command.Env = append(os.Environ(), childVariable+"="+does+"\n"+strings.Join(args, "\n"))
	c.command.Stderr = os.Stderr
	in, err := c.command.StdinPipe()
	out, failed := c.command.StdoutPipe()
	if err := errors.Join(err, failed, c.command.Start()); err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewScanner(out)
	return c, nil
}

// tell makes the child go on.
func (c *child) tell() error {
	_, err := io.WriteString(c.in, "\n")
	return err
}

// hear scans the next line that the child prints.
func (c *child) hear(into ...any) error {
	if !c.out.Scan() {
		return errors.Join(errors.New("the child ended early"), c.out.Err())
	}
	_, err := fmt.Sscan(c.out.Text(), into...)
	return err
}

// end waits for the child to end.
func (c *child) end() error {
	return errors.Join(c.in.Close(), c.command.Wait())
}
