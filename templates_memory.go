package svc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/listcache"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/readcache"
)

// keptTemplates is the default of Config.Memory.Templates.
const keptTemplates = 32 << 20

// templateReader reads templates, those of the server from memory when it can. The reader of the
// personal half keeps nothing, so each call reads the store. The reader of a host's transaction
// keeps nothing either: the cache must not show what is not committed.
type templateReader struct {
	*base
	kept   *listcache.Cache[keptTemplate] // nil: nothing is kept
	follow func()                         // starts the background work of kept, once
	// left is the room for bases in bytes.
	left atomic.Int64
}

// newTemplateReader returns a reader that keeps templates in so many bytes, as
// [Memory].Templates says. It follows the changes of other processes. Call it before the first
// use of b: onChange has no lock.
func newTemplateReader(b *base, room int) *templateReader {
	s := &templateReader{base: b}
	room = cmp.Or(room, keptTemplates)
	if room < 0 || b.inTransaction {
		return s
	}
	s.kept = listcache.New(templateRows, listcache.Store[keptTemplate](storedRows{s}), int64(room))
	s.left.Store(int64(room) / 2)
	b.cached.OnReset(func() {
		s.kept.Clear()
		s.follow() // not before the first look at the store, which is a reset
	})
	b.onChange(func(changed Target, generation int64) {
		if changed.Kind == event.TargetTemplate && changed.Scope == ScopeServer {
			s.kept.Changed(generation)
		}
	})
	return s
}

// bytes estimates the memory of the kept templates.
func (s *templateReader) bytes() int64 {
	if s.kept != nil {
		if state := s.kept.State(); state != nil {
			return state.List.Bytes()
		}
	}
	return 0
}

// templateList returns the list of all templates. Nil: read the store. The list is of one state of
// the store, and not older than any answer that this process gave before the call. While the kept
// list is in doubt, templateList asks the store what has changed, and reads that again.
func (s *templateReader) templateList(ctx context.Context) *templateList {
	if s.kept == nil || s.kept.Full() {
		return nil
	}
	s.cached.Follow()
	v, fresh := s.cached.View() // before looking at the list
	list := s.kept.State()
	switch {
	case list == nil:
		s.kept.Want()
	case fresh && v.Holds(list.Generation) && s.kept.Certain(list):
		s.kept.Ahead(list, v.Generation)
	default:
		list = s.kept.Renew(ctx, list)
	}
	return (*templateList)(list)
}

// doubt puts the kept list in doubt: a caller has seen, or may have seen, a later state.
func (s *templateReader) doubt() {
	if s.kept != nil {
		s.kept.Doubt()
	}
}

// shown casts doubt on the list when it disagrees with the store. t is the template that the store
// returned; nil: the store has no such template. The caller may show t to somebody, who must not
// get the older list afterwards. A list that is being read may be older than t.
func (s *templateReader) shown(id string, t *Template) {
	if s.kept == nil {
		return
	}
	if list := s.kept.State(); list == nil || !list.List.Row(id).same(t) {
		s.kept.Doubt()
	}
}

// copiedTemplate returns a template of the list, with its base. It reads the store for a base that
// the list does not have yet, once for each template while there is room. The store may then have a
// newer template: that is the answer, and storedTemplate has put the list in doubt.
func (s *templateReader) copiedTemplate(
	ctx context.Context, l *templateList, id string,
) (Template, error) {
	row := l.List.Row(id)
	if row == nil {
		return Template{}, noTemplate()
	}
	if row.Origin == nil {
		return row.Template, nil
	}
	if whole := row.whole.Load(); whole != nil {
		return *whole, nil
	}
	t, err := s.storedTemplate(ctx, row.TemplateKey)
	if err == nil && row.same(&t) {
		row.complete(t, &s.left)
	}
	return t, err
}

// changesTemplates marks the start of a change to templates of the server. Call it before the
// change, and call done when the outcome is known, even a refusal: the refusal may have shown a
// newer template.
func (s *templateReader) changesTemplates() (done func()) {
	if s.kept == nil {
		return func() {}
	}
	return s.kept.Begin()
}

// storedRows is the store as the list of templates reads it.
type storedRows struct{ *templateReader }

func (s storedRows) Changes(ctx context.Context, since int64) (listcache.Changes, error) {
	next, err := s.changes(ctx, since)
	if err != nil {
		return listcache.Changes{}, err
	}
	// Answers will show this generation: an older cached value must not follow them.
	s.cached.Hear(next.Generation)
	changes := listcache.Changes{Generation: next.Generation, Reset: next.Reset}
	for _, t := range next.Targets {
		if t.Kind == event.TargetTemplate && t.Scope == ScopeServer {
			changes.Add(t.ID)
		}
	}
	return changes, nil
}

func (s storedRows) Row(ctx context.Context, id string) (*keptTemplate, error) {
	t, err := s.store.Template(ctx, place{scope: ScopeServer}.template(id))
	if noRow(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	row := keep(t)
	row.complete(t, new(atomic.Int64)) // if the base needs no room
	return row, nil
}

func (s storedRows) Rows(ctx context.Context) iter.Seq2[*keptTemplate, error] {
	return func(yield func(*keptTemplate, error) bool) {
		for t, err := range s.storedTemplates(ctx, place{scope: ScopeServer}, TemplateQuery{}) {
			if !yield(keep(t), err) {
				return
			}
		}
	}
}

// keptTemplate is a row of a list. Readers share it.
type keptTemplate struct {
	Template                          // without its base
	whole    atomic.Pointer[Template] // with it; nil: not read yet, or there is no room
	digested sync.Once
	sum      [sha256.Size]byte
}

// keep returns a row of a template.
func keep(t Template) *keptTemplate {
	if t.Origin != nil {
		origin := *t.Origin
		origin.Base, t.Origin = Content{}, &origin
	}
	return &keptTemplate{Template: t}
}

// same reports whether a row agrees with the store about a template. t is the template that the
// store has just returned; nil: the store has no such template. A nil row is none. It compares the
// content as well: two processes may stamp a template with the same time. Origin.URL counts,
// because a re-bind changes nothing else.
func (r *keptTemplate) same(t *Template) bool {
	if r == nil || t == nil {
		return r == nil && t == nil
	}
	return r.InstalledAt.Equal(t.InstalledAt) && r.UpdatedAt.Equal(t.UpdatedAt) &&
		r.Version == t.Version && r.Content.same(t.Content) &&
		(r.Origin == nil) == (t.Origin == nil) &&
		(t.Origin == nil || r.Origin.URL == t.Origin.URL)
}

// digest returns a digest of the template: of all that same compares.
func (r *keptTemplate) digest() [sha256.Size]byte {
	r.digested.Do(func() {
		texts := [][]string{{r.ID, r.Name}, r.Integrations, r.Tags}
		for _, text := range []*string{r.Description, r.Category} {
			var one []string
			if text != nil {
				one = []string{*text}
			}
			texts = append(texts, one)
		}
		if o := r.Origin; o != nil {
			texts = append(texts, []string{string(o.Source.Scope), o.Source.Owner, o.Source.Name},
				[]string{o.ID, o.URL, o.Revision})
		}
		all := sha256.New()
		fmt.Fprintf(all, "%s %d %q", r.ETag(), r.Version, texts)
		all.Write(r.Manifest)
		all.Sum(r.sum[:0])
	})
	return r.sum
}

// complete adds the base of t, the same template, if its bytes are left. The row gives them back
// when nobody has it any longer. A base that is equal to the content shares its memory and needs
// no room, which is the case for every template without edits.
func (r *keptTemplate) complete(t Template, left *atomic.Int64) {
	if t.Origin == nil {
		return
	}
	origin, bytes := *t.Origin, int64(0)
	t.Content, t.Origin = r.Content, &origin // shares memory
	if origin.Base.same(t.Content) {
		origin.Base = t.Content
	} else {
		bytes = max(1, origin.Base.size())
	}
	if left.Add(-bytes) < 0 || !r.whole.CompareAndSwap(nil, &t) {
		left.Add(bytes)
	} else if bytes > 0 {
		runtime.AddCleanup(r, func(bytes int64) { left.Add(bytes) }, bytes)
	}
}

// templateBytes estimates the size of a template in a list without its texts: its struct, its
// origin and its index entries.
const templateBytes = 1024

// templateRows says how a list finds, filters and orders templates. The order is that of the store:
// names and ids byte by byte. Labels are the fields of a TemplateQuery.
var templateRows = &listcache.Rows[keptTemplate]{
	ID:     func(t *keptTemplate) string { return t.ID },
	Size:   func(t *keptTemplate) int64 { return t.Content.size() + templateBytes },
	Same:   func(a, b *keptTemplate) bool { return a.same(&b.Template) },
	Digest: (*keptTemplate).digest,
	Labels: func(t *keptTemplate) (labels []listcache.Label) {
		if t.Category != nil {
			labels = append(labels, listcache.Label{Field: "category", Text: *t.Category})
		}
		for _, tag := range t.Tags {
			labels = append(labels, listcache.Label{Field: "tag", Text: tag})
		}
		return labels
	},
	Has: func(t *keptTemplate, label listcache.Label) bool {
		if label.Field == "tag" {
			return slices.Contains(t.Tags, label.Text)
		}
		return t.Category != nil && *t.Category == label.Text
	},
	Compare: func(a, b *keptTemplate) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	},
}

// templateList holds the server's templates as they were at one generation, without bases.
type templateList listcache.State[keptTemplate]

// tag returns the list's entity tag, quotes included. "": there is no list, so nothing is known of
// it.
func (l *templateList) tag() string {
	if l == nil {
		return ""
	}
	return l.List.Tag()
}

// part yields the rows that a query asks for. It uses the indexes of the list instead of looking at
// every row. The rows are those of the list itself.
func (l *templateList) part(ctx context.Context, query TemplateQuery) iter.Seq2[Template, error] {
	part := listcache.Query[keptTemplate]{Skip: query.Skip, Limit: query.Limit}
	if query.Category != "" {
		part.Labels = append(part.Labels, listcache.Label{Field: "category", Text: query.Category})
	}
	if query.Tag != "" {
		part.Labels = append(part.Labels, listcache.Label{Field: "tag", Text: query.Tag})
	}
	if query.AfterName != "" || query.AfterID != "" {
		part.After = &keptTemplate{Template: Template{Content: Content{Name: query.AfterName}}}
		part.After.ID = query.AfterID
	}
	return func(yield func(Template, error) bool) {
		for row := range l.List.Part(part) {
			if err := ctx.Err(); err != nil {
				yield(Template{}, fault("list templates", err))
				return
			}
			if !yield(row.Template, nil) {
				return
			}
		}
	}
}

// storedTemplate reads a template from the store, with its base. The template that it returns
// counts as shown: no older list may follow. Errors: CodeNotFound and faults of the store.
func (s *templateReader) storedTemplate(ctx context.Context, key TemplateKey) (Template, error) {
	template, err := s.store.Template(ctx, key)
	switch {
	case noRow(err):
		s.shown(key.ID, nil)
		return Template{}, noTemplate()
	case err != nil:
		return Template{}, fault("read template", err)
	}
	s.shown(key.ID, &template)
	return template, nil
}

// storedTemplates lists templates of an area from the store. The store leaves out query.Skip rows
// of the first chunk only; the later chunks start after a row. A chunk may be short, because
// stores limit its bytes. The list in memory is in doubt after each chunk: the caller may show it.
func (s *templateReader) storedTemplates(
	ctx context.Context, at place, query TemplateQuery,
) iter.Seq2[Template, error] {
	page := TemplatePage{Scope: at.scope, Owner: at.owner, TemplateQuery: query}
	page.Skip, page.Limit = skipOf(query.Skip), chunkOf(query.Limit)
	return lists.Take(query.Limit, lists.Chunks(ctx, page, anyLength, doing("list templates"), nil,
		func(page TemplatePage) ([]Template, error) {
			defer s.doubt()
			return s.store.Templates(ctx, page)
		},
		func(page *TemplatePage, last Template) {
			page.AfterName, page.AfterID, page.Skip = last.Name, last.ID, 0
		}))
}

// maxInstalled limits the bytes of the cached sources of all templates. Above it, each check and
// each list of offers reads all installations from the store.
const maxInstalled = 64 << 20

// installedCache knows which templates came from which source. It caches those of the server until
// one of them changes.
type installedCache struct {
	*base
	kept *readcache.One[*installed]
}

// installed holds the templates of an area that came from sources. It does not change, so callers
// share it, and a checkCache recognizes its lists.
type installed struct {
	count int
	// Each list is in order of id and not empty. A source may have been removed since.
	bySource map[SourceKey][]Installation
}

// newInstalls returns a cache that follows the changes of templates, those of other processes
// included. Call it before the first use of b: onChange has no lock.
func newInstalls(b *base) *installedCache {
	// The revision and the URL of each template are most of it.
	size := func(all *installed) int64 { return cache.Size(all.bySource) }
	i := &installedCache{b, readcache.NewOne(b.cached, maxInstalled, size)}
	b.onChange(func(changed Target, _ int64) {
		if changed.Kind == event.TargetTemplate && changed.Scope == ScopeServer {
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
	for i, err := range lists.Chunks(ctx, page, page.Limit, doing("list installations"), nil,
		func(page InstallationPage) ([]Installation, error) { return s.store.Installations(ctx, page) },
		func(page *InstallationPage, last Installation) { page.After = last.ID }) {
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
