//go:build unix

package pgtest

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Process is a server of one test, with its files in a temporary directory. Its methods are not for
// concurrent use.
type Process struct {
	t       testing.TB
	name    string // its name in failures
	dir     string
	as      *syscall.Credential // nil: the user of the test
	start   []string            // its program and the arguments
	stop    os.Signal           // shuts it down cleanly, without waiting for its clients
	ping    func() error        // fails while the server does not answer
	process *os.Process         // nil: the server does not run
	ended   chan struct{}       // closed when process and its children have ended
	frozen  []int               // the processes that Freeze has stopped
}

// patience is how long a server may take to start or to end.
const patience = time.Minute

// newProcess makes the directory of a server.
func newProcess(t testing.TB, name string, stop os.Signal) Process {
	t.Helper()
	p := Process{t: t, name: name, stop: stop}
	if os.Getuid() == 0 {
		p.as = credentials(t)
	}
	p.dir = p.directory()
	return p
}

// credentials returns those of the user postgres: the servers refuse to run as root.
func credentials(t testing.TB) *syscall.Credential {
	t.Helper()
	account, err := user.Lookup("postgres")
	if err != nil {
		missing(t, "PostgreSQL does not run as root: %v", err)
	}
	uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		t.Fatalf("user postgres: %v, %v", uidErr, gidErr)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// directory makes a directory for the server's user. It cannot be in t.TempDir, which other users
// cannot enter. Directories that killed runs have left are removed a day later.
func (p *Process) directory() string {
	p.t.Helper()
	root, name := cmp.Or(memory(), os.TempDir()), "svc-pgtest-"
	old, _ := filepath.Glob(filepath.Join(root, name+"*")) // the pattern is right
	for _, dir := range old {
		if of, err := os.Stat(dir); err == nil && time.Since(of.ModTime()) > abandoned {
			_ = os.RemoveAll(dir) // another process may do so too
		}
	}
	dir, err := os.MkdirTemp(root, name)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.as != nil {
		if err := os.Chown(dir, int(p.as.Uid), int(p.as.Gid)); err != nil {
			p.t.Fatal(err)
		}
	}
	return dir
}

// remove stops the server and deletes its files. The log of one that has ended by itself says why.
func (p *Process) remove() {
	select {
	case <-p.ended:
		if p.process != nil {
			p.t.Errorf("%s has ended by itself:\n%s", p.name, p.Log())
		}
	default:
	}
	p.Stop()
	if err := os.RemoveAll(p.dir); err != nil {
		p.t.Error(err)
	}
}

func (p *Process) command(program string, args ...string) *exec.Cmd {
	command := exec.Command(program, args...)
	command.Dir = p.dir
	command.SysProcAttr = attributes(p.as)
	return command
}

// Restart starts the server and returns when it answers. A running server is shut down cleanly
// first.
func (p *Process) Restart() {
	p.t.Helper()
	p.Stop()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if p.process == nil {
			p.launch()
		}
		err := p.ping()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not answer: %v\n%s", p.name, err, p.Log())
		}
		select {
		case <-p.ended:
			p.process = nil
		default:
		}
	}
}

func (p *Process) launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	command := p.command(p.start[0], p.start[1:]...)
	// A pipe, not the file: Wait returns when the last process of the server has closed it.
	out := struct{ io.Writer }{log}
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		log.Close()
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.process, p.ended = command.Process, ended
	go func() {
		_ = command.Wait() // the test itself ends the server: its exit status does not matter
		log.Close()
		close(ended)
	}()
}

func (p *Process) logFile() string { return filepath.Join(p.dir, "log") }

// Log returns the server's log.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends the server like kill -9 of its first process, and waits for its other processes. These
// notice and end without a message to their clients. Written data is in the system's cache: this is
// a crash of the server, not of the machine.
func (p *Process) Kill() {
	p.t.Helper()
	others, ended := children(p.Pid()), p.ended
	force := time.AfterFunc(time.Second, func() {
		select {
		case <-ended:
		default:
			// A process that waits for a lock of an ended process does not notice.
			for _, pid := range others {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	defer force.Stop()
	p.end(os.Kill)
}

// Stop shuts the server down cleanly, without waiting for its clients.
func (p *Process) Stop() { p.end(p.stop) }

// Freeze stops the server's processes with SIGSTOP until [Process.Thaw]. Connections stay open, but
// the server answers nothing on them. Only Linux lists the processes; elsewhere the test is
// skipped.
func (p *Process) Freeze() {
	p.t.Helper()
	p.frozen = []int{p.Pid()}
	_ = syscall.Kill(p.Pid(), syscall.SIGSTOP) // first, so that it starts no new processes
	for quiet := 0; quiet < 5; quiet++ {       // the list may lack some while another ends
		for _, pid := range children(p.Pid()) {
			if !slices.Contains(p.frozen, pid) {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				p.frozen, quiet = append(p.frozen, pid), 0
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	if len(p.frozen) == 1 {
		p.Thaw()
		missing(p.t, "cannot list the processes of %s", p.name)
	}
}

// Thaw continues the processes that [Process.Freeze] has stopped.
func (p *Process) Thaw() {
	for _, pid := range p.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	p.frozen = nil
}

// Pid returns the server's first process, 0 when it does not run.
func (p *Process) Pid() int {
	if p.process == nil {
		return 0
	}
	return p.process.Pid
}

// end signals the server's first process and waits until all processes have ended.
func (p *Process) end(signal os.Signal) {
	p.t.Helper()
	if p.process == nil {
		return
	}
	p.Thaw()                     // a stopped process does not end
	_ = p.process.Signal(signal) // it may have ended by itself
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.process.Kill()
		p.t.Errorf("%s does not end:\n%s", p.name, p.Log())
	}
	p.process = nil
}

// output runs a program as the server's user and returns what it prints.
func (p *Process) output(program string, args ...string) []byte {
	p.t.Helper()
	out, err := p.command(program, args...).Output()
	if err != nil {
		message := ""
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			message = string(exit.Stderr)
		}
		p.t.Fatalf("%s: %v: %s", filepath.Base(program), err, message)
	}
	return out
}
