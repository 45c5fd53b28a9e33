//go:build unix

package secretleaks

import (
	"errors"
	"log"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/token"
)

// The search finds a planted secret in its place and nowhere else.
func TestPlantsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	databases(t, func(t *testing.T, db database) {
		s := newSite(t, db, older)
		for name, plant := range map[string]struct {
			places []string
			put    func(secret string)
		}{
			"a line of the log":  {[]string{"log, JSON", "log, text"}, func(secret string) { s.config.Logger.Debug("it", "key", secret) }},
			"a line of Go's log": {[]string{"the default log"}, func(secret string) { log.Print(secret) }},
			"an event":           {[]string{"events"}, func(secret string) { s.config.Events.OnEvent(t.Context(), svc.Event{Target: svc.Target{ID: secret}}) }},
			"an error":           {[]string{"errors"}, func(secret string) { s.evidence.fault(&svc.Error{Message: secret}) }},
			"the cause of one":   {[]string{"errors"}, func(secret string) { s.evidence.fault(silent{silent{errors.New(secret)}}) }},
			"a body":             {[]string{"answers"}, func(secret string) { s.echo(url.Values{"body": {secret}}) }},
			"a header":           {[]string{"answers"}, func(secret string) { s.echo(url.Values{"header": {secret}}) }},
			"a key that is listed": {[]string{"answers"}, func(secret string) {
				s.echo(url.Values{"body": {`{"api_key":"svcu_0123456789abcdef` + secret + `123456"}`}})
			}},
			"a key that is repeated": {[]string{"answers"}, func(secret string) {
				s.echo(url.Values{"status": {"201"}, "body": {`{"api_key":"svcu_0123456789abcdef` + secret + `123456","description":"` + secret + `"}`}})
			}},
			"a value": {[]string{"values"}, func(secret string) { s.evidence.value("values", struct{ key svc.Secret }{svc.Secret(secret)}) }},
		} {
			t.Run(name, func(t *testing.T) {
				s.evidence.forget()
				plant.put(s.secret("planted", made()))
				wantFound(t, s, plant.places)
			})
		}
		plantRows(t, s)
	})
}

// made returns a new secret.
func made() string { return token.New("", func(string) uint32 { return 0 }).Secret }

// echo makes the server answer with a text.
func (s *site) echo(with url.Values) {
	s.t.Helper()
	response := must(s.client.Get(s.url + "/echo?" + with.Encode()))
	_ = response.Body.Close()
}

// wantFound checks that the search finds secrets in these places and no others.
func wantFound(t *testing.T, s *site, places []string) {
	t.Helper()
	slices.Sort(places)
	if found := slices.Sorted(maps.Keys(s.evidence.leaks(&s.hunt))); !slices.Equal(found, places) {
		t.Errorf("found in %q, want %q", found, places)
	}
}

// plantRows writes a secret with SQL, as text and as bytes.
func plantRows(t *testing.T, s *site) {
	pool, dialect := s.db.db()
	texts, bytes := made(), made()
	for statement, value := range map[string]any{
		`CREATE TABLE texts (leak ` + dialect.Text + `)`: texts, `CREATE TABLE bytes (leak ` + dialect.Bytes + `)`: []byte(bytes),
	} {
		execute(t, pool, statement)
		execute(t, pool, `INSERT INTO `+strings.Fields(statement)[2]+` VALUES ($1)`, value)
	}
	find := func(name, secret string, look func(e *evidence), places []string) {
		t.Run(name, func(t *testing.T) {
			s.evidence.forget()
			s.hunt = hunt{}
			s.secret("planted", secret)
			look(&s.evidence)
			wantFound(t, s, places)
		})
	}
	s.db.settle()
	find("a row of text", texts, s.db.running, s.db.holdRows())
	find("a row of bytes", bytes, s.db.running, s.db.holdRows())
	s.stop()
	find("a row of text, closed", texts, s.db.stopped, s.db.keepRows())
	find("a row of bytes, closed", bytes, s.db.stopped, s.db.keepRows())
}

// The test notices an answer that issues a key and may be cached.
func TestCachedAnswersAreNoticed(t *testing.T) {
	s := newSite(t, &file{t: t, path: t.TempDir() + "/svc.db"})
	s.ask(201, "session-of-alice", "POST", "/me/api-keys", "")
	if len(s.cached) > 0 {
		t.Errorf("%q", s.cached)
	}
	s.echo(url.Values{"status": {"201"}, "body": {`{"api_key":"svcu_0123456789abcdef` + made() + `123456"}`}})
	if len(s.cached) != 1 {
		t.Errorf("not noticed: %q", s.cached)
	}
}
