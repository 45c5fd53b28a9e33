package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

var (
	revocations = flag.Int("revocations", 1000, "how many keys BenchmarkRevocation revokes")
	rest        = flag.Duration("rest", time.Millisecond, "how long each of its readers rests between uses of all keys that are being revoked")
)

// BenchmarkRevocation revokes keys one after the other while 16 readers use them: in the readers'
// process, and in another process over the same database.
func BenchmarkRevocation(b *testing.B) {
	for _, e := range allEngines {
		for _, place := range places {
			b.Run(e.name+"/"+place.name, func(b *testing.B) {
				var w *watch
				for b.Loop() {
					w = newWatch(b, e)
					w.run(b, place.revoke)
				}
				w.report(b)
				for _, bound := range place.bounds {
					b.ReportMetric(float64(w.late(bound)), fmt.Sprint("keys-after-", bound))
				}
			})
		}
	}
}

// places are where keys are revoked, and the delay after which a new call must be refused. In the
// same process that is none. In another process it is the time for 99 in 100 keys when the database
// notifies the Service, otherwise the second of its polling; and the time for all keys.
var places = []struct {
	name   string
	revoke func(w *watch, ctx context.Context) error
	bounds []time.Duration
}{
	{"same-process", (*watch).revokeHere, []time.Duration{0}},
	{"other-process", (*watch).revokeThere, []time.Duration{50 * time.Millisecond, 1100 * time.Millisecond, 5 * time.Second}},
}

// newWatch adds keys to a site, uses them all, and watches them.
func newWatch(b *testing.B, e engine) *watch {
	b.Helper()
	s := ownSite(b, e, "revocations")
	keys, err := makeKeys(b.Context(), *revocations, ofPrincipal)
	if err == nil {
		err = s.insert(b.Context(), keys)
	}
	if err != nil {
		b.Fatal(err)
	}
	return &watch{site: s, keys: keys, watched: make([]watched, len(keys))}
}

// run revokes all keys while readers use them. It ends when each key has been refused and then used
// again for a while.
func (w *watch) run(b *testing.B, revoke func(w *watch, ctx context.Context) error) {
	b.Helper()
	for _, key := range w.keys {
		if _, err := w.service.Authenticate(b.Context(), string(key.Key)); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	read := make(chan error)
	go func() { read <- together(readers, func(i int) error { return w.read(ctx, i) }) }()
	err := revoke(w, ctx)
	if err != nil {
		stop()
	}
	w.ended.Store(now())
	if err := errors.Join(err, <-read); err != nil {
		b.Fatal(err)
	}
}

// report reports when keys were first refused and last accepted.
func (w *watch) report(b *testing.B) {
	b.Helper()
	refused, accepted := w.latencies()
	for name, of := range map[string]int{"p50": 50, "p99": 99, "max": 100} {
		at := (len(refused) - 1) * of / 100
		b.ReportMetric(refused[at].Seconds()*1000, "ms-refused-"+name)
		b.ReportMetric(accepted[at].Seconds()*1000, "ms-accepted-"+name)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(w.again.Load()), "accepts-again")
	b.ReportMetric(float64(w.calls.Load())/float64(len(w.keys)), "uses/key")
}

func (w *watch) revokeHere(ctx context.Context) error {
	for i, key := range w.keys {
		if err := w.service.Keys.Revoke(ctx, svc.Host, key.Holder, key.ID); err != nil {
			return err
		}
		w.revoked(i, now())
	}
	return nil
}

func (w *watch) revokeThere(context.Context) error {
	ids := filepath.Join(scratch, "revocations")
	var list strings.Builder
	for _, key := range w.keys {
		list.WriteString(key.ID + "\n")
	}
	if err := os.WriteFile(ids, []byte(list.String()), 0o600); err != nil {
		return err
	}
	c, err := startChild("revoke", w.engine.name, w.place, ids)
	if err != nil {
		return err
	}
	for i := range w.keys {
		var at int64
		if err := c.hear(&at); err != nil {
			return errors.Join(err, c.end())
		}
		w.revoked(i, at)
	}
	return c.end()
}

// revokeInChild revokes keys of the principal, and prints for each when the call had returned.
func revokeInChild(args []string) error {
	ctx := context.Background()
	list, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	store, err := engineOf(args[0]).open(args[1])
	if err != nil {
		return err
	}
	service, err := svc.New(config(store))
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(string(list)) {
		if err := service.Keys.Revoke(ctx, svc.Host, principal, id); err != nil {
			return err
		}
		if _, err := fmt.Println(now()); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, service.Close(), store.Close())
}
