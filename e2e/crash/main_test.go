//go:build linux

package crash

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inCI reports whether this runs where a loop that cannot run is a failure.
var inCI = os.Getenv("CI") == "true"

// crashes is how many crashes a loop makes: a flag, else a variable, else the short form or CI's.
type crashes struct {
	flag      *int
	variable  string
	short, ci int
}

func countFlag(name, variable string, short, ci int) crashes {
	return crashes{flag.Int(name, 0, "how many crashes to make; also "+variable), variable, short, ci}
}

var (
	kills        = countFlag("kills", "SVC_CRASH_KILLS", 40, 150)
	cuts         = countFlag("cuts", "SVC_CRASH_CUTS", 20, 75)
	clusterKills = countFlag("clusterkills", "SVC_CRASH_CLUSTER_KILLS", 5, 15)
	fills        = countFlag("fills", "SVC_CRASH_FILLS", 4, 12)
)

func (c crashes) count() int {
	if n := c.asked(); n > 0 {
		return n
	}
	if inCI {
		return c.ci
	}
	return c.short
}

// asked returns how many crashes were asked for, or 0.
func (c crashes) asked() int {
	if *c.flag > 0 {
		return *c.flag
	}
	n, err := strconv.Atoi(os.Getenv(c.variable))
	if err != nil {
		return 0
	}
	return n
}

// shortForm is how long a loop of the sound store goes on unless CI runs it or somebody asked for a number of crashes: on a slow
// machine it makes fewer, and says how many.
const shortForm = 15 * time.Second

func inShortForm() bool {
	return !inCI && kills.asked()+cuts.asked()+clusterKills.asked()+fills.asked() == 0
}

// skipped counts the crashes that could not be made.
var skipped int

// skip ends a test that cannot make its crashes here, loudly; in CI it fails.
func skip(t testing.TB, crashes int, why error) {
	t.Helper()
	if inCI {
		t.Fatalf("CANNOT RUN: %v", why)
	}
	skipped += crashes
	t.Skipf("SKIPPED %d crashes: %v", crashes, why)
}

func TestMain(m *testing.M) {
	if encoded := os.Getenv(workerVariable); encoded != "" {
		if err := work(encoded); err != nil {
			os.Exit(1) // the ledger has the error
		}
		return
	}
	if os.Geteuid() == 0 && os.Getenv(apartVariable) == "" {
		if code, ran := apart(); ran {
			os.Exit(code)
		}
	}
	flag.Parse()
	code := m.Run()
	if skipped > 0 {
		fmt.Printf("SKIPPED %d crashes that cannot be made here: what they check is unchecked\n", skipped)
	}
	os.Exit(code)
}

// apartVariable is set in the namespace that [apart] makes.
const apartVariable = "SVC_CRASH_APART"

// apart runs the tests again, in a mount namespace of their own: their mounts and loop devices go with it, however they
// end. It reports whether that could be had.
func apart() (code int, ran bool) {
	runtime.LockOSThread() // the tests end with their parent, which is this thread
	again := exec.Command(os.Args[0], os.Args[1:]...)
	again.Env = append(os.Environ(), apartVariable+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := again.Start(); err != nil {
		return 0, false
	}
	_ = again.Wait() // how it ended is in its state
	if !again.ProcessState.Exited() {
		return 1, true
	}
	return again.ProcessState.ExitCode(), true
}

// result is what a loop found.
type result struct {
	crashes, acks, revoked, failed int
	happened, undone               int // of the operations under way at crashes that were settled
	problems                       []string
	took                           time.Duration
}

// add takes over what a ledger has counted.
func (r *result) add(l *ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.acks += l.acks
	r.revoked += l.revoked
	r.happened += l.happened
	r.undone += l.undone
	r.failed += l.fails["unavailable"]
	r.problems = append(r.problems, l.problems...)
}

func (r *result) String() string {
	return fmt.Sprintf("%d crashes, %d operations acknowledged (%d revocations), %d unavailable, under way %d that happened and %d that did not, %d problems, %v",
		r.crashes, r.acks, r.revoked, r.failed, r.happened, r.undone, len(r.problems), r.took.Round(time.Millisecond))
}

// loop runs lives, each a database of its own with some crashes, until there were enough crashes or there is a problem.
func loop(t testing.TB, planted fault, crashes int, life func(l *ledger, crashes int) int) *result {
	t.Helper()
	r, start := &result{}, time.Now()
	for r.crashes < crashes && len(r.problems) == 0 && (planted != sound || !inShortForm() || time.Since(start) < shortForm) {
		l, err := newLedger()
		must(t, err)
		l.ignored = planted.ignored()
		r.crashes += life(l, crashes-r.crashes)
		r.add(l)
		must(t, l.close())
	}
	r.took = time.Since(start)
	return r
}

// holds fails the test when a loop found a problem, or nothing was acknowledged in it.
func (r *result) holds(t testing.TB) {
	t.Helper()
	t.Log(r)
	for i, problem := range r.problems {
		if t.Error(problem); i == 20 {
			break
		}
	}
	if r.acks == 0 || r.revoked == 0 {
		t.Error("nothing was acknowledged: this checked nothing")
	}
}

// finds fails the test unless a loop found a problem of that kind.
func (r *result) finds(t testing.TB, kinds ...string) {
	t.Helper()
	for _, problem := range r.problems {
		if kind, _, _ := strings.Cut(problem, ":"); slices.Contains(kinds, kind) {
			t.Logf("caught at crash %d, after %v: %.200s", r.crashes, r.took.Round(time.Millisecond), problem)
			return
		}
	}
	t.Errorf("the planted fault was not caught: %v %.500q", r, r.problems)
}

// found returns the problems so far.
func (l *ledger) found() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.problems)
}

func (l *ledger) sound() bool { return len(l.found()) == 0 }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var background = context.Background()
