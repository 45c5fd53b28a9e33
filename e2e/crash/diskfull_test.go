//go:build linux

package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

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
