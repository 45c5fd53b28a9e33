//go:build linux

package crash

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

// damageOf is a statement that undoes a part of the acknowledged state, with the kinds of problems, one of
// which it causes.
type damageOf struct {
	kinds     []string
	statement string
}

// damages reads those of testdata/damages.txt.
func damages(t *testing.T) (all []damageOf) {
	t.Helper()
	text, err := os.ReadFile("testdata/damages.txt")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if kinds, statement, _ := strings.Cut(strings.TrimSpace(line), " "); kinds != "#" {
			all = append(all, damageOf{strings.Split(kinds, "+"), statement})
		}
	}
	return all
}

// TestOracle shows that every kind of damage is a problem, including an outbox event that was never
// delivered. Outside of CI it does one damage of four, others in each run.
func TestOracle(t *testing.T) {
	const tries = 10
	for range tries {
		missed := damage(t)
		if missed == "" {
			return
		}
		t.Logf("again: at the kill there was nothing to damage: %s", missed)
	}
	t.Fatalf("nothing to damage in %d tries", tries)
}

// damage does every damage to copies of a database whose server was killed. It returns the one that
// found no row to damage: people are deleted as well as made. "": it has done all of them.
func damage(t *testing.T) (missed string) {
	t.Helper()
	j := job{Driver: "sqlite", Address: filepath.Join(t.TempDir(), "svc.db"), Clients: clients, Run: "0"}
	l, err := newLedger()
	must(t, err)
	p := l.start(t, j)
	must(t, p.awaitReady())
	l.await(t, "too little was acknowledged", func() bool { return l.count(&l.acks) >= 600 })
	p.kill()
	l.check(background, j, false)
	if !l.sound() || l.seen == 0 {
		t.Fatalf("generation %d, problems %q", l.seen, l.found())
	}
	host := pool(j.Address, "off")
	found, err := observe(background, host)
	must(t, err)
	must(t, host.Close())
	l.accept(found) // else what was under way at the kill may be missing
	each := longtest.Times(4, 1)
	all := damages(t)
	for i := rand.N(each); i < len(all); i += each {
		damage, damaged := all[i], j
		damaged.Address = filepath.Join(t.TempDir(), "svc.db")
		must(t, copySparse(damaged.Address, j.Address))
		db := pool(damaged.Address, "off")
		done, err := db.Exec(damage.statement)
		must(t, err)
		must(t, db.Close())
		if n, _ := done.RowsAffected(); n == 0 && !strings.HasPrefix(damage.statement, "PRAGMA") {
			must(t, l.close())
			return damage.statement
		}
		l.problems = nil
		l.check(background, damaged, false)
		r := result{problems: l.found()}
		r.finds(t, damage.kinds...)
		if t.Failed() {
			t.Fatal(damage.statement)
		}
	}
	db := pool(j.Address, "off")
	_, err = db.Exec(`DELETE FROM svc_outbox`)
	must(t, err)
	must(t, db.Close())
	for _, e := range l.objects {
		e.told = false
	}
	l.problems = nil
	l.check(background, j, false)
	r := result{problems: l.found()}
	r.finds(t, "torn")
	must(t, l.close())
	return ""
}

// TestOracleHearsEvents shows that an event counts as an acknowledgement: it must be neither
// missing nor untrue.
func TestOracleHearsEvents(t *testing.T) {
	for _, c := range []struct{ kind, lines string }{
		{"event", "try 1 k-1 api_key.issued good\nack 1 x\n"},
		{"event", "try 1 k-1 api_key.issued good\nevent k-1 api_key.issued\nfail 1 unavailable x\n"},
		{"invented", "event k-1 api_key.issued\n"},
		{"refused", "try 1 k-1 api_key.issued good\nfail 1 internal x\n"},
		{"lost", "try 1 k-1 api_key.issued good\nevent k-1 api_key.issued\n"},
		{"order", "generation 2\ngeneration 1\n"},
	} {
		l, err := newLedger()
		must(t, err)
		l.mayFail = true
		_, err = l.writer.WriteString(c.lines)
		must(t, err)
		l.check(background, job{Driver: "sqlite", Address: filepath.Join(t.TempDir(), "svc.db")}, false)
		r := result{problems: l.found()}
		r.finds(t, c.kind)
		must(t, l.close())
	}
}
