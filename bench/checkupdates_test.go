package bench_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
)

// BenchmarkCheckUpdates checks 10,000 templates from one source for updates. The catalogue has so
// many bytes.
func BenchmarkCheckUpdates(b *testing.B) {
	for _, mb := range []int{5, 20} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			catalogue := newCatalogue(offered, mb*1_000_000/offered)
			l := newLoopback(b, catalogue.body)
			s := stocked(b, l)
			b.Run("unchanged", func(b *testing.B) { s.checkUnchanged(b, l) })
			b.Run("cold", func(b *testing.B) { s.checkCold(b, l) })
			b.Run("changed", func(b *testing.B) { s.checkChanged(b, l, catalogue) })
		})
	}
}

// TestCheckUpdates checks the measured calls, with fewer templates.
func TestCheckUpdates(t *testing.T) {
	const templates = 300
	c := newCatalogue(templates, 512)
	l := newLoopback(t, c.body)
	s := stocked(t, l)
	compared := newCompared(t, l)
	for _, updates := range []int{0, templates / edited, templates / edited} {
		err := errors.Join(
			s.sameUpdates(t.Context(), compared),
			l.confirmed(func() error { return check(t.Context(), s.service, templates, updates) }),
			l.confirmed(func() error { return s.checkAnew(t.Context(), l, templates, updates) }))
		if err != nil {
			t.Error(err)
		}
		c.edit(l)
	}
}

// checkUnchanged measures a call when neither the catalogue nor the installed templates have
// changed since the last.
func (s *site) checkUnchanged(b *testing.B, l *loopback) {
	again := func() error { return check(b.Context(), s.service, offered, 0) }
	if err := again(); err != nil {
		b.Fatal(err)
	}
	comparedToConfirming(b, l, again)
}

// checkCold measures the first call of a process.
func (s *site) checkCold(b *testing.B, l *loopback) {
	comparedToConfirming(b, l, func() error { return s.checkAnew(b.Context(), l, offered, 0) })
}

// comparedToConfirming measures a call that makes one request, against one such request of a plain
// client.
func comparedToConfirming(b *testing.B, l *loopback, call func() error) {
	floor := l.plain(b)
	if err := errors.Join(l.confirmed(floor.confirm), l.confirmed(call)); err != nil {
		b.Fatal(err)
	}
	compareApart(b, side{name: "floor", call: floor.confirm}, side{name: "service", call: call})
	b.ReportMetric(1, "requests")
}

// checkAnew opens the database and checks for updates.
func (s *site) checkAnew(ctx context.Context, l *loopback, checked, updates int) (err error) {
	store, err := sqlite.Open(ctx, s.place, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	market, err := l.market()
	if err != nil {
		return err
	}
	defer market.CloseIdleConnections()
	c := config(store)
	c.Marketplace = market
	service, err := svc.New(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	return check(ctx, service, checked, updates)
}

// checkChanged measures a call when one template in a hundred has changed since the last.
func (s *site) checkChanged(b *testing.B, l *loopback, c *catalogue) {
	floor := newCompared(b, l)
	c.edit(l)
	if err := s.sameUpdates(b.Context(), floor); err != nil {
		b.Fatal(err)
	}
	compareApart(b,
		side{name: "floor", call: func() error {
			c.edit(l)
			return floor.check(offered / edited)
		}},
		side{name: "service", call: func() error {
			c.edit(l)
			return check(b.Context(), s.service, offered, offered/edited)
		}})
}

// check asks a Service for updates and checks the counts.
func check(ctx context.Context, service *svc.Service, checked, updates int) error {
	report, err := service.Templates.CheckUpdates(ctx, svc.Host, nil)
	if err == nil && (report.Checked != checked || len(report.Templates) != updates) {
		err = fmt.Errorf("%d were checked, %d have updates: %v", report.Checked, len(report.Templates), report.Sources)
	}
	return err
}

// compared finds the changes as a client that trusts the source can: it decodes the file and hashes
// the bytes of each manifest.
type compared struct {
	*plain
	installed map[string][sha256.Size]byte
	latest    []entry
}

// newCompared takes the source's present templates as the installed ones.
func newCompared(tb testing.TB, l *loopback) *compared {
	c := &compared{plain: l.plain(tb), installed: map[string][sha256.Size]byte{}}
	var err error
	if c.latest, err = entries(c.body); err != nil {
		tb.Fatal(err)
	}
	for _, e := range c.latest {
		c.installed[e.ID] = sha256.Sum256(e.Manifest)
	}
	return c
}

// updates returns the entries that differ from the installed templates.
func (c *compared) updates() (changed []entry, err error) {
	news, err := c.ask()
	if err != nil {
		return nil, err
	}
	if news {
		if c.latest, err = entries(c.body); err != nil {
			return nil, err
		}
	}
	for _, e := range c.latest {
		if sum := sha256.Sum256(e.Manifest); c.installed[e.ID] != sum {
			changed = append(changed, e)
		}
	}
	return changed, nil
}

func (c *compared) check(updates int) error {
	changed, err := c.updates()
	return errors.Join(err, equal(len(changed), updates))
}

// sameUpdates checks that the Service and compared report the same updates.
func (s *site) sameUpdates(ctx context.Context, floor *compared) error {
	changed, err := floor.updates()
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, e := range changed {
		if want[e.ID], err = peerDigest(objectOf(e.content())); err != nil {
			return err
		}
	}
	report, err := s.service.Templates.CheckUpdates(ctx, svc.Host, nil)
	if err != nil {
		return err
	}
	have := map[string]string{}
	for _, t := range report.Templates {
		if !t.HasUpdate() {
			return fmt.Errorf("%s: %s", t.ID, t.Problem)
		}
		have[t.ID] = *t.LatestRevision
	}
	return errors.Join(equal(have, want), equal(report.Checked, bytes.Count(floor.body, []byte(`"manifest":`))))
}
