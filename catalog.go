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
	Entries   []CatalogEntry   // the good ones, in the order of the file; their ids are unique
	Problems  []CatalogProblem // the bad ones, in the order of the file
	FetchedAt time.Time        // when the source gave it, or confirmed it, last
	Failure   error            // why the source could not be asked since; nil: it was not needed, or has just been
}

// CatalogEntry is a template that a source offers.
type CatalogEntry struct {
	Index        int     // in the file's templates, from 0
	ID           string  // never ""
	Content      Content // its lists not nil; its Manifest nil when that is in a file, and not known without asking for it
	ManifestFile string  // the path of the manifest, relative to the source and decoded; "" when it is inline
}

// CatalogProblem is an entry that cannot be installed.
type CatalogProblem struct {
	Index  int    // in the file's templates, from 0
	ID     string // "" when it has none that can be read
	Reason string // a sentence fragment for a person, such as "name is missing"
}

// SourceTemplates is what a source of the server offers, beside what is installed of it.
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

// SourceTemplates lists what a source of the server offers, from a copy of its catalogue that is at most a minute old; else the source is
// asked. When it cannot be asked, its last good catalogue is listed, and said to be stale. Manifests that are files of their
// own are not asked for: what is wrong with one shows when it is installed. What is returned is not to be changed.
// Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeSourceFailed, CodeSourceTimeout.
func (s *Service) SourceTemplates(ctx context.Context, by Principal, name string, filter TemplateFilter) (SourceTemplates, error) {
	if err := errors.Join(checkID("name", name), filter.check()); err != nil {
		return SourceTemplates{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return SourceTemplates{}, err
	}
	key := SourceKey{Scope: ScopeServer, Name: name}
	up, err := s.upstream(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return SourceTemplates{}, noSource()
	} else if err != nil {
		return SourceTemplates{}, err
	}
	catalog, err := s.catalog(ctx, up)
	if err != nil {
		return SourceTemplates{}, err
	}
	installed, err := s.installedFrom(ctx, by, key)
	if err != nil {
		return SourceTemplates{}, err
	}
	return s.browse(catalog, installed, filter), nil
}

// catalog returns what a source offers.
func (s *Service) catalog(ctx context.Context, up Upstream) (Catalog, error) {
	if s.config.Marketplace == nil {
		return Catalog{}, takesNoSources()
	}
	catalog, err := s.config.Marketplace.Catalog(ctx, up, browseAge)
	if err != nil {
		return Catalog{}, sourceFault(up, err)
	}
	if catalog.Failure != nil {
		s.config.Logger.WarnContext(ctx, "svc: a source cannot be asked, its last good catalogue is listed",
			"source", up.Source.Name, "fetched_at", catalog.FetchedAt, "error", up.Token.hideIn(catalog.Failure))
	}
	return catalog, nil
}

// installation is a template of the server that came from a source.
type installation struct{ id, revision string }

// installedFrom returns the server's templates that came from a source, by their id within it.
func (s *Service) installedFrom(ctx context.Context, by Principal, source SourceKey) (map[string][]installation, error) {
	installed := map[string][]installation{}
	for t, err := range s.Templates(ctx, by, TemplateFilter{}) {
		if err != nil {
			return nil, err
		}
		if t.Origin != nil && t.Origin.Source == source {
			installed[t.Origin.ID] = append(installed[t.Origin.ID], installation{t.ID, t.Origin.Revision})
		}
	}
	return installed, nil
}

// browse judges the entries of a catalogue as an installation would, and those that the filter lets through by what is installed.
func (s *Service) browse(catalog Catalog, installed map[string][]installation, filter TemplateFilter) SourceTemplates {
	list := SourceTemplates{
		Templates: []SourceTemplate{}, Bad: slices.Clone(catalog.Problems),
		FetchedAt: catalog.FetchedAt.UTC().Truncate(time.Microsecond), Stale: catalog.Failure != nil,
	}
	for _, entry := range catalog.Entries {
		if reason := s.entryProblem(entry); reason != "" {
			list.Bad = append(list.Bad, CatalogProblem{Index: entry.Index, ID: entry.ID, Reason: reason})
		} else if filter.matches(entry.Content) {
			list.Templates = append(list.Templates, beside(entry, installed[entry.ID]))
		}
	}
	slices.SortFunc(list.Bad, func(a, b CatalogProblem) int { return a.Index - b.Index })
	return list
}

// entryProblem says why a good entry cannot be installed here, as far as that is known; "" it can.
func (s *Service) entryProblem(entry CatalogEntry) string {
	var c checker
	c.id("id", entry.ID)
	if entry.Content.Name == "" {
		c.add("/name", "is required")
	}
	entry.Content.checkTexts(&c)
	if entry.Content.Manifest != nil {
		_, problem := s.checkManifest(entry.Content.Manifest)
		c.check(problem)
	}
	first, is := errors.AsType[*Error](c.err())
	if !is {
		return ""
	}
	return strings.ReplaceAll(strings.TrimPrefix(first.Field, "/"), "/", ".") + " " + first.Message
}

func (f TemplateFilter) matches(c Content) bool {
	return (f.Category == "" || c.Category != nil && *c.Category == f.Category) && (f.Tag == "" || slices.Contains(c.Tags, f.Tag))
}

// beside puts what is installed of an entry beside it.
func beside(entry CatalogEntry, installed []installation) SourceTemplate {
	t := SourceTemplate{CatalogEntry: entry, InstalledAs: []string{}}
	for _, i := range installed {
		t.InstalledAs = append(t.InstalledAs, i.id)
	}
	slices.Sort(t.InstalledAs)
	if len(installed) == 0 || entry.Content.Manifest == nil {
		return t
	}
	revision, err := entry.Content.Revision()
	if err != nil {
		return t
	}
	behind := slices.ContainsFunc(installed, func(i installation) bool { return i.revision != revision })
	t.Behind = &behind
	return t
}
