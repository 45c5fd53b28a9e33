//go:build linux

package crash

import (
	"cmp"
	"context"
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

	"github.com/extsvc/svc/internal/longtest"
)

// inCI makes a loop that cannot run a failure.
var inCI = os.Getenv("CI") == "true"

// crashes is the number of crashes of a loop: of a variable, or the default of the short form (0: CI alone) or CI.
type crashes struct {
	variable  string
	short, ci int
}

var (
	kills        = crashes{"SVC_CRASH_KILLS", 2, 150}
	cuts         = crashes{"SVC_CRASH_CUTS", 1, 75}
	clusterKills = crashes{"SVC_CRASH_CLUSTER_KILLS", 1, 15}
	failovers    = crashes{"SVC_CRASH_FAILOVERS", 0, 10}
	fills        = crashes{"SVC_CRASH_FILLS", 1, 12}
)

func (c crashes) count() int { return cmp.Or(c.asked(), longtest.Times(c.short, c.ci)) }

// asked returns the requested number of crashes, or 0.
func (c crashes) asked() int {
	n, _ := strconv.Atoi(os.Getenv(c.variable)) // it may be empty
	return n
}

// shortForm limits the time of a loop over the sound store, except in CI or when a number of
// crashes was requested. On a slow machine the loop makes fewer crashes and reports how many.
const shortForm = 15 * time.Second

func inShortForm() bool {
	return !inCI && kills.asked()+cuts.asked()+clusterKills.asked()+failovers.asked()+fills.asked() == 0
}

// skipped counts the crashes that could not be made.
var skipped int

// skip skips a test that cannot make its crashes here, with a clear message. In CI it fails the test.
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
	code := m.Run()
	if skipped > 0 {
		fmt.Printf("SKIPPED %d crashes that cannot be made here: what they check is unchecked\n", skipped)
	}
	os.Exit(code)
}

// apartVariable is set in the namespace that [apart] makes.
const apartVariable = "SVC_CRASH_APART"

// apart runs the tests again in their own mount namespace, so their mounts and loop devices go with
// it, whatever happens. It reports whether that was possible.
func apart() (code int, ran bool) {
	runtime.LockOSThread() // the tests end with their parent, which is this thread
	again := exec.Command(os.Args[0], os.Args[1:]...)
	again.Env = append(os.Environ(), apartVariable+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := again.Start(); err != nil {
		return 0, false
	}
	_ = again.Wait() // its state has the result
	if !again.ProcessState.Exited() {
		return 1, true
	}
	return again.ProcessState.ExitCode(), true
}

type result struct {
	crashes, acks, revoked, failed int
	happened, undone               int // settled operations that were under way at a crash
	problems                       []string
	took                           time.Duration
}

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

// loop runs lives until it has enough crashes or finds a problem. Each life is a database of its
// own with some crashes.
func loop(t testing.TB, planted fault, crashes int, life func(l *ledger, crashes int) int) *result {
	t.Helper()
	r, start := &result{}, time.Now()
	for r.crashes < crashes && len(r.problems) == 0 && (planted != sound || !inShortForm() || time.Since(start) < shortForm) {
		l := newLedger()
		l.ignored = planted.ignored()
		r.crashes += life(l, crashes-r.crashes)
		r.add(l)
		must(t, l.close())
	}
	r.took = time.Since(start)
	return r
}

// holds fails the test when a loop found a problem or acknowledged nothing.
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

// finds fails the test unless a loop found a problem of these kinds.
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

// got is the value of a call that does not fail.
func got[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func failure[T any](_ T, err error) error { return err }

var background = context.Background()
