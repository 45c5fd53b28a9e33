package svc

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/aead"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/lists"
)

// The limits of concurrent requests.
const (
	sourcesAtOnce = 4
	entriesAtOnce = 4 // of one source
)

// Sources manages the trusted marketplace sources of one half and shows what they offer: those of
// the server (Service.Sources), or the caller's own (Service.MySources). Its methods may be called
// concurrently. Events, records and halves are as with [Templates].
//
// Each method on the server's sources needs [action.TemplateAdmin], except for [Host]; Reseal and
// Sealed need Host. Each method on the caller's own needs [action.TemplateSource].
type Sources struct {
	*base
	*scoped
	*committer
	*contentChecker
	*upstreams
	*templateReader // of the server's templates, in both halves
	*installedCache
}

// List lists the sources by name, in chunks, with sealed tokens. The error, if any, is the last
// thing yielded.
func (s *Sources) List(ctx context.Context, by Principal) iter.Seq2[Source, error] {
	return lists.Chunks(ctx, SourcePage{Limit: listChunk}, listChunk, doing("list sources"),
		func(page *SourcePage) error {
			at, err := s.admit(ctx, by, action.TemplateSource)
			page.Scope, page.Owner = at.scope, at.owner
			return err
		},
		func(page SourcePage) ([]Source, error) { return s.store.Sources(ctx, page) },
		func(page *SourcePage, last Source) { page.After = last.Name })
}

// browseAge limits the age of the catalogue copy that Browse and Search use.
const browseAge = time.Minute

// Browse lists what a source offers, and what is installed of it in this half. It uses a copy of
// the catalogue that is at most a minute old, else it asks the source. If that fails, Browse lists
// its last good catalogue and sets Stale. It asks for no manifests in their own files: a fault in
// one shows when the template is installed. Do not change the result. Errors: CodeNotFound,
// CodeSourceFailed, CodeSourceTimeout.
func (s *Sources) Browse(
	ctx context.Context, by Principal, name string, filter CatalogFilter,
) (SourceTemplates, error) {
	if err := errors.Join(checkID("name", name), filter.check()); err != nil {
		return SourceTemplates{}, err
	}
	at, err := s.admit(ctx, by, action.TemplateSource)
	if err != nil {
		return SourceTemplates{}, err
	}
	up, err := s.upstream(ctx, at.source(name))
	if noRow(err) {
		return SourceTemplates{}, noSource()
	} else if err != nil {
		return SourceTemplates{}, err
	}
	return s.offers(ctx, by, up, filter, func() (*installed, error) { return s.installed(ctx, at) })
}

// offers lists what a source offers. It calls installed after the source has answered.
func (s *Sources) offers(
	ctx context.Context, by Principal, up Upstream, filter CatalogFilter,
	installed func() (*installed, error),
) (SourceTemplates, error) {
	catalog, err := s.catalog(ctx, by, up, browseAge)
	if err != nil {
		return SourceTemplates{}, err
	}
	if catalog.Failure != nil {
		s.log.WarnContext(ctx,
			"svc: cannot ask a source, will list its last good catalogue",
			"source", up.Source.Name, "fetched_at", catalog.FetchedAt, "error", catalog.Failure)
	}
	kept, err := installed()
	if err != nil {
		return SourceTemplates{}, err
	}
	return s.browse(catalog, kept.bySource[up.Source], filter), nil
}

// Search lists what all sources of the half offer, as [Sources.Browse] does, in order of source
// name. It asks 4 at the same time. A source that fails and has no copy gets a Problem and stops no
// other, and so does one whose list is beyond 32 MiB of all. With a deadline of ctx, a source fails
// that has not answered 5 s before it. No sources: empty or nil. Do not change the result.
func (s *Sources) Search(
	ctx context.Context, by Principal, filter CatalogFilter,
) ([]SourceListing, error) {
	if err := filter.check(); err != nil {
		return nil, err
	}
	at, err := s.admit(ctx, by, action.TemplateSource)
	if err != nil {
		return nil, err
	}
	var sources []Source
	for source, err := range s.List(ctx, by) {
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	installed := sync.OnceValues(func() (*installed, error) { return s.installed(ctx, at) })
	listings, room := make([]SourceListing, len(sources)), new(atomic.Int64)
	room.Store(maxSearch)
	err = s.eachSource(ctx, len(sources), func(ctx context.Context, i int) error {
		one := &listings[i]
		one.Source = sources[i].SourceKey
		up, err := s.upstreamOf(sources[i])
		if err == nil {
			one.SourceTemplates, err = s.offers(ctx, by, up, filter, installed)
		}
		one.Problem, err = sourceProblem(cmp.Or(err, one.fit(room)))
		return err
	})
	if err != nil {
		return nil, fault("search sources", err)
	}
	return listings, nil
}

// catalog returns what a source offers, from a copy that is not older than maxAge. It records when
// the source begins to fail or answers again. Its Failure and its error come from the
// [Marketplace], in the form that callers may see: an [*Error], without the token.
func (s *upstreams) catalog(
	ctx context.Context, by Principal, up Upstream, maxAge time.Duration,
) (Catalog, error) {
	if s.market == nil {
		return Catalog{}, takesNoSources()
	}
	began := time.Now()
	asking, done := askOne(ctx)
	defer done()
	defer up.Token.hidePanic()
	catalog, err := s.market.Catalog(asking, up, maxAge)
	if err != nil {
		catalog = Catalog{Failure: err}
	}
	if catalog.Failure != nil {
		catalog.Failure = sourceFault(asking, up, catalog.Failure)
	}
	// Otherwise the catalogue is a copy, which does not show the state of the source now.
	if asking.Err() == nil &&
		(catalog.Failure != nil || maxAge <= 0 || !catalog.FetchedAt.Before(began)) {
		s.asked(ctx, by, up, catalog.Failure)
	}
	if err != nil {
		return Catalog{}, catalog.Failure
	}
	catalog.Problems = lists.Map(catalog.Problems, func(p CatalogProblem) CatalogProblem {
		return CatalogProblem{p.Index, up.Token.hide(p.ID), up.Token.hide(p.Reason)}
	})
	return catalog, nil
}

// browse checks the entries of a catalogue as an installation does. It adds to the entries that
// match the filter what is installed of them.
func (s *Sources) browse(
	catalog Catalog, installed []Installation, filter CatalogFilter,
) SourceTemplates {
	from, words := byEntry(installed), strings.Fields(strings.ToLower(filter.Text))
	catalog.follow(from)
	list := SourceTemplates{
		Templates: []SourceTemplate{}, Bad: catalog.Problems,
		FetchedAt: catalog.FetchedAt.UTC().Truncate(time.Microsecond),
		Stale:     catalog.Failure != nil,
	}
	for _, entry := range catalog.Entries {
		if reason := s.entryProblem(entry); reason != "" {
			problem := CatalogProblem{Index: entry.Index, ID: entry.ID, Reason: reason}
			list.Bad = append(list.Bad, problem)
		} else if labelled(entry.Content, filter.Category, filter.Tag) && entry.says(words) {
			list.Templates = append(list.Templates, entry.with(from[entry.ID]))
		}
	}
	slices.SortFunc(list.Bad, func(a, b CatalogProblem) int { return a.Index - b.Index })
	return list
}

// upstreams asks the registered sources.
type upstreams struct {
	*base
	*committer
	*contentChecker
	market  Marketplace   // nil: no source can be asked
	sealer  *aead.Sealer  // nil: source tokens are refused
	failing *sourceHealth // shared with the copies for transactions of the host
}

// sourceHealth holds the sources that failed when this process last asked them, with their
// registration times.
type sourceHealth struct {
	mu      sync.Mutex
	sources map[SourceKey]time.Time
}

// maxFailing limits the failing sources kept in memory: about 300 bytes each, and at most 10 MiB.
const maxFailing = 1 << 13

// turned records whether a source fails, and reports whether that is a change. A source registered
// again starts as one that works.
func (f *sourceHealth) turned(up Upstream, fails bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	registered, was := f.sources[up.Source]
	if was = was && registered.Equal(up.Registered); was == fails {
		return false
	}
	if !fails {
		delete(f.sources, up.Source)
		return true
	}
	// Removed sources stay in the map. When it is full, drop all: the sources that still fail are
	// announced once more.
	if f.sources == nil || len(f.sources) == maxFailing {
		f.sources = map[SourceKey]time.Time{}
	}
	f.sources[up.Source] = up.Registered
	return true
}

// eachSource calls do for each of n sources, several at the same time. In a transaction of the host
// it calls do for one source at a time, because only one goroutine at a time can use a transaction.
func (s *upstreams) eachSource(
	ctx context.Context, n int, do func(ctx context.Context, i int) error,
) error {
	limit := sourcesAtOnce
	if s.inTransaction {
		limit = 1
	}
	if end, ok := ctx.Deadline(); ok && n > 0 {
		end = end.Add(-min(answerTime, time.Until(end)/4))
		ctx = context.WithValue(ctx, askUntil{}, end)
		first, one := rand.IntN(n), do // no source is always behind the slow ones
		do = func(ctx context.Context, i int) error { return one(ctx, (first+i)%n) }
	}
	return background.ForEach(ctx, n, limit, do)
}

// askUntil is the key of the time until which one of several sources may be asked, in a context. A
// source that has not answered by then has failed, and the others have not.
type askUntil struct{}

// answerTime is how long before a caller's deadline that is.
const answerTime = 5 * time.Second

// askOne returns the context of a call of the [Marketplace], and the function that ends it.
func askOne(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Value(askUntil{}).(time.Time); ok {
		return context.WithDeadline(ctx, end)
	}
	return ctx, func() {}
}

// upstream returns how to ask a registered source, with its token unsealed. It returns ErrNotFound
// when the source is not registered.
func (s *upstreams) upstream(ctx context.Context, key SourceKey) (Upstream, error) {
	source, err := s.store.Source(ctx, key)
	if noRow(err) {
		return Upstream{}, ErrNotFound
	} else if err != nil {
		return Upstream{}, fault("read source", err)
	}
	return s.upstreamOf(source)
}

// upstreamOf returns how to ask a source that was read from the store. A token that no key opens is
// an error: without its token, a private source would look empty or broken.
func (s *upstreams) upstreamOf(source Source) (Upstream, error) {
	up := Upstream{
		Source: source.SourceKey, URL: source.URL, Registered: source.CreatedAt,
		SigningKey: source.SigningKey, Serial: source.Serial,
	}
	// In a transaction of the host, Memory stays nil: a request may outlive the transaction.
	if !s.inTransaction {
		up.Memory = sourceMemory{s, source.SourceKey, source.CreatedAt}
	}
	if !source.HasAuth() {
		return up, nil
	}
	token, err := s.sealer.Open(source.SealedToken, source.binding())
	if err != nil {
		return Upstream{}, sourceTokenLost(source.Name, err)
	}
	up.Token = Secret(token)
	return up, nil
}

// sourceTokenLost wraps aead.ErrOpen, by which callers know that only this source is at fault.
func sourceTokenLost(name string, err error) *Error {
	return &Error{
		Code: CodeInternal,
		Message: "the access token of source " + quote(name) +
			" cannot be read with this server's sealing keys: add the missing key, " +
			"or give the source its token again",
		Err: err,
	}
}

// originUpstream returns how to ask the source that a template of an area came from. Errors:
// CodeNotFound, naming the source, when the source was removed; CodeSourceMoved when it is now
// registered at another URL.
func (s *upstreams) originUpstream(
	ctx context.Context, at Scope, origin *Origin,
) (Upstream, error) {
	up, err := s.upstream(ctx, origin.Source)
	if noRow(err) {
		return up, sourceGone(origin)
	} else if err != nil {
		return up, err
	}
	if err := origin.unbound(at, up); err != nil {
		return up, err
	}
	return up, nil
}

// fetch returns the content of a template of a source, and its revision. It checks the source's
// answer as strictly as a caller's input. The content shares no memory with the marketplace.
func (s *upstreams) fetch(
	ctx context.Context, by Principal, up Upstream, id string,
) (Content, string, error) {
	if s.market == nil {
		return Content{}, "", takesNoSources()
	}
	defer up.Token.hidePanic()
	content, err := s.market.Template(ctx, up, id)
	if err != nil {
		err = sourceFault(ctx, up, err)
	}
	if s.asked(ctx, by, up, err); err != nil {
		return Content{}, "", err
	}
	content = content.clone()
	if err := s.checkContent(&content); err != nil {
		return Content{}, "", badEntry(up, err)
	}
	revision, err := content.Revision()
	if err != nil {
		return Content{}, "", badEntry(up, err)
	}
	return content, revision, nil
}

// takesNoSources is for sources that were registered while the server still had a Marketplace.
func takesNoSources() *Error {
	return &Error{Code: CodeSourceFailed, Message: "this server accepts no sources"}
}

// badEntry marks a fault of one entry with ErrBadEntry: the source itself works.
func badEntry(up Upstream, err error) *Error {
	return &Error{
		Code: CodeSourceFailed,
		Message: "source " + quote(up.Source.Name) + ": this template is bad: " +
			firstMessage(err),
		Err: errors.Join(ErrBadEntry, err),
	}
}

// sourceFault passes on an [*Error] that a Marketplace may return, and hides the text of every other
// error. The code of another server, such as CodeUnauthenticated, must not become an answer of this one.
func sourceFault(ctx context.Context, up Upstream, err error) error {
	err = up.Token.hideIn(err) // a source may repeat the token in its answer
	if ofSource(err) {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return fault("ask source", hostError{err})
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{
			Code:    CodeSourceTimeout,
			Message: "source " + quote(up.Source.Name) + " did not answer in time",
			Err:     err,
		}
	}
	return &Error{
		Code:    CodeSourceFailed,
		Message: "source " + quote(up.Source.Name) + " cannot be asked",
		Err:     err,
	}
}

// ofSource reports whether err is an [*Error], or several, with the codes of a [Marketplace].
func ofSource(err error) bool {
	of := []Code{CodeNotFound, CodeSourceFailed, CodeSourceTimeout, CodeUnavailable}
	other := func(e *Error) bool { return !slices.Contains(of, e.Code) }
	return isAnswer(err) && !slices.ContainsFunc(Errors(err), other)
}

// sourceProblem returns the message of an error that concerns only one of several sources. It
// returns every other error unchanged, such as that of an unreachable store.
func sourceProblem(err error) (string, error) {
	first, is := errors.AsType[*Error](err)
	alone := errors.Is(err, aead.ErrOpen) || errors.Is(err, ErrSourceWaits)
	if is && (first.Code != CodeUnavailable && ofSource(err) || alone) {
		return first.Message, nil
	}
	return "", err
}

// asked announces when a source begins to fail, and when it answers again, as this process sees it.
// A bad or missing entry of its catalogue is not a failure of the source.
func (s *upstreams) asked(ctx context.Context, by Principal, up Upstream, err error) {
	// Announce nothing in a transaction of the host, for a caller that has left or whose time is
	// over, or for an answer that this server did not read.
	if s.inTransaction || ctx.Err() != nil || errors.Is(err, ErrSourceWaits) {
		return
	}
	code := ErrorCode(err)
	fails := (code == CodeSourceFailed || code == CodeSourceTimeout) && !errors.Is(err, ErrBadEntry)
	if !s.failing.turned(up, fails) {
		return
	}
	action := event.SourceFailing
	if !fails {
		action = event.SourceRecovered
	}
	// announce does not fail outside a transaction.
	_ = s.announce(ctx, s.sign(by, happened(s.now(), action, up.Source.Target())))
}

// sourceMemory keeps the answers of a source in the store, if the store is a [SourceFileStore]. A
// failed write or read costs one more request and one line in the log. A serial, however, must be
// written: its error refuses the catalogue.
type sourceMemory struct {
	sources    *upstreams
	key        SourceKey
	registered time.Time
}

func (m sourceMemory) File(ctx context.Context, path string) []byte {
	files := m.sources.roles.files
	if files == nil {
		return nil
	}
	file, err := files.SourceFile(ctx, m.key, path)
	if err != nil && !noRow(err) {
		m.warn(ctx, "svc: cannot read a stored answer of a source", path, err)
	}
	return file.Data
}

func (m sourceMemory) KeepFile(ctx context.Context, path string, data []byte) {
	files := m.sources.roles.files
	if files == nil || m.sources.readOnly || len(path) > maxKeptPath {
		return
	}
	file := SourceFile{Path: path, Data: data, KeptAt: m.sources.now()}
	err := files.KeepSourceFile(ctx, m.key, file)
	if err != nil && !noRow(err) { // ErrNotFound: the source was removed in the meantime
		m.warn(ctx, "svc: cannot store an answer of a source", path, err)
	}
}

// maxKeptPath limits the path of a kept file, in bytes: some databases have short indexes.
const maxKeptPath = 1024

func (m sourceMemory) AcceptSerial(ctx context.Context, serial int64) (greatest int64, err error) {
	err = m.sources.store.ChangeSource(ctx, m.key, func(source *Source) (bool, error) {
		if !source.CreatedAt.Equal(m.registered) {
			return false, ErrNotFound // another registration
		}
		raised := serial > source.Serial
		greatest = max(source.Serial, serial)
		source.Serial = greatest
		return raised && !m.sources.readOnly, nil
	})
	if noRow(err) {
		return 0, noSource()
	}
	return greatest, err
}

func (m sourceMemory) warn(ctx context.Context, message, path string, err error) {
	m.sources.log.WarnContext(ctx, message, "source", m.key.Name, "file", path, "error", err)
}
