package svc

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/shelf"
	"github.com/extsvc/svc/internal/tasks"
)

// copyPause is the pause after a copy that failed. The store may be out of reach for long.
const copyPause = 100 * time.Millisecond // after a failed copy

// copyRest sets the pause after copying templates, as a multiple of the time that copying took. So
// a process spends at most a twentieth of the time on copies, however often templates change.
const copyRest = 20

// templateCopies caches the server's templates: one list of all of them, or none.
//
// A goroutine in the background reads a list when a caller wants one. It keeps the list only when
// no template has changed meanwhile. While a call of this process may be changing a template, no
// call uses the list. So a caller that has seen a change, in the answer of any call, never gets an
// answer from an older list.
type templateCopies struct {
	// lists holds at most one list. Its fence refuses a list that was read before the last Clear.
	lists *cache.Cache[struct{}, *templateList]
	// room is the most bytes of a list; 0: nothing is cached.
	room int64
	// writers counts the calls that may be changing a template, from before the write until its
	// outcome is known.
	writers atomic.Int64
	// wanted holds one value when a caller wants a list. More callers want the same list.
	wanted chan struct{}
}

// newTemplateCopies returns an empty cache of so many bytes. It has one entry, so every key hashes
// to 0.
func newTemplateCopies(room int) *templateCopies {
	return &templateCopies{
		lists:  cache.New[struct{}, *templateList](1, func(struct{}) uint64 { return 0 }),
		room:   int64(room),
		wanted: make(chan struct{}, 1),
	}
}

// dropBefore drops the list, and a list that is being read, unless the list is of this generation
// or a later one. A list of that generation already shows the change. To drop it would cost another
// copy.
func (c *templateCopies) dropBefore(generation int64) {
	if list, found := c.lists.Get(struct{}{}); !found || list.generation < generation {
		c.lists.Clear()
	}
}

// want asks the background goroutine to read a list. It never waits: no answer depends on the list.
func (c *templateCopies) want() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// templateReader reads the server's templates, from the cache when it can. In a transaction of the
// host it has no room, so each call reads the store: the cache must not show what is not committed.
type templateReader struct {
	*base
	listed        *templateCopies
	copyTemplates func() // starts the background goroutine, once
}

// newTemplateReader returns a reader that caches templates in so many bytes; 0: none. It follows
// the changes of other processes. Call it before the first use of b: onChange has no lock.
func newTemplateReader(b *base, room int) *templateReader {
	s := &templateReader{base: b, listed: newTemplateCopies(room)}
	b.copies.OnReset(s.listed.lists.Clear)
	b.onChange(func(changed Target, generation int64) {
		if changed.Kind == TargetTemplate {
			s.listed.dropBefore(generation)
		}
	})
	return s
}

// shown drops the list when it disagrees with the store. t is the template that the store returned;
// nil: the store has no such template. The caller may show t to somebody, who must not get the
// older list afterwards. It compares with a fact of the store, so it needs no generation.
func (s *templateReader) shown(id string, t *Template) {
	// A list without rows says only that the templates do not fit: nothing can disagree with that.
	lists := s.listed.lists
	if list, found := lists.Get(struct{}{}); found && list.List != nil && !list.has(id, t) {
		lists.Clear()
	}
}

// templateList returns the cached list of all templates while it is valid. Nil: read the store. A
// caller that gets nil has asked for a list, which a later caller may find. The list is of one
// state of the store, and not older than any answer that this process has given.
func (s *templateReader) templateList() *templateList {
	c := s.listed
	if c.room == 0 {
		return nil
	}
	s.copies.Follow()
	// Count the writers before reading the list: a writer drops the list before it leaves the
	// count.
	if c.writers.Load() > 0 {
		return nil
	}
	v, ok := s.copies.View()
	if !ok {
		return nil
	}
	// A list that is not there is wanted; one that does not hold is about to be dropped.
	list, found := c.lists.Get(struct{}{})
	if !found {
		s.copyTemplates()
		c.want()
		return nil
	}
	// The templates do not fit, or a later change is known that has not dropped the list yet.
	if list.List == nil || !v.Holds(list.generation) {
		return nil
	}
	return list
}

// copiedTemplate returns a template of the list, with its base. It reads the store for a base that
// the list does not have yet, once for each template while the list lasts and has room. The store
// may then have a newer template: that is the answer, and storedTemplate has dropped the list.
func (s *templateReader) copiedTemplate(
	ctx context.Context, l *templateList, id string,
) (Template, error) {
	row := l.Row(id)
	if row == nil {
		return Template{}, noTemplate()
	}
	if row.Origin == nil {
		return *row, nil
	}
	if whole := l.Whole(id); whole != nil {
		return *whole, nil
	}
	t, err := s.storedTemplate(ctx, id)
	if err == nil && t.Origin != nil && l.has(id, &t) {
		l.complete(row, t)
	}
	return t, err
}

// changesTemplates marks the start of a change to templates of the server. Call it before the
// change, and call done when the outcome is known, even a refusal: the refusal may have shown a
// newer template.
//
// done clears the list before it leaves the count. In the other order, a caller between the two
// would find the old list although the change is committed.
func (s *templateReader) changesTemplates() (done func()) {
	c := s.listed
	c.writers.Add(1)
	return func() {
		c.lists.Clear()
		c.writers.Add(-1)
	}
}

// keepTemplates reads the lists that callers want until ctx ends. It reads one at a time and rests
// in between, so that frequent changes do not make it read without end.
func (s *templateReader) keepTemplates(ctx context.Context) {
	for ctx.Err() == nil {
		tasks.Wait(ctx, s.listed.wanted)
		if _, found := s.listed.lists.Get(struct{}{}); found || ctx.Err() != nil {
			continue // a caller wanted the list while it was read
		}
		began := time.Now()
		// The error is not logged: the same fault meets the callers, who read the store meanwhile.
		if err := s.putTemplates(ctx); err != nil {
			tasks.Wait(ctx, time.After(copyPause))
		}
		tasks.Wait(ctx, time.After(copyRest*time.Since(began)))
	}
}

// putTemplates reads the list, and keeps it if no template changed meanwhile. For a list that is
// too large it keeps that fact, so that it is not read again before a template changes.
//
// It asks for the generation before and after. The list is of the state after, because nothing
// between the two concerns templates. A Reset says nothing of what changed, so the list is not
// kept. The fence refuses a list that a writer of this process has cleared meanwhile.
func (s *templateReader) putTemplates(ctx context.Context) error {
	c := s.listed
	fence := c.lists.Fence(struct{}{})
	// MaxInt64 is a generation that no store has: the answer names the present one, and no changes.
	before, err := s.changes(ctx, math.MaxInt64)
	if err != nil {
		return err
	}
	rows, err := shelf.Read(templateRows, c.room, s.storedTemplates(ctx, TemplateQuery{}))
	if err != nil {
		return err
	}
	after, err := s.changes(ctx, before.Generation)
	isTemplate := func(t Target) bool { return t.Kind == TargetTemplate }
	if err != nil || after.Reset || slices.ContainsFunc(after.Targets, isTemplate) {
		return err
	}
	list := &templateList{rows, after.Generation, strconv.Quote(rand.Text())}
	// Answers will show this generation: an older cached value must not follow them.
	s.copies.Hear(after.Generation)
	c.lists.Put(fence, struct{}{}, list)
	return nil
}

// templateBytes estimates the size of a template in a list without its texts: its struct, its
// origin and its index entries.
const templateBytes = 768

// templateList holds the server's templates as they were at one generation, without bases. Readers
// share it. It does not change, apart from the bases that complete adds.
type templateList struct {
	*shelf.List[Template] // nil: the templates do not fit into the room
	generation            int64
	// etag is drawn at random. The generation would not do: after a restore from a backup, it comes
	// again with other templates.
	etag string
}

// templateRows says how a list finds, filters and orders templates. The order is that of the store:
// names and ids byte by byte. Labels are the fields of a TemplateQuery.
var templateRows = &shelf.Rows[Template]{
	ID:   func(t *Template) string { return t.ID },
	Size: func(t *Template) int64 { return t.Content.size() + templateBytes },
	Labels: func(t *Template) (labels []shelf.Label) {
		if t.Category != nil {
			labels = append(labels, shelf.Label{Field: "category", Text: *t.Category})
		}
		for _, tag := range t.Tags {
			labels = append(labels, shelf.Label{Field: "tag", Text: tag})
		}
		return labels
	},
	Compare: func(a, b *Template) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	},
}

// tag returns the list's entity tag, quotes included. "": there is no list, so nothing is known of
// it.
func (l *templateList) tag() string {
	if l == nil {
		return ""
	}
	return l.etag
}

// part yields the rows that a query asks for. It uses the indexes of the list instead of looking at
// every row. The rows are those of the list itself. It checks ctx once for each chunk, as a list
// from the store does.
func (l *templateList) part(ctx context.Context, query TemplateQuery) iter.Seq2[Template, error] {
	part := shelf.Query[Template]{Skip: query.Skip, Limit: query.Limit}
	if query.Category != "" {
		part.Labels = append(part.Labels, shelf.Label{Field: "category", Text: query.Category})
	}
	if query.Tag != "" {
		part.Labels = append(part.Labels, shelf.Label{Field: "tag", Text: query.Tag})
	}
	if query.AfterName != "" || query.AfterID != "" {
		part.After = &Template{Content: Content{Name: query.AfterName}}
		part.After.ID = query.AfterID
	}
	return func(yield func(Template, error) bool) {
		n := 0
		for row := range l.Part(part) {
			if err := ctx.Err(); n%listChunk == 0 && err != nil {
				yield(Template{}, fault("list templates", err))
				return
			}
			if n++; !yield(*row, nil) {
				return
			}
		}
	}
}

// has reports whether the list agrees with the store about a template. t is the template that the
// store has just returned, with its base; nil: the store has no such template. It compares the
// content as well: two processes may stamp a template with the same time. Origin.URL counts,
// because a re-bind changes nothing else.
func (l *templateList) has(id string, t *Template) bool {
	row := l.Row(id)
	if row == nil || t == nil {
		return row == nil && t == nil
	}
	return row.InstalledAt.Equal(t.InstalledAt) && row.UpdatedAt.Equal(t.UpdatedAt) &&
		row.Version == t.Version && row.Content.same(t.Content) &&
		(row.Origin == nil) == (t.Origin == nil) &&
		(t.Origin == nil || row.Origin.URL == t.Origin.URL)
}

// complete adds the base of a template to its row, if the list has room for it. A base that is
// equal to the content shares its memory and needs no room, which is the case for every template
// without edits.
func (l *templateList) complete(row *Template, t Template) {
	origin := *t.Origin
	t.Content, t.Origin = row.Content, &origin // shares memory
	if origin.Base.same(t.Content) {
		origin.Base = t.Content
		l.Complete(&t, 0)
		return
	}
	l.Complete(&t, origin.Base.size())
}

// storedTemplate reads a template of the server from the store, with its base. What it returns
// counts as shown: the list must agree with it from now on. Errors: CodeNotFound and faults of the
// store.
func (s *templateReader) storedTemplate(ctx context.Context, id string) (Template, error) {
	template, err := s.store.Template(ctx, serverTemplate(id))
	switch {
	case errors.Is(err, ErrNotFound):
		s.shown(id, nil)
		return Template{}, noTemplate()
	case err != nil:
		return Template{}, fault("read template", err)
	}
	s.shown(id, &template)
	return template, nil
}

// storedTemplates lists templates of the server from the store. The store leaves out query.Skip
// rows of the first chunk alone; the later chunks start after a row. A chunk may be short, because
// stores limit its bytes.
func (s *templateReader) storedTemplates(
	ctx context.Context, query TemplateQuery,
) iter.Seq2[Template, error] {
	page := TemplatePage{Scope: ScopeServer, TemplateQuery: query}
	page.Limit = chunkOf(query.Limit)
	return upTo(query.Limit, list(ctx, "list templates", anyLength,
		func() error { return nil },
		func() ([]Template, error) { return s.store.Templates(ctx, page) },
		func(last Template) { page.AfterName, page.AfterID, page.Skip = last.Name, last.ID, 0 }))
}
