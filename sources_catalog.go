package svc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// browseAge limits the age of the catalogue copy that Browse and Search use.
const browseAge = time.Minute

// Catalog is the catalogue of a source. Each entry of its file is in exactly one of the two lists.
type Catalog struct {
	Revision  string           // of the file: equal for files that say the same; "": not known
	Entries   []CatalogEntry   // the good entries, in the order of the file; their ids are unique
	Problems  []CatalogProblem // the bad entries, in the order of the file
	Serial    int64            // of a signed catalogue, grows with each; 0: not signed
	Expires   time.Time        // of a signed catalogue; zero: never
	FetchedAt time.Time        // when the source last gave or confirmed the catalogue
	// Failure says why the source could not be asked since FetchedAt. Nil: the source needed no
	// request, or has just answered.
	Failure error
}

// CatalogEntry is a template that a source offers.
type CatalogEntry struct {
	Index int    // in the file's templates, from 0
	ID    string // never ""
	// Content has lists that are not nil. Its Manifest is nil when the manifest is in a file of its
	// own and is not known without asking for that file.
	Content Content
	// ManifestFile is the path of the manifest, relative to the source and decoded. "": the
	// manifest is inline.
	ManifestFile string
	// ManifestDigest is "sha256:" and the hex SHA-256 of the manifest's canonical form (RFC 8785).
	// "": the catalogue does not say.
	ManifestDigest string
}

// CatalogProblem is an entry that cannot be installed.
type CatalogProblem struct {
	Index  int    // in the file's templates, from 0
	ID     string // "": the entry has no readable id
	Reason string // a sentence fragment for a person, such as "name is missing"
}

// SourceTemplates lists what a source of the server offers, and what is installed from it.
type SourceTemplates struct {
	Templates []SourceTemplate // the templates that can be installed, in the order of the catalogue
	// Bad lists the entries that cannot be installed, in the order of the catalogue. The filter
	// does not narrow it.
	Bad       []CatalogProblem
	FetchedAt time.Time // when the source last gave or confirmed its catalogue
	Stale     bool      // the source could not be asked just now: the list is as of FetchedAt
}

// SourceTemplate is a template of a source.
type SourceTemplate struct {
	CatalogEntry
	InstalledAs []string // ids of the server's templates that came from it, in byte order; not nil
	// Behind reports whether one of those templates has another revision than the source. Nil: none
	// is installed, or the manifest is in a file that has not been asked for.
	Behind *bool
}

// CatalogFilter narrows a list of what sources offer. A field that is "" matches all entries. An
// entry must match all fields.
type CatalogFilter struct {
	Category string // the entry's category
	Tag      string // one of the entry's tags
	Text     string // words: each must be in the id, name or description; case does not matter
}

// Browse lists what a source of the server offers. It uses a copy of the catalogue that is at most
// a minute old, else it asks the source. If the source cannot be asked, Browse lists its last good
// catalogue and sets Stale. Browse does not ask for manifests in files of their own: a fault in
// such a manifest shows when the template is installed. The caller must not change the result.
// Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeSourceFailed, CodeSourceTimeout.
func (s *Sources) Browse(
	ctx context.Context, by Principal, name string, filter CatalogFilter,
) (SourceTemplates, error) {
	if err := errors.Join(checkID("name", name), filter.check()); err != nil {
		return SourceTemplates{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return SourceTemplates{}, err
	}
	up, err := s.upstream(ctx, SourceKey{Scope: ScopeServer, Name: name})
	if errors.Is(err, ErrNotFound) {
		return SourceTemplates{}, noSource()
	} else if err != nil {
		return SourceTemplates{}, err
	}
	return s.offers(ctx, by, up, filter)
}

func (s *Sources) offers(
	ctx context.Context, by Principal, up Upstream, filter CatalogFilter,
) (SourceTemplates, error) {
	catalog, err := s.catalog(ctx, by, up, browseAge)
	if err != nil {
		return SourceTemplates{}, err
	}
	if catalog.Failure != nil {
		s.log.WarnContext(ctx,
			"svc: a source cannot be asked, its last good catalogue is listed",
			"source", up.Source.Name, "fetched_at", catalog.FetchedAt, "error", catalog.Failure)
	}
	installed, err := s.installed(ctx)
	if err != nil {
		return SourceTemplates{}, err
	}
	return s.browse(catalog, installed.bySource[up.Source], filter), nil
}

// SourceListing lists what one of several sources offers.
type SourceListing struct {
	Source SourceKey
	SourceTemplates
	Problem string // why the source has no list: a sentence for a person; "": it has one
}

// Search lists what all sources of the server offer, in order of source name. For each source it
// lists what [Sources.Browse] lists. A source that fails and has no copy gets a Problem and does
// not stop the others. The caller must not change the result. Errors: CodeInvalid, CodeForbidden,
// CodeUnavailable.
func (s *Sources) Search(
	ctx context.Context, by Principal, filter CatalogFilter,
) ([]SourceListing, error) {
	if err := filter.check(); err != nil {
		return nil, err
	}
	var sources []Source
	for source, err := range s.List(ctx, by) {
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	listings := make([]SourceListing, len(sources))
	err := s.eachSource(ctx, len(sources), func(ctx context.Context, i int) error {
		one := &listings[i]
		one.Source = sources[i].SourceKey
		up, err := s.upstreamOf(sources[i])
		if err == nil {
			one.SourceTemplates, err = s.offers(ctx, by, up, filter)
		}
		one.Problem, err = sourceProblem(err)
		return err
	})
	if err != nil {
		return nil, fault("search sources", err)
	}
	return listings, nil
}

// catalog returns what a source offers, from a copy that is not older than maxAge. It records when
// the source begins to fail or answers again. Its Failure and its error come from the
// [Marketplace], in the form that callers may see.
func (s *upstreams) catalog(
	ctx context.Context, by Principal, up Upstream, maxAge time.Duration,
) (Catalog, error) {
	if s.market == nil {
		return Catalog{}, takesNoSources()
	}
	began := time.Now()
	catalog, err := s.market.Catalog(ctx, up, maxAge)
	if err != nil {
		catalog = Catalog{Failure: err}
	}
	if catalog.Failure != nil {
		catalog.Failure = sourceFault(up, catalog.Failure)
	}
	// Otherwise the catalogue is a copy, which does not show the state of the source now.
	if catalog.Failure != nil || maxAge <= 0 || !catalog.FetchedAt.Before(began) {
		s.asked(ctx, by, up, catalog.Failure)
	}
	if err != nil {
		return Catalog{}, catalog.Failure
	}
	return catalog, nil
}

// browse checks the entries of a catalogue as an installation does. It adds to the entries that
// match the filter what is installed of them.
func (s *Sources) browse(
	catalog Catalog, installed []Installation, filter CatalogFilter,
) SourceTemplates {
	beside, words := byEntry(installed), filter.words()
	list := SourceTemplates{
		Templates: []SourceTemplate{}, Bad: slices.Clone(catalog.Problems),
		FetchedAt: catalog.FetchedAt.UTC().Truncate(time.Microsecond),
		Stale:     catalog.Failure != nil,
	}
	for _, entry := range catalog.Entries {
		if reason := s.entryProblem(entry); reason != "" {
			problem := CatalogProblem{Index: entry.Index, ID: entry.ID, Reason: reason}
			list.Bad = append(list.Bad, problem)
		} else if filter.matches(entry.Content) && entry.says(words) {
			list.Templates = append(list.Templates, entry.beside(beside[entry.ID]))
		}
	}
	slices.SortFunc(list.Bad, func(a, b CatalogProblem) int { return a.Index - b.Index })
	return list
}

// entryProblem returns why a good entry cannot be installed on this server, as far as that is
// known. "": it can.
func (s *contents) entryProblem(entry CatalogEntry) string {
	var c checker
	c.id("id", entry.ID)
	entry.Content.checkHead(&c)
	if entry.Content.Manifest != nil {
		s.validate(&c, c.manifest(entry.Content.Manifest))
	}
	first, is := errors.AsType[*Error](c.err())
	if !is {
		return ""
	}
	return strings.ReplaceAll(strings.TrimPrefix(first.Field, "/"), "/", ".") + " " + first.Message
}

func (f CatalogFilter) check() error {
	var c checker
	c.filter(TemplateFilter{Category: f.Category, Tag: f.Tag})
	c.text("q", f.Text, MaxNameLength)
	return c.err()
}

// words returns the words to search for, in lower case.
func (f CatalogFilter) words() []string { return strings.Fields(strings.ToLower(f.Text)) }

// says reports whether an entry contains all words.
func (e CatalogEntry) says(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := e.ID + "\n" + e.Content.Name
	if e.Content.Description != nil {
		text += "\n" + *e.Content.Description
	}
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool {
		return !strings.Contains(text, word)
	})
}

func (f CatalogFilter) matches(c Content) bool {
	return (f.Category == "" || c.Category != nil && *c.Category == f.Category) &&
		(f.Tag == "" || slices.Contains(c.Tags, f.Tag))
}

// beside returns an entry together with what is installed from it.
func (e CatalogEntry) beside(installed []Installation) SourceTemplate {
	t := SourceTemplate{CatalogEntry: e, InstalledAs: []string{}}
	for _, i := range installed {
		t.InstalledAs = append(t.InstalledAs, i.ID)
	}
	if len(installed) == 0 || e.Content.Manifest == nil {
		return t
	}
	revision, err := e.Content.Revision()
	if err != nil {
		return t
	}
	behind := slices.ContainsFunc(installed, func(i Installation) bool {
		return i.Origin.Revision != revision
	})
	t.Behind = &behind
	return t
}
