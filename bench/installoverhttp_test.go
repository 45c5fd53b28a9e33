package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// BenchmarkInstallOverHTTP compares an installation from an unchanged source with one conditional
// request and the insert of the same rows.
func BenchmarkInstallOverHTTP(b *testing.B) {
	for _, e := range allEngines {
		b.Run(e.name, func(b *testing.B) {
			c := installOverHTTP(b, e)
			if err := c.same(); err != nil {
				b.Fatal(err)
			}
			compare(b, c.sides...)
		})
	}
}

// TestInstallOverHTTP checks that both sides write the same.
func TestInstallOverHTTP(t *testing.T) {
	for _, e := range allEngines {
		t.Run(e.name, func(t *testing.T) {
			if err := installOverHTTP(t, e).same(); err != nil {
				t.Error(err)
			}
		})
	}
}

func installOverHTTP(tb testing.TB, e engine) comparison {
	tb.Helper()
	ctx := tb.Context()
	s := ownSite(tb, e, "install")
	content := installed()
	file, err := json.Marshal(map[string][]entry{"templates": {{
		ID: "new", Name: content.Name, Category: content.Category, Integrations: content.Integrations, Tags: content.Tags,
		Manifest: content.Manifest,
	}}})
	if err != nil {
		tb.Fatal(err)
	}
	l := newLoopback(tb, file)
	source, floor := s.from(tb, l), l.plain(tb)
	next := func() string {
		s.next++
		return fmt.Sprint("installed-", s.next)
	}
	var fromBare, fromService string
	sides := []side{
		{name: "floor", call: func() error {
			fromBare = next()
			return errors.Join(floor.confirm(), s.bare.install(ctx, fromBare, content))
		}},
		{name: "service", call: func() error {
			fromService = next()
			_, err := s.service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "new", SourceName: source.Name, AliasID: &fromService})
			return err
		}},
	}
	if err := sides[1].call(); err != nil { // the first call fetches the file
		tb.Fatal(err)
	}
	return comparison{sides: sides, same: func() error { return s.sameInstalled(ctx, l, sides, &fromBare, &fromService) }}
}

// sameInstalled checks that both sides write the same and make one request each.
func (s *site) sameInstalled(ctx context.Context, l *loopback, sides []side, fromBare, fromService *string) error {
	if err := errors.Join(l.confirmed(sides[0].call), l.confirmed(sides[1].call)); err != nil {
		return err
	}
	bare, err := s.service.Templates.Read(ctx, svc.Host, *fromBare)
	full, failed := s.service.Templates.Read(ctx, svc.Host, *fromService)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	for _, t := range []*svc.Template{&bare, &full} {
		t.ID, t.InstalledAt, t.UpdatedAt, t.Origin = "", time.Time{}, time.Time{}, &svc.Origin{Base: t.Origin.Base}
	}
	return equal(full, bare)
}
