package svc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/answers"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/cache"
)

// UpdateReport compares all templates of one half that came from sources with those sources. It
// belongs to the caller, except for what the pointers of Templates lead to.
type UpdateReport struct {
	Checked int // templates compared with their source, equal ones included
	// Templates lists the templates that differ from their source, or that could not be compared,
	// by id, byte by byte, not nil. It has none of a source with a Problem.
	Templates []TemplateUpdate
	// Sources lists the sources that templates came from, in order of scope, owner and name, not
	// nil. Those that are no longer registered have a Problem.
	Sources []SourceReport
}

// TemplateUpdate is a template that differs from its source, is gone from it, or could not be
// compared. It compares revisions of what the source gave: local edits make no difference.
type TemplateUpdate struct {
	ID              string    // the template's own id, not the one within the source
	Source          SourceKey // where the template came from, registered or not
	CurrentRevision string    // of the installed content
	// LatestRevision is the revision that the source has now, shared. Nil: the template is gone
	// from the source, or the revision is not known because of Problem.
	LatestRevision *string
	// Problem says why the template could not be compared, as a sentence fragment for a person: its
	// catalogue entry is bad, or its source has moved. "": the template was compared.
	Problem string
}

// HasUpdate reports whether an update would bring something. It may still be refused, for local
// edits or for content that this server does not accept. It is false for a template that is gone
// from its source, or that could not be compared.
func (t TemplateUpdate) HasUpdate() bool { return t.LatestRevision != nil }

// SourceReport is the result of asking one source. Each half may have templates from sources of the
// other.
type SourceReport struct {
	Source  SourceKey //
	Checked int       // templates of the source that were compared, without a Problem
	// Problem says why none was compared, as a sentence for a person: the source failed, is no
	// longer registered, or its token cannot be opened. "": the source has answered.
	Problem string
}

// CheckUpdates compares all templates of the half that came from sources with those sources, as
// [Templates.CheckUpdate] does. It asks each source once, and reports the templates that differ. A
// source that fails does not stop the others: the report has its problem. A manifest in its own
// file costs one more request, unless the catalogue has its digest. With a deadline of ctx, a source
// fails that has not answered 5 s before it. When ctx ends, or the Service is closed, it returns
// CodeUnavailable and no report.
//
// It asks 4 sources at the same time, and 4 files of one source; in a transaction of the host, one
// source at a time. The result is not a snapshot. If neither the catalogue nor the server's
// templates of a source have changed since the last call, they are not compared again; this memory
// of the process has a limit of 64 MiB.
//
// progress, unless nil, gets the number of templates done and the total, one call at a time,
// perhaps in other goroutines, in the last call the total twice. A slow progress slows the check.
func (s *Templates) CheckUpdates(
	ctx context.Context, by Principal, progress func(done, total int),
) (UpdateReport, error) {
	at, err := s.admit(ctx, by, action.TemplateList)
	if err != nil {
		return UpdateReport{}, err
	}
	all, err := s.installed(ctx, at)
	if err != nil {
		return UpdateReport{}, err
	}
	ctx, release := s.work.Within(ctx)
	defer release()
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
	s.keepReport(ctx, report)
	return report, nil
}

// LastCheck returns the report of the last [Templates.CheckUpdates] of the server's templates that
// was completed, by any process, and the time of its end by [Config].Now. It asks no source. The
// report is shared: do not change it. Errors: CodeNotFound (no report).
//
// The store keeps a report for 30 days. If it takes more than 4 MiB of JSON, the store is no
// [AnswerStore], or the Service is read-only, the process that made it keeps it. No report is kept
// of a check in a transaction of the host, or of the caller's own templates.
func (s *Templates) LastCheck(ctx context.Context, by Principal) (UpdateReport, time.Time, error) {
	if _, err := s.admit(ctx, by, action.TemplateList); err != nil {
		return UpdateReport{}, time.Time{}, err
	}
	kept, err := s.lastReport(ctx)
	if err == nil && kept == nil {
		err = notFound("no check for updates is kept")
	}
	if err != nil {
		return UpdateReport{}, time.Time{}, fault("read the last check", err)
	}
	return kept.report, kept.at, nil
}

// maxChecks limits the bytes of the kept results of the last comparisons with sources. A result
// larger than that is not kept.
const maxChecks = 64 << 20

// sourceCheck is the result of comparing installed templates with a catalogue. It does not change
// once it is kept: several calls read it concurrently.
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

// keptReport is the report of a check. It does not change.
type keptReport struct {
	report UpdateReport
	at     time.Time
	digest []byte // of the text in the store; nil: it is not there
	size   int64  // bytes
}

// reportName stands for the caller, and for the request, of the kept report: no request with an
// idempotency key has it.
var reportName = answers.Caller([]string{"last check for updates"})

const (
	reportPeriod = 30 * 24 * time.Hour
	maxReport    = 4 << 20 // bytes of JSON
)

// keepReport keeps the report of a check in the process and in the store. An error of the store is
// one line in the log. Of two checks that end at the same time, one is kept.
func (s *Templates) keepReport(ctx context.Context, report UpdateReport) {
	if s.inTransaction || s.personal {
		return
	}
	kept := &keptReport{report: report, at: s.now()}
	kept.report.Templates, kept.report.Sources =
		slices.Clone(report.Templates), slices.Clone(report.Sources) // the caller changes its own
	data, err := json.Marshal(report)
	stored := s.roles.answers
	if err == nil && stored != nil && !s.readOnly && len(data) <= maxReport {
		digest := sha256.Sum256(data)
		answer := StoredAnswer{
			Key: reportName, Caller: reportName, Request: digest[:], Data: data,
			ExpiresAt: kept.at.Add(reportPeriod),
		}
		if err = stored.DeleteAnswers(ctx, reportName); err == nil {
			err = stored.KeepAnswer(ctx, answer, kept.at)
		}
		if err == nil {
			kept.digest = digest[:]
		}
	}
	if err != nil && !errors.Is(err, ErrExists) {
		s.log.WarnContext(ctx, "svc: cannot store the report of a check for updates", "error", err)
	}
	s.checks.know(kept)
}

// lastReport returns the report of the last check, or nil. That of the store counts: another
// process may have made it.
func (s *Templates) lastReport(ctx context.Context) (*keptReport, error) {
	if s.personal {
		return nil, nil
	}
	known := s.checks.known()
	if s.roles.answers == nil {
		return known, nil
	}
	stored, err := s.roles.answers.Answer(ctx, reportName, s.now())
	switch at := stored.ExpiresAt.Add(-reportPeriod); {
	case noRow(err):
		return known, nil
	// One that the store had, and has no longer, is not the last, whatever the clocks say.
	case err != nil || known != nil && (bytes.Equal(known.digest, stored.Request) ||
		known.digest == nil && known.at.After(at)):
		return known, err
	default:
		next := &keptReport{at: at, digest: stored.Request}
		if err = json.Unmarshal(stored.Data, &next.report); err == nil {
			s.checks.know(next)
		}
		return next, err
	}
}

// checkSource compares the templates installed from a source with what the source has now. list
// must not be empty. Unless it fails, it calls tick for every template of the list, so that the
// progress reaches its total. Its error is no fault of this source, and stops the whole check.
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
// installed are never fetched or checked. An installed template without an entry is an offer
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
	var offered map[string]*CatalogEntry
	if len(installed) > 0 {
		offered = catalog.offered()
	}
	for id, from := range installed {
		of := offer{from: from}
		if present := catalog.renamed(id, offered); present != "" {
			of.entry, of.renamed = offered[present], true
			if err := checkID("id", present); err != nil {
				of.entry, of.problem = nil, "its catalogue entry is bad: "+firstMessage(err)
			} else if of.entry == nil {
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
	compare := func(ctx context.Context, i int) error {
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
	}
	return background.ForEach(ctx, len(offers), entriesAtOnce, compare)
}

// offered returns the revision of an entry, or the problem that keeps it from being installed.
// follows reports whether the result depends on the catalogue only. An err is no fault of this
// source only. A source that fails for one manifest is the problem of that entry, and the others
// go on.
func (s *Templates) offered(
	ctx context.Context, up Upstream, entry CatalogEntry, installed []Installation,
) (latest *string, problem string, follows bool, err error) {
	content := entry.Content
	follows = entry.ManifestFile == "" || entry.ManifestDigest != ""
	// The catalogue has no manifest for this entry, and the marketplace no valid copy of the file.
	if content.Manifest == nil {
		asking, done := askOne(ctx)
		defer done()
		defer up.Token.hidePanic()
		if content.Manifest, err = s.market.Manifest(asking, up, entry); err != nil {
			problem, err = sourceProblem(sourceFault(asking, up, err))
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
		content = content.clone()
		if err := s.checkContent(&content); err != nil {
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

// checkCache keeps the result of the last comparison of the server's templates with each source.
// When the results become too large, checks drops all of them. A Service shares it with its copies
// for transactions of the host. The zero value is ready for use.
type checkCache struct {
	mu   sync.Mutex
	last map[SourceKey]*sourceCheck
	// bytes is the size of everything kept since the last drop. A replaced result still counts, so
	// it is an upper bound, and needs no bookkeeping.
	bytes int64
	// report is the report of the last check that this process made, or has read from the store.
	report *keptReport
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !check.follows {
		delete(c.last, check.report.Source)
		return
	}
	if c.bytes += cache.Size(check); c.last == nil || c.bytes > maxChecks {
		c.last, c.bytes = map[SourceKey]*sourceCheck{}, cache.Size(check)
	}
	if c.bytes > maxChecks {
		return
	}
	c.last[check.report.Source] = check
}

// memory returns the bytes of what is kept.
func (c *checkCache) memory() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report != nil {
		return c.bytes + c.report.size
	}
	return c.bytes
}

// release drops everything.
func (c *checkCache) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.bytes = nil, 0
	if c.report != nil && c.report.digest != nil { // the store has it
		c.report = nil
	}
}

// known returns the report that the process has, or nil.
func (c *checkCache) known() *keptReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// know replaces the report that the process has, unless next is too large.
func (c *checkCache) know(next *keptReport) {
	if next.size = cache.Size(next.report); next.size > maxChecks {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = next
}
