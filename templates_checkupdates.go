package svc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/readcache"
)

// UpdateReport compares all templates of one half that came from sources with those sources. It
// belongs to the caller, except for what the pointers of Templates lead to.
type UpdateReport struct {
	// Checked is the number of templates compared with their source, those without a difference
	// included.
	Checked int
	// Templates lists the templates that differ from their source, and the templates that could not
	// be compared. The templates of a source with a Problem are not in it, because nothing is known
	// of them. It is in order of id, byte by byte, and not nil.
	Templates []TemplateUpdate
	// Sources lists the sources that templates came from, in order of scope, owner and name. It is
	// not nil. It has sources that are no longer registered, with a Problem.
	Sources []SourceReport
}

// TemplateUpdate is a template that differs from its source, is gone from it, or could not be
// compared. Local edits make no difference here: it compares revisions of what the source gave.
type TemplateUpdate struct {
	// ID is the template's own id; its id within the source may be another.
	ID string
	// Source is the source that the template came from, whether it is registered or not.
	Source SourceKey
	// CurrentRevision is the revision of the installed content.
	CurrentRevision string
	// LatestRevision is the revision that the source has now. Nil: the template is gone from the
	// source, or the revision is not known because of Problem. Callers share it and must not change
	// it.
	LatestRevision *string
	// Problem says why the template could not be compared, as a sentence fragment for a person: its
	// catalogue entry is bad, or its source has moved. "": the template was compared.
	Problem string
}

// HasUpdate reports whether an update would bring something. It may still be refused, for local
// edits or for content that this server does not accept. It is false for a template that is gone
// from its source, or that could not be compared.
func (t TemplateUpdate) HasUpdate() bool { return t.LatestRevision != nil }

// SourceReport is the result of asking one source. Its Checked does not count templates with a
// Problem of their own.
type SourceReport struct {
	// Source names the source. Each half may have templates from sources of the other.
	Source SourceKey
	// Checked is the number of templates of this source that were compared. 0 with a Problem.
	Checked int
	// Problem says why none was compared, as a sentence for a person: the source failed, is no
	// longer registered, or its token cannot be opened. "": the source has answered.
	Problem string
}

// CheckUpdates compares all templates that came from sources with those sources: all of the
// server's, or all of the caller's own. It asks each source once and reports the templates that
// differ, as [Templates.CheckUpdate] does for one template. A manifest in a file of its own costs
// one more request, unless the catalogue has its digest.
//
// It asks 4 sources at once, and 4 files of one source; in a transaction of the host, one source at
// a time. The result is not of one moment. Installed templates come from the cache or from the
// store, in chunks of 1,024. When ctx ends, CheckUpdates returns CodeUnavailable and no report.
//
// A source that fails does not stop the others: the report has its problem. If neither the
// catalogue nor the server's templates of a source have changed since the last call, CheckUpdates
// does not compare them again. This memory belongs to the process and has a limit of 64 MiB.
// CheckUpdates writes no template; as with CheckUpdate, a source that begins to fail or answers
// again is an event.
//
// CheckUpdates calls progress with the number of templates done and the total, one call at a time,
// perhaps in other goroutines. The last call has done equal to the total. A slow progress slows the
// check. progress may be nil. Errors: CodeForbidden, CodeUnavailable.
func (s *Templates) CheckUpdates(
	ctx context.Context, by Principal, progress func(done, total int),
) (UpdateReport, error) {
	at, err := s.admit(ctx, by, ActionTemplateList)
	if err != nil {
		return UpdateReport{}, err
	}
	all, err := s.installed(ctx, at)
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
	// The sources ended in any order; checks has them in order, and templates are sorted once more.
	slices.SortFunc(report.Templates, func(a, b TemplateUpdate) int {
		return strings.Compare(a.ID, b.ID)
	})
	return report, nil
}

// maxChecks limits the bytes of the kept results of the last comparisons with sources. A result
// larger than that is not kept.
const maxChecks = 64 << 20

// sourceCheck is the result of comparing installed templates with a catalogue. It does not change
// once it is kept: several calls read it at once.
type sourceCheck struct {
	report    SourceReport
	templates []TemplateUpdate

	// follows: the result depends only on the four fields below, so it stays valid while they do.
	// It is false when a manifest without a digest was fetched: that file may change without the
	// catalogue. It is false in a transaction of the host, whose templates others may never see,
	// and for personal templates, whose list is read again each time.
	follows    bool
	registered time.Time
	url        string
	revision   string
	installed  []Installation
}

// checkCache keeps the result of the last comparison of the server's templates with each source.
// When the results become too large, checks drops all of them. A Service shares it with its copies
// for transactions of the host. The zero value is ready for use.
type checkCache struct {
	mu   sync.Mutex
	last map[SourceKey]*sourceCheck
	// bytes is the size of everything kept since the last drop. A replaced result still counts, so
	// it is an upper bound, and needs no bookkeeping.
	bytes int64
}

// of returns the last comparison if it had the same source, catalogue and installed templates, or
// nil. It compares the lists of installed templates by address: they never change, and a list that
// was read again is another one. installed must not be empty.
func (c *checkCache) of(up Upstream, revision string, installed []Installation) *sourceCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last[up.Source]
	// A catalogue without a Revision cannot be recognized, so nothing follows from it.
	if last == nil || revision == "" || last.revision != revision ||
		last.url != up.URL || !last.registered.Equal(up.Registered) ||
		&last.installed[0] != &installed[0] || len(last.installed) != len(installed) {
		return nil
	}
	return last
}

// keep keeps a comparison in place of the last one. A comparison that must not be kept removes the
// last one, which is outdated now.
func (c *checkCache) keep(check *sourceCheck) {
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

// forget drops the comparison with a source. After a removal it frees the memory; a second
// registration has another time, so the old result would not be used.
func (c *checkCache) forget(source SourceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, source)
}

// memory returns the bytes of what is kept.
func (c *checkCache) memory() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// release drops everything.
func (c *checkCache) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.bytes = nil, 0
}

// checkSource compares the templates installed from a source with what the source has now. list
// must not be empty. Unless it fails, it calls tick for every template of the list, so that the
// progress reaches its total. Its error stops the whole check: it is no fault of this source alone.
func (s *Templates) checkSource(
	ctx context.Context, by Principal, key SourceKey, list []Installation, tick func(int),
) (*sourceCheck, error) {
	check := &sourceCheck{report: SourceReport{Source: key}, installed: list}
	up, err := s.upstream(ctx, key)
	if noRow(err) {
		err = sourceGone(&list[0].Origin)
	}
	var catalog Catalog
	if err == nil {
		if catalog, err = s.catalog(ctx, by, up, 0); err == nil {
			err = catalog.Failure // a copy does not show what the source has now
		}
	}
	if check.report.Problem, err = sourceProblem(err); err != nil {
		return nil, err
	} else if check.report.Problem != "" {
		tick(len(list))
		return check, nil
	}
	if s.personal { // nothing is kept
		return check, s.compare(ctx, up, catalog, check, tick)
	}
	if last := s.checks.of(up, catalog.Revision, list); last != nil {
		tick(len(list))
		return last, nil
	}
	check.registered, check.url, check.revision = up.Registered, up.URL, catalog.Revision
	check.follows = !s.inTransaction
	if err := s.compare(ctx, up, catalog, check, tick); err != nil {
		return nil, err
	}
	s.checks.keep(check)
	return check, nil
}

// compare fills in a check. It looks up the installed templates in the catalogue, not the other way
// round: a catalogue may have 100,000 entries of which two are installed. Entries that are not
// installed are never fetched or checked. What is installed and has no entry any more is an offer
// without an entry and without a problem. mu guards check, which several goroutines fill in.
func (s *Templates) compare(
	ctx context.Context, up Upstream, catalog Catalog, check *sourceCheck, tick func(int),
) error {
	type offer struct {
		entry   *CatalogEntry // nil: the catalogue has no good entry
		problem string
		from    []Installation
		renamed bool // the entry has another id than they came from
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
			problem := "its catalogue entry is bad: " + p.Reason
			offers = append(offers, offer{problem: problem, from: from})
			delete(installed, p.ID)
		}
	}
	offered := catalog.offered()
	for id, from := range installed {
		of := offer{from: from}
		if present := catalog.renamed(id, offered); present != "" {
			if of.entry, of.renamed = offered[present], true; of.entry == nil {
				of.problem = "its catalogue entry is bad: it is now " + quote(present)
			}
		}
		offers = append(offers, of)
	}
	at := ScopeServer
	if s.personal {
		at = ScopePersonal
	}
	var mu sync.Mutex
	return background.ForEach(ctx, len(offers), entriesAtOnce, func(ctx context.Context, i int) error {
		of := offers[i]
		var latest *string
		problem, follows := of.problem, true
		if of.entry != nil {
			var err error
			latest, problem, follows, err = s.offered(ctx, up, *of.entry, of.from)
			if err != nil {
				return err
			}
		}
		mu.Lock()
		for _, installation := range of.from {
			check.add(at, up, installation, latest, problem, of.renamed)
		}
		check.follows = check.follows && follows
		mu.Unlock()
		tick(len(of.from))
		return nil
	})
}

// offered returns the revision of an entry, or the problem that keeps it from being installed.
// follows reports whether the result depends on the catalogue alone. An err is no fault of this
// source alone. A source that fails for one manifest is the problem of that entry, and the others
// go on.
func (s *Templates) offered(
	ctx context.Context, up Upstream, entry CatalogEntry, installed []Installation,
) (latest *string, problem string, follows bool, err error) {
	content := entry.Content
	follows = entry.ManifestFile == "" || entry.ManifestDigest != ""
	// The catalogue has no manifest for this entry, and the marketplace no valid copy of the file.
	if content.Manifest == nil {
		if content.Manifest, err = s.market.Manifest(ctx, up, entry); err != nil {
			problem, err = sourceProblem(sourceFault(up, err))
			return nil, problem, false, err
		}
	}
	revision, err := content.Revision()
	if err != nil {
		return nil, "its catalogue entry is bad: /manifest is not valid JSON", follows, nil
	}
	differs := func(i Installation) bool { return i.Origin.Revision != revision }
	if slices.ContainsFunc(installed, differs) {
		// The same content needs no check: it was good when it was installed.
		if err := s.checked(content.clone()); err != nil {
			return nil, "its catalogue entry is bad: " + firstMessage(err), follows, nil
		}
	}
	return &revision, "", follows, nil
}

// add records the result of comparing one template. A template from another address of the source
// is compared with nothing, as in [Templates.CheckUpdate]. The caller holds the lock of compare.
func (c *sourceCheck) add(
	at Scope, up Upstream, i Installation, latest *string, problem string, renamed bool,
) {
	if err := i.Origin.unbound(at, up); err != nil {
		latest, problem = nil, err.Message
	}
	if problem == "" {
		c.report.Checked++
	}
	if latest == nil || *latest != i.Origin.Revision || renamed {
		c.templates = append(c.templates, TemplateUpdate{
			ID: i.ID, Source: up.Source, CurrentRevision: i.Origin.Revision,
			LatestRevision: latest, Problem: problem,
		})
	}
}

// installed holds the templates of an area that came from sources. It does not change, so callers
// share it, and checks recognizes its lists.
type installed struct {
	count int
	// Each list is in order of id and not empty. A source may have been removed since.
	bySource map[SourceKey][]Installation
}

// size counts the lists with their texts. The revision and the URL of each template are most of it.
func (i *installed) size() int64 { return cache.Size(i.bySource) }

// maxInstalled limits the bytes of the cached sources of all templates. Above it, each check and
// each list of offers reads all installations from the store.
const maxInstalled = 64 << 20

// installedCache knows which templates came from which source. It caches those of the server until
// one of them changes.
type installedCache struct {
	*base
	// checkCache belongs to installs, because it recognizes the lists of installed by their
	// address.
	checks *checkCache
	kept   *readcache.One[*installed]
}

// newInstalls returns an installs that follows the changes of templates, those of other processes
// included. Call it before the first use of b: onChange has no lock.
func newInstalls(b *base, checks *checkCache) *installedCache {
	i := &installedCache{b, checks, readcache.NewOne(b.cached, maxInstalled, (*installed).size)}
	b.onChange(func(changed Target, _ int64) {
		if changed.Kind == TargetTemplate && changed.Scope == ScopeServer {
			i.kept.Clear()
		}
	})
	return i
}

// installed returns the templates of an area that came from sources. It returns the cached copy of
// the server's while that is valid, else it reads the store, in chunks. Of concurrent callers for
// the server's one reads.
func (s *installedCache) installed(ctx context.Context, at place) (*installed, error) {
	if at.scope == ScopePersonal {
		return s.readInstalled(ctx, at)
	}
	return s.kept.Load(ctx, func(known int64) (*installed, int64, error) {
		all, err := s.readInstalled(ctx, at)
		return all, known, err
	})
}

// readInstalled reads all installations of an area. The chunks are not one snapshot. A change
// between them drops the copy: it is kept for the generation from before the first chunk.
func (s *installedCache) readInstalled(ctx context.Context, at place) (*installed, error) {
	all := &installed{bySource: map[SourceKey][]Installation{}}
	page := InstallationPage{Scope: at.scope, Owner: at.owner, Limit: installedChunk}
	for i, err := range list(ctx, "list installations", page.Limit,
		func() error { return nil },
		func() ([]Installation, error) { return s.store.Installations(ctx, page) },
		func(last Installation) { page.After = last.ID }) {
		if err != nil {
			return nil, err
		}
		all.count++
		all.bySource[i.Origin.Source] = append(all.bySource[i.Origin.Source], i)
	}
	return all, nil
}

// installedChunk is the number of installations that one store call reads. They have no contents,
// so they are small.
const installedChunk = 1024

// byEntry groups installations by the id of the catalogue entry that they came from, in order of
// id. One entry may be installed under several aliases.
func byEntry(list []Installation) map[string][]Installation {
	by := make(map[string][]Installation, len(list))
	for _, i := range list {
		by[i.Origin.ID] = append(by[i.Origin.ID], i)
	}
	return by
}
