//go:build linux

package crash

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
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
