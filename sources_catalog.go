package svc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// browseAge is how old the copy of a catalogue may be from which templates are listed.
const browseAge = time.Minute

// Catalog is what a source offers. Every entry of its file is in exactly one of the lists.
type Catalog struct {
	Revision  string           // of the file: equal where it says the same; "" not known
	Entries   []CatalogEntry   // the good ones, in the order of the file; their ids are unique
	Problems  []CatalogProblem // the bad ones, in the order of the file
	Serial    int64            // of a signed one, greater with each; 0: it is not signed
	Expires   time.Time        // of a signed one; zero: never
	FetchedAt time.Time        // when the source gave it, or confirmed it, last
	Failure   error            // why the source could not be asked since; nil: it was not needed, or has just been
}

// CatalogEntry is a template that a source offers.
type CatalogEntry struct {
	Index        int     // in the file's templates, from 0
	ID           string  // never ""
	Content      Content // its lists not nil; its Manifest nil when that is in a file, and not known without asking for it
	ManifestFile string  // the path of the manifest, relative to the source and decoded; "" when it is inline
	// ManifestDigest is "sha256:" and the hex SHA-256 of the manifest's canonical form (RFC 8785); "" the catalogue does not say.
	ManifestDigest string
}

// CatalogProblem is an entry that cannot be installed.
type CatalogProblem struct {
	Index  int    // in the file's templates, from 0
	ID     string // "" when it has none that can be read
	Reason string // a sentence fragment for a person, such as "name is missing"
}

// Browse is what a source of the server offers, beside what is installed of it.
type SourceTemplates struct {
	Templates []SourceTemplate // those that can be installed, in the order of the catalogue
	Bad       []CatalogProblem // those that cannot, whatever the filter; in the order of the catalogue
	FetchedAt time.Time        // when the source gave its catalogue, or confirmed it, last
	Stale     bool             // the source could not be asked just now: this is what it offered at FetchedAt
}

// SourceTemplate is a template of a source.
type SourceTemplate struct {
	CatalogEntry
	InstalledAs []string // the ids of the server's templates that came from it, in byte order; not nil
	// Behind tells whether one of those has another revision than the source has. Nil: none is installed, or the manifest is in
	// a file that would have to be asked for.
	Behind *bool
}

// CatalogFilter narrows a list of what sources offer; "" matches all. What is not "" has to match together.
type CatalogFilter struct {
	Category string // the category is this
	Tag      string // one of the tags is this
	Text     string // each of its words is in the id, the name or the description, in whatever case
}

// Browse lists what a source of the server offers, from a copy of its catalogue that is at most a minute old; else the source is
// asked. When it cannot be asked, its last good catalogue is listed, and said to be stale. Manifests that are files of their
// own are not asked for: what is wrong with one shows when it is installed. What is returned is not to be changed.
// Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeSourceFailed, CodeSourceTimeout.
func (s *Sources) Browse(ctx context.Context, by Principal, name string, filter CatalogFilter) (SourceTemplates, error) {
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

// offers lists what a source offers.
func (s *Sources) offers(ctx context.Context, by Principal, up Upstream, filter CatalogFilter) (SourceTemplates, error) {
	catalog, err := s.catalog(ctx, by, up, browseAge)
	if err != nil {
		return SourceTemplates{}, err
	}
	if catalog.Failure != nil {
		s.config.Logger.WarnContext(ctx, "svc: a source cannot be asked, its last good catalogue is listed",
			"source", up.Source.Name, "fetched_at", catalog.FetchedAt, "error", catalog.Failure)
	}
	installed, err := s.installed(ctx)
	if err != nil {
		return SourceTemplates{}, err
	}
	return s.browse(catalog, installed.bySource[up.Source], filter), nil
}

// SourceListing is what one of several sources offers.
type SourceListing struct {
	Source SourceKey
	SourceTemplates
	Problem string // why there is no list: a sentence for a person; "" there is one
}

// Search lists what all sources of the server offer, by their names: for each what [Sources.Browse] lists. A source
// that fails, and has no copy, has a Problem, and does not stop the others. What is returned is not to be changed.
// Errors: CodeInvalid, CodeForbidden, CodeUnavailable.
func (s *Sources) Search(ctx context.Context, by Principal, filter CatalogFilter) ([]SourceListing, error) {
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

// catalog returns what a source offers, from a copy that is not older than maxAge, and tells when the source begins to fail or answers
// again. Its Failure, and the error, are those of a [Marketplace] as callers may see them.
func (s *upstreams) catalog(ctx context.Context, by Principal, up Upstream, maxAge time.Duration) (Catalog, error) {
	if s.config.Marketplace == nil {
		return Catalog{}, takesNoSources()
	}
	began := time.Now()
	catalog, err := s.config.Marketplace.Catalog(ctx, up, maxAge)
	if err != nil {
		catalog = Catalog{Failure: err}
	}
	if catalog.Failure != nil {
		catalog.Failure = sourceFault(up, catalog.Failure)
	}
	if catalog.Failure != nil || maxAge <= 0 || !catalog.FetchedAt.Before(began) { // else it is a copy, which says nothing of the source now
		s.asked(ctx, by, up, catalog.Failure)
	}
	if err != nil {
		return Catalog{}, catalog.Failure
	}
	return catalog, nil
}

// browse judges the entries of a catalogue as an installation would, and those that the filter lets through by what is installed.
func (s *Sources) browse(catalog Catalog, installed []Installation, filter CatalogFilter) SourceTemplates {
	beside, words := byEntry(installed), filter.words()
	list := SourceTemplates{
		Templates: []SourceTemplate{}, Bad: slices.Clone(catalog.Problems),
		FetchedAt: catalog.FetchedAt.UTC().Truncate(time.Microsecond), Stale: catalog.Failure != nil,
	}
	for _, entry := range catalog.Entries {
		if reason := s.entryProblem(entry); reason != "" {
			list.Bad = append(list.Bad, CatalogProblem{Index: entry.Index, ID: entry.ID, Reason: reason})
		} else if filter.matches(entry.Content) && entry.says(words) {
			list.Templates = append(list.Templates, entry.beside(beside[entry.ID]))
		}
	}
	slices.SortFunc(list.Bad, func(a, b CatalogProblem) int { return a.Index - b.Index })
	return list
}

// entryProblem says why a good entry cannot be installed here, as far as that is known; "" it can.
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

// words are those that are looked for, in lower case.
func (f CatalogFilter) words() []string { return strings.Fields(strings.ToLower(f.Text)) }

// says reports whether all words are in an entry.
func (e CatalogEntry) says(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := e.ID + "\n" + e.Content.Name
	if e.Content.Description != nil {
		text += "\n" + *e.Content.Description
	}
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

func (f CatalogFilter) matches(c Content) bool {
	return (f.Category == "" || c.Category != nil && *c.Category == f.Category) && (f.Tag == "" || slices.Contains(c.Tags, f.Tag))
}

// beside puts what is installed of an entry beside it.
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
	behind := slices.ContainsFunc(installed, func(i Installation) bool { return i.Origin.Revision != revision })
	t.Behind = &behind
	return t
}
