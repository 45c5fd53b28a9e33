package bench_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// catalogue is the file of a source with inline manifests of some size.
type catalogue struct {
	body     []byte
	versions []int // the position of each manifest's version
	edition  int   // the number of changes
}

const (
	offered      = 10_000
	versionWidth = 8
	edited       = 100 // one template in so many changes with each edition
)

// newCatalogue returns a catalogue of so many templates, each of about size bytes.
func newCatalogue(templates, size int) *catalogue {
	var c catalogue
	c.body = append(c.body, `{"templates":[`...)
	for i := range templates {
		if i > 0 {
			c.body = append(c.body, ',')
		}
		c.body = fmt.Appendf(c.body, `{"id":"%s","name":"Template %d","description":"What it is for","category":"installed",`+
			`"integrations":["mail"],"tags":["one","two"],"manifest":`, templateID(i), i)
		manifest := strings.Replace(makeManifest(size-115, uint64(i)), `"1"`, `"`+strings.Repeat("0", versionWidth)+`"`, 1)
		c.versions = append(c.versions, len(c.body)+len(`{"version":"`))
		c.body = append(append(c.body, manifest...), '}')
	}
	c.body = append(c.body, `]}`...)
	return &c
}

// changes reports whether a template changes with each edition.
func changes(i int) bool { return i%edited == edited/2 }

// edit makes a new edition of the file that l serves.
func (c *catalogue) edit(l *loopback) {
	c.edition++
	version := fmt.Sprintf("%0*d", versionWidth, c.edition)
	l.change(`"`+version+`"`, func(body []byte) {
		for i, at := range c.versions {
			if changes(i) {
				copy(body[at:], version)
			}
		}
	})
}

// entry is a template in the file.
type entry struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	Category     *string         `json:"category"`
	Integrations []string        `json:"integrations"`
	Tags         []string        `json:"tags"`
	Manifest     json.RawMessage `json:"manifest"`
}

func (e entry) content() svc.Content {
	return svc.Content{
		Name: e.Name, Description: e.Description, Category: e.Category, Integrations: e.Integrations, Tags: e.Tags, Manifest: e.Manifest,
	}
}

// entries decodes a file as any client can.
func entries(body []byte) ([]entry, error) {
	var file struct {
		Templates []entry `json:"templates"`
	}
	err := json.Unmarshal(body, &file)
	return file.Templates, err
}

// stocked returns a site whose templates are exactly the source's, installed in one transaction.
func stocked(tb testing.TB, l *loopback) *site {
	tb.Helper()
	ctx := tb.Context()
	s := ownSite(tb, sqliteEngine, "stocked")
	source := s.from(tb, l)
	all, err := entries(l.body)
	if err != nil {
		tb.Fatal(err)
	}
	target := svc.TemplateKey{Scope: svc.ScopeServer, ID: all[0].ID}.Target()
	err = s.bare.mutate(ctx, target, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM svc_templates`); err != nil {
			return err
		}
		for _, e := range all {
			from := svc.Origin{Source: source.SourceKey, ID: e.ID, URL: source.URL}
			if from.Revision, err = e.content().Revision(); err != nil {
				return err
			}
			if err := s.bare.insert(ctx, tx, svc.TemplateKey{Scope: svc.ScopeServer, ID: e.ID}, e.content(), from); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
