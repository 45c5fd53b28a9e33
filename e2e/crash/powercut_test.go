//go:build linux

package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

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
		must(t, m.disk.spill("svc.db", "svc.db-wal"))
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

// TestDiskForgets shows that a cut leaves exactly what was synced. Otherwise cutLoop could not see
// a missing sync.
func TestDiskForgets(t *testing.T) {
	shelf := newShelf(t, 2)
	d := shelf.empty(t)
	text := bytes.Repeat([]byte("what was written "), 1000)
	write := func(name string, sync bool) {
		t.Helper()
		file, err := os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE, 0o600)
		must(t, err)
		_, err = file.Write(text)
		must(t, err)
		if sync {
			must(t, file.Sync())
		}
		must(t, file.Close())
	}
	write("synced", true)
	before, err := d.writes()
	must(t, err)
	write("forgotten", false)
	after, err := d.writes()
	must(t, err)
	left := d.cut(t, shelf)
	if before.requests == 0 || after != before {
		t.Errorf("the device counts %v writes after a sync, and %v after a write without one", before, after)
	}
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
	for try := range 20 {
		name := fmt.Sprint(try)
		must(t, os.WriteFile(d.path(name), text, 0o600))
		must(t, d.spill(name))
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
