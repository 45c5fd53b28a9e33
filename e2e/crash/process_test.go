//go:build linux

package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a worker as the test sees it.
type process struct {
	ledger *ledger
	cmd    *exec.Cmd
	orders io.WriteCloser
	ready  <-chan struct{}
	exited chan struct{}
	killed bool
}

// start starts a worker, which ends with the test at the latest.
func (l *ledger) start(t testing.TB, j job) *process {
	t.Helper()
	j.People = l.people()
	encoded, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{ledger: l, ready: l.hear("ready"), exited: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), workerVariable+"="+string(encoded))
	p.cmd.ExtraFiles = []*os.File{l.writer}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a stopped worker could not notice the end of the test
	if p.orders, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // a kill is an error
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the worker at once and waits for its end. A worker that has ended before is a problem.
func (p *process) kill() {
	select {
	case <-p.exited:
		if !p.killed {
			p.ledger.problem("harness: the worker has ended by itself")
		}
	default:
	}
	p.killed = true
	_ = p.cmd.Process.Kill() // may have ended
	<-p.exited
}

const patience = time.Minute

// awaitReady waits until the worker has opened its database.
func (p *process) awaitReady() error { return p.await(p.ready, "ready") }

func (p *process) await(heard <-chan struct{}, what string) error {
	select {
	case <-heard:
		return nil
	case <-p.exited:
		err := p.ledger.sync()
		return fmt.Errorf("the worker ended before it was %s: %q, %w", what, p.ledger.found(), err)
	case <-time.After(patience):
		return fmt.Errorf("the worker was not %s in %v", what, patience)
	}
}

// order makes the worker pause or resume, and waits until it has.
func (p *process) order(word string) error {
	heard := p.ledger.hear(word + "d")
	if _, err := io.WriteString(p.orders, word+"\n"); err != nil {
		return err
	}
	return p.await(heard, word+"d")
}

// stop stops the worker and waits until none of its threads runs or is inside the kernel.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		if p.stopped() {
			return nil
		}
	}
	return errors.New("the worker does not stop")
}

func (p *process) stopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
