package svc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/tasks"
)

// How much is asked for at once.
const (
	sourcesAtOnce = 4
	entriesAtOnce = 4 // of one source
)

// UpdateReport is what the sources say about all templates of the server that came from them.
type UpdateReport struct {
	Checked   int              // how many templates were compared with what their source has
	Templates []TemplateUpdate // those that are not as their source has them, and those that could not be compared, by id; not nil
	Sources   []SourceReport   // that templates came from, by scope, owner and name; not nil
}

// TemplateUpdate is a template that its source has otherwise, has no more, or about which nothing can be said.
type TemplateUpdate struct {
	ID              string
	Source          SourceKey
	CurrentRevision string
	LatestRevision  *string // nil: gone from the source, or not known because of Problem
	Problem         string  // why it could not be compared: a sentence fragment for a person; "" it was
}

// HasUpdate reports whether an update would bring something.
func (t TemplateUpdate) HasUpdate() bool { return t.LatestRevision != nil }

// SourceReport is how asking a source went.
type SourceReport struct {
	Source  SourceKey
	Checked int    // how many templates were compared
	Problem string // why none was: a sentence for a person; "" the source has answered
}

// CheckUpdates asks each source that templates of the server came from, once, and says which of them are not as it has them: what
// [Templates.CheckUpdate] does for one. A manifest that is a file of its own costs a request more, unless the catalogue has its digest.
// A source that fails does not stop the others: it is in the report. Where neither a catalogue nor what is installed has
// changed since the last call, nothing is compared again. progress, which may be nil, is told how many of how many templates are
// dealt with, one call at a time. Errors: CodeForbidden, CodeUnavailable.
func (s *Templates) CheckUpdates(ctx context.Context, by Principal, progress func(done, total int)) (UpdateReport, error) {
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return UpdateReport{}, err
	}
	all, err := s.installed(ctx)
	if err != nil {
		return UpdateReport{}, err
	}
	var mu sync.Mutex
	done := 0
	tick := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if done += n; progress != nil {
			progress(done, all.count)
		}
	}
	var sources []SourceKey
	for key := range all.bySource {
		sources = append(sources, key)
	}
	slices.SortFunc(sources, SourceKey.Compare)
	checks := make([]*sourceCheck, len(sources))
	err = s.eachSource(ctx, len(sources), func(ctx context.Context, i int) (err error) {
		checks[i], err = s.checkSource(ctx, by, sources[i], all.bySource[sources[i]], tick)
		return err
	})
	if err != nil {
		return UpdateReport{}, fault("check updates", err)
	}
	report := UpdateReport{Templates: []TemplateUpdate{}, Sources: []SourceReport{}}
	for _, c := range checks {
		report.Checked += c.report.Checked
		report.Templates = append(report.Templates, c.templates...)
		report.Sources = append(report.Sources, c.report)
	}
	slices.SortFunc(report.Templates, func(a, b TemplateUpdate) int { return strings.Compare(a.ID, b.ID) })
	return report, nil
}

// eachSource does something with each of n sources, several at once, unless in a transaction of the host: that is for one goroutine at a
// time.
func (s *upstreams) eachSource(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	limit := sourcesAtOnce
	if s.copies == nil {
		limit = 1
	}
	return tasks.AtOnce(ctx, n, limit, do)
}

// sourceCheck is what came of comparing what is installed with a catalogue.
type sourceCheck struct {
	report    SourceReport
	templates []TemplateUpdate

	// What it follows from, if from nothing else.
	follows    bool
	registered time.Time
	url        string
	revision   string
	installed  []Installation
}

// checks are what came of the last comparison with each source. When they become too large all are forgotten.
type checks struct {
	mu    sync.Mutex
	last  map[SourceKey]*sourceCheck
	bytes int64 // of all that was kept since they were forgotten
}

// of returns what came of the last comparison of just these, or nil.
func (c *checks) of(up Upstream, revision string, installed []Installation) *sourceCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last[up.Source]
	if last == nil || revision == "" || last.revision != revision || last.url != up.URL || !last.registered.Equal(up.Registered) ||
		&last.installed[0] != &installed[0] || len(last.installed) != len(installed) {
		return nil
	}
	return last
}

func (c *checks) keep(check *sourceCheck) {
	if !check.follows {
		c.forget(check.report.Source)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += cache.Size(check); c.last == nil || c.bytes > maxChecks {
		c.last, c.bytes = map[SourceKey]*sourceCheck{}, cache.Size(check)
	}
	if c.bytes > maxChecks {
		return
	}
	c.last[check.report.Source] = check
}

func (c *checks) forget(source SourceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, source)
}

// checkSource compares what is installed from a source, which is not nothing, with what that has now.
func (s *Templates) checkSource(ctx context.Context, by Principal, key SourceKey, list []Installation, tick func(int)) (*sourceCheck, error) {
	check := &sourceCheck{report: SourceReport{Source: key}, installed: list}
	up, err := s.upstream(ctx, key)
	if errors.Is(err, ErrNotFound) {
		err = sourceGone(&list[0].Origin)
	}
	var catalog Catalog
	if err == nil {
		if catalog, err = s.catalog(ctx, by, up, 0); err == nil {
			err = catalog.Failure // a copy says nothing of the source now
		}
	}
	if check.report.Problem, err = sourceProblem(err); err != nil {
		return nil, err
	} else if check.report.Problem != "" {
		tick(len(list))
		return check, nil
	}
	if last := s.checks.of(up, catalog.Revision, list); last != nil {
		tick(len(list))
		return last, nil
	}
	check.registered, check.url, check.revision, check.follows = up.Registered, up.URL, catalog.Revision, s.copies != nil
	if err := s.compare(ctx, up, catalog, check, tick); err != nil {
		return nil, err
	}
	s.checks.keep(check)
	return check, nil
}

// compare fills in a check.
func (s *Templates) compare(ctx context.Context, up Upstream, catalog Catalog, check *sourceCheck, tick func(int)) error {
	type offer struct {
		entry   *CatalogEntry // nil: it has none that is good
		problem string
		from    []Installation
	}
	installed := byEntry(check.installed)
	var offers []offer
	for i := range catalog.Entries {
		if from := installed[catalog.Entries[i].ID]; from != nil {
			offers = append(offers, offer{entry: &catalog.Entries[i], from: from})
			delete(installed, catalog.Entries[i].ID)
		}
	}
	for _, p := range catalog.Problems {
		if from := installed[p.ID]; from != nil {
			offers = append(offers, offer{problem: "its entry of the catalogue is bad: " + p.Reason, from: from})
			delete(installed, p.ID)
		}
	}
	for _, from := range installed {
		offers = append(offers, offer{from: from})
	}
	var mu sync.Mutex
	return tasks.AtOnce(ctx, len(offers), entriesAtOnce, func(ctx context.Context, i int) error {
		of := offers[i]
		var latest *string
		problem, follows := of.problem, true
		if of.entry != nil {
			var err error
			if latest, problem, follows, err = s.offered(ctx, up, *of.entry, of.from); err != nil {
				return err
			}
		}
		mu.Lock()
		for _, installation := range of.from {
			check.add(up, installation, latest, problem)
		}
		check.follows = check.follows && follows
		mu.Unlock()
		tick(len(of.from))
		return nil
	})
}

// offered returns the revision that an entry has, and whether that follows from the catalogue alone; or why it cannot be installed.
func (s *Templates) offered(ctx context.Context, up Upstream, entry CatalogEntry, installed []Installation) (latest *string, problem string, follows bool, err error) {
	content := entry.Content
	follows = entry.ManifestFile == "" || entry.ManifestDigest != ""
	if content.Manifest == nil {
		if content.Manifest, err = s.config.Marketplace.Manifest(ctx, up, entry); err != nil {
			problem, err = sourceProblem(sourceFault(up, err))
			return nil, problem, false, err
		}
	}
	revision, err := content.Revision()
	if err != nil {
		return nil, "its entry of the catalogue is bad: /manifest is not valid JSON", follows, nil
	}
	if slices.ContainsFunc(installed, func(i Installation) bool { return i.Origin.Revision != revision }) {
		if err := s.checked(content.clone()); err != nil { // what is the same was good when it was installed
			return nil, "its entry of the catalogue is bad: " + firstMessage(err), follows, nil
		}
	}
	return &revision, "", follows, nil
}

// add notes what came of comparing one template.
func (c *sourceCheck) add(up Upstream, i Installation, latest *string, problem string) {
	if i.Origin.URL != up.URL {
		latest, problem = nil, sourceMoved(&i.Origin, up).Message
	}
	if problem == "" {
		c.report.Checked++
	}
	if latest == nil || *latest != i.Origin.Revision {
		c.templates = append(c.templates, TemplateUpdate{
			ID: i.ID, Source: up.Source, CurrentRevision: i.Origin.Revision, LatestRevision: latest, Problem: problem,
		})
	}
}
