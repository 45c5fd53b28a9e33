//go:build linux

package crash

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
)

const (
	clients       = 4
	killsPerFile  = 15
	killAtStart   = 5   // one in so many kills comes while the worker opens its database
	killLate      = 8   // one in so many comes later, while SQLite writes its log back
	usualLoad     = 60  // acknowledgements before a kill, at most
	lateLoad      = 500 // acknowledgements before a late kill, at most
	moment        = 5 * time.Millisecond
	openingWithin = 150 * time.Millisecond
)

func TestKilledProcesses(t *testing.T) {
	killLoop(t, sound, kills.count()).holds(t)
}

// killLoop kills workers at random moments and reopens their file.
func killLoop(t testing.TB, planted fault, kills int) *result {
	return loop(t, planted, kills, func(l *ledger, left int) (killed int) {
		j := job{Driver: "sqlite", Address: filepath.Join(t.TempDir(), "svc.db"), Clients: clients, Fault: planted}
		for killed < min(left, killsPerFile) && l.sound() {
			j.Run = fmt.Sprint(killed)
			p := l.start(t, j)
			if killed == 0 { // three early kills may come before any revocation
				must(t, p.awaitReady())
				l.awaitRevocation(t)
			}
			must(t, p.untilRandom())
			p.kill()
			killed++
			l.check(background, j, true)
		}
		return killed
	})
}

// untilRandom waits until a random moment.
func (p *process) untilRandom() error {
	load := usualLoad
	switch {
	case rand.N(killAtStart) == 0:
		time.Sleep(rand.N(openingWithin))
		return nil
	case rand.N(killLate) == 0:
		load = lateLoad
	}
	if err := p.awaitReady(); err != nil {
		return err
	}
	return p.work(rand.N(load))
}

// work waits for so many more acknowledgements, then until a random moment.
func (p *process) work(acks int) error {
	end := time.Now().Add(patience)
	for goal := p.ledger.count(&p.ledger.acks) + acks; p.ledger.sound() && p.ledger.count(&p.ledger.acks) < goal; {
		if time.Sleep(time.Millisecond); time.Now().After(end) {
			return fmt.Errorf("there were no %d acknowledgements in %v", acks, patience)
		}
	}
	time.Sleep(rand.N(moment))
	return nil
}

// A loop must find a fault within so many crashes.
const (
	killsToFind = 200
	cutsToFind  = 100
	fillsToFind = 4

	clusterKillsToFind = 10
)

// Each kind of loop finds the faults that are planted for it.
func TestLoopsFindFaults(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	lost := []string{"lost", "order"} // a lost commit also loses its generation
	for _, c := range []struct {
		crash   string
		loop    func(t testing.TB, planted fault, crashes int) *result
		planted fault
		crashes int
		kinds   []string // of problems, one of which is found; none: the loop finds nothing
	}{
		{"kills", killLoop, ackEarly, killsToFind, lost},
		{"kills", killLoop, tornRows, killsToFind, []string{"torn"}},
		{"kills", killLoop, tornRecord, killsToFind, []string{"torn"}},
		{"kills", killLoop, tornHost, killsToFind, []string{"torn"}},
		{"kills", killLoop, tornUser, killsToFind, []string{"torn"}},
		{"kills", killLoop, syncNormal, 10, nil}, // killing processes is not enough: the kernel keeps what they wrote
		{"cuts", cutLoop, ackEarly, cutsToFind, lost},
		{"cuts", cutLoop, syncNormal, cutsToFind, lost},
		{"cuts", cutLoop, syncOff, cutsToFind, []string{"lost", "order", "torn"}},
		{"cuts", cutLoop, tornFile, 2 * cutsToFind, []string{"torn"}}, // pages written back in another order, not only missing ones
		{"full disks", fillLoop, ackFailed, fillsToFind, lost},
		{"killed clusters", clusterLoop, asyncWAL, clusterKillsToFind, lost},
		{"failovers", failoverLoop, asyncStandby, clusterKillsToFind, lost},
	} {
		t.Run(c.crash+", "+string(c.planted), func(t *testing.T) {
			if r := c.loop(t, c.planted, c.crashes); c.kinds == nil {
				r.holds(t)
			} else {
				r.finds(t, c.kinds...)
			}
		})
	}
}

const (
	fillsPerDisk = 3
	keysEach     = 10 // valid keys before the disk gets full
	failuresEach = 20 // failures before there is space again
)

func TestFullDisks(t *testing.T) {
	fillLoop(t, sound, fills.count()).holds(t)
}

// fillLoop fills the disk under a worker. Then it makes space again and the worker goes on, or it
// kills the worker while the disk is full.
func fillLoop(t testing.TB, planted fault, fills int) *result {
	return loop(t, planted, fills, func(l *ledger, left int) (filled int) {
		dir := mountMemory(t, "48m", left)
		j := job{Driver: "sqlite", Address: filepath.Join(dir, "svc.db"), Clients: clients, Fault: planted, Run: fmt.Sprint(left)}
		l.mayFail = true
		p := l.start(t, j)
		defer p.kill()
		must(t, p.awaitReady())
		for filled < min(left, fillsPerDisk) && l.sound() {
			must(t, p.work(rand.N(usualLoad)))
			l.await(t, "no keys were issued", func() bool { return l.good() >= keysEach })
			ballast := filepath.Join(dir, "ballast")
			must(t, fillUp(ballast))
			filled++
			l.awaitFailures(t, planted)
			if filled == fillsPerDisk {
				p.kill()
				must(t, os.Remove(ballast))
				l.check(background, j, true)
				break
			}
			must(t, p.checkPaused(j))
			must(t, os.Remove(ballast))
			l.awaitRevocation(t)
			must(t, p.checkPaused(j))
		}
		return filled
	})
}

// fillUp writes a file until the disk is full.
func fillUp(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for size := len(block); size >= 512; {
		if _, err = file.Write(block[:size]); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fmt.Errorf("the disk is not full: %w", err), file.Close())
	}
	return file.Close()
}

// awaitFailures waits until operations have failed for lack of space, including revocations. Each
// must fail as unavailable: every other failure is a problem.
func (l *ledger) awaitFailures(t testing.TB, planted fault) {
	t.Helper()
	before, refused := l.failures("unavailable"), l.count(&l.refused)
	l.await(t, "no operation failed on a full disk", func() bool {
		return l.failures("unavailable") >= before+failuresEach && (l.count(&l.refused) > refused || planted == ackFailed)
	})
}

// awaitRevocation waits until the worker has revoked a key.
func (l *ledger) awaitRevocation(t testing.TB) {
	t.Helper()
	before := l.count(&l.revoked)
	l.await(t, "no key was revoked", func() bool { return l.count(&l.revoked) > before })
}

func (l *ledger) await(t testing.TB, otherwise string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if !l.sound() {
			return
		}
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// checkPaused checks the database of a worker that goes on afterwards.
func (p *process) checkPaused(j job) error {
	if err := p.order("pause"); err != nil {
		return err
	}
	p.ledger.check(background, j, true)
	return p.order("resume")
}

const (
	cutsPerDisk = 20
	rebootEach  = 3 // one in so many cuts restarts the machine from the cut disk; otherwise the old one goes on
	spillEach   = 2 // before one in so many cuts the kernel writes some pages back
)

func TestPowerCuts(t *testing.T) {
	cutLoop(t, sound, cuts.count()).holds(t)
}

// cutLoop cuts the power of a worker's disk at random moments, and opens the file on the rest.
func cutLoop(t testing.TB, planted fault, cuts int) *result {
	shelf := newShelf(t, cuts)
	return loop(t, planted, cuts, func(l *ledger, left int) (cut int) {
		m := &machine{shelf: shelf, disk: shelf.empty(t), ledger: l, job: job{Driver: "sqlite", Clients: clients, Fault: planted}}
		defer m.halt(t)
		for cut < min(left, cutsPerDisk) && l.sound() {
			m.runOn(t)
			if cut == 0 { // two early cuts may come before any revocation
				must(t, m.process.awaitReady())
				l.awaitRevocation(t)
			}
			m.cut(t)
			cut++
		}
		return cut
	})
}

// machine is a worker and its disk.
type machine struct {
	shelf   *shelf
	disk    *disk
	ledger  *ledger
	job     job
	process *process // nil: it is off
	started int
}

// runOn lets the worker work for a random time.
func (m *machine) runOn(t testing.TB) {
	t.Helper()
	if m.process != nil {
		must(t, m.process.resume())
		must(t, m.process.work(rand.N(usualLoad)))
		return
	}
	m.started++
	m.job.Run, m.job.Address = fmt.Sprint(m.started), m.disk.path("svc.db")
	m.process = m.ledger.start(t, m.job)
	must(t, m.process.untilRandom())
}

// cut checks the disk after a power cut now. Then the machine starts from that disk, or the old
// machine goes on and the ledger forgets the check.
func (m *machine) cut(t testing.TB) {
	t.Helper()
	must(t, m.process.stop())
	if rand.N(spillEach) == 0 {
		m.disk.spill("svc.db", "svc.db-wal")
	}
	left := m.disk.cut(t, m.shelf)
	j := m.job
	j.Address = left.path("svc.db")
	reboot := rand.N(rebootEach) == 0
	m.ledger.check(background, j, reboot)
	if !reboot {
		left.discard(t)
		return
	}
	m.halt(t)
	m.disk = left
}

// halt ends the worker and discards its disk.
func (m *machine) halt(t testing.TB) {
	t.Helper()
	if m.process != nil {
		m.process.kill()
		m.process = nil
	}
	m.disk.discard(t)
}

// TestDiskForgets shows that a cut leaves exactly what was synced. Otherwise cutLoop could not see a missing sync.
func TestDiskForgets(t *testing.T) {
	shelf := newShelf(t, 2)
	d := shelf.empty(t)
	text := bytes.Repeat([]byte("what was written "), 1000)
	write := func(name string, sync bool) {
		t.Helper()
		file := got(os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE, 0o600))
		must(t, failure(file.Write(text)))
		if sync {
			must(t, file.Sync())
		}
		must(t, file.Close())
	}
	write("synced", true)
	before := d.writes()
	write("forgotten", false)
	after := d.writes()
	left := d.cut(t, shelf)
	expect.Holds(t, before.requests != 0 && after == before, "writes after a sync, and after a write without one: ", before, after)
	if found, err := os.ReadFile(left.path("synced")); err != nil || !bytes.Equal(found, text) {
		t.Errorf("of what was synced %d bytes of %d are left, %v", len(found), len(text), err)
	}
	if found, err := os.ReadFile(left.path("forgotten")); err == nil && len(found) > 0 {
		t.Errorf("of what was not synced %d bytes are left", len(found))
	}
	write("forgotten", true)
	if found, err := os.ReadFile(d.cut(t, shelf).path("forgotten")); err != nil || !bytes.Equal(found, text) {
		t.Errorf("of what was synced later %d bytes of %d are left, %v", len(found), len(text), err)
	}
}

// TestDiskSpills shows that a cut may also leave parts of what was not synced.
func TestDiskSpills(t *testing.T) {
	shelf := newShelf(t, 1)
	d := shelf.empty(t)
	text := bytes.Repeat([]byte{'x'}, 200*pageSize)
	for try := range 500 {
		name := fmt.Sprint(try)
		must(t, os.WriteFile(d.path(name), text, 0o600))
		d.spill(name)
		left := d.cut(t, shelf)
		found, err := os.ReadFile(left.path(name))
		if written := bytes.Count(found, []byte{'x'}); err == nil && written > 0 && written < len(text) {
			t.Logf("%d of %d bytes are left at try %d", written, len(text), try)
			return
		}
		left.discard(t)
	}
	t.Error("nothing is ever left by parts")
}
