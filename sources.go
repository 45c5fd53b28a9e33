package svc

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/limits"
)

// SourceKey names a source. Its three fields together are unique. Owner is "" exactly when Scope is
// ScopeServer.
type SourceKey struct {
	Scope Scope
	Owner string
	Name  string
}

// Target returns the source as the target of events and change feeds.
func (k SourceKey) Target() Target {
	return Target{Kind: event.TargetSource, ID: k.Name, Scope: k.Scope, Owner: k.Owner}
}

// locks returns the locks of a change that removes a personal source or relies on it, or adds to the
// area of its owner; none for a source of the server.
func (k SourceKey) locks() Locks {
	return place{scope: k.Scope, owner: k.Owner}.locks()
}

// scoped is one of the two halves of sources and templates: those of the server, or the personal
// ones.
type scoped struct {
	*authorizer
	personal bool
}

// admit returns the area that the caller may use in this half. The caller needs action in the
// personal half, and [action.TemplateAdmin] in that of the server.
func (s *scoped) admit(ctx context.Context, by Principal, action string) (place, error) {
	if s.personal {
		return s.own(ctx, by, action)
	}
	action = s.need(action)
	return place{scope: ScopeServer, basis: basis{action: action}}, s.authorize(ctx, by, action)
}

// need returns the action that a caller needs in this half: personal is that of the personal one.
func (s *scoped) need(personal string) string {
	if s.personal {
		return personal
	}
	return action.TemplateAdmin
}

// source returns the key of a source of the area.
func (a place) source(name string) SourceKey { return SourceKey{a.scope, a.owner, name} }

// Source is a trusted address from which templates can be installed. It belongs to the caller.
// [Sources.Patch] changes its description and its token; its address and signing key never change.
type Source struct {
	SourceKey
	URL         string  // the base URL: the catalogue is URL/templates.json
	Description *string // nil: none, which is not the same as ""
	// SealedToken is the access token, encrypted for this row and URL only. Nil: none. A host that
	// shows sources shows HasAuth instead.
	SealedToken []byte
	// SigningKey is the Ed25519 public key (RFC 8032) whose signature the catalogue must carry.
	// Nil: the catalogue needs no signature.
	SigningKey []byte
	// Serial is the greatest serial of the accepted signed catalogues. Every process refuses a
	// lesser one. 0: none was accepted.
	Serial int64
	// CreatedAt, in UTC to the microsecond, identifies the registration: a second one under the
	// same name is another source.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// HasAuth reports whether requests to the source carry an access token.
func (s Source) HasAuth() bool { return len(s.SealedToken) > 0 }

// NewSource is the request to trust a source.
type NewSource struct {
	URL   string  // the base address, at most [limits.URLLength] characters; required
	Alias *string // the source's name; nil: derived from URL, see [Sources.Register]
	// AuthToken is sent to the source as a bearer token (RFC 6750): 1 to [limits.SourceTokenLength]
	// characters of visible ASCII. Nil: none.
	AuthToken *Secret
	// SigningKey is the Ed25519 public key, 32 bytes, whose signature the source's catalogue must
	// carry from now on. Nil: the catalogue needs no signature.
	SigningKey  []byte
	Description *string // at most [limits.DescriptionLength] characters; nil: none
}

// SourcePatch changes some fields of a source. A nil field stays unchanged.
type SourcePatch struct {
	AuthToken   *SecretPatch // replaces the token, as in [NewSource]; a nil Value removes it
	Description *TextPatch
}

// SecretPatch is a new value for a [Secret] that may be null, as [TextPatch] is for a text.
type SecretPatch struct{ Value *Secret }

// noSource does not repeat the requested name, and is the same for a source that the caller may not
// see.
func noSource() *Error { return notFound("there is no such source") }

// binding ties a sealed token to its row. The token does not open in another row or with another
// URL, so a writer of the database cannot send it to their own address. No part contains the
// separator.
func (s Source) binding() []byte {
	parts := []string{"source-token", string(s.Scope), s.Owner, s.Name, s.URL}
	return []byte(strings.Join(parts, "\x00"))
}

// Compare orders by scope, owner and name, byte by byte, as package cmp does.
func (k SourceKey) Compare(other SourceKey) int {
	return cmp.Or(
		cmp.Compare(k.Scope, other.Scope),
		cmp.Compare(k.Owner, other.Owner),
		cmp.Compare(k.Name, other.Name),
	)
}

// Marketplace fetches templates from sources. Package marketplace has an implementation for the web
// and for file systems. The Service calls all methods concurrently, also for one source. It checks
// what they return as the input of a caller, and masks the source's token in their errors. The
// methods bound their own time and the size of what they read: the Service waits for them as long
// as ctx allows.
type Marketplace interface {
	// CheckURL refuses a source's URL that is malformed or forbidden. It sends no request. The
	// caller sees the error's text.
	CheckURL(url string) error
	// Template asks the source for the template with this id in its catalogue, with its manifest,
	// and uses no copy. Errors are [*Error] with CodeNotFound (the catalogue has no such entry; it
	// wraps a [*RenamedError] when the template has another id), CodeSourceFailed (the source is
	// unreachable, answers badly, or the entry is bad), CodeSourceTimeout or CodeUnavailable. The
	// caller sees their Message. Any other error counts as CodeSourceFailed, and no caller sees it.
	Template(ctx context.Context, from Upstream, id string) (Content, error)
	// Catalog returns what the source offers, from a copy that is not older than maxAge, else from
	// the source. If that fails, Catalog returns an older copy, if it has one, with Failure set. It
	// asks for no manifest. Errors are those of Template, without CodeNotFound.
	Catalog(ctx context.Context, from Upstream, maxAge time.Duration) (Catalog, error)
	// Manifest returns the manifest of a catalogue entry that names a file for it. It uses a copy
	// when the entry's ManifestDigest shows that it is still good, else it asks the source. Errors
	// are those of Template, without CodeNotFound.
	Manifest(ctx context.Context, from Upstream, entry CatalogEntry) (json.RawMessage, error)
}

// SourceChecker is an optional role of a [Marketplace] that allows other addresses for the sources
// of users than for those of the server. The Service then calls CheckSource in place of CheckURL.
type SourceChecker interface {
	// CheckSource is CheckURL for a source with this key. Its Name may be "": not known yet.
	CheckSource(source SourceKey, url string) error
}

// Upstream tells a [Marketplace] how to ask a source. A Marketplace must not share an answer
// between two Upstreams that differ in Source, URL, Token, Registered or SigningKey: what one
// caller may read, another may not.
type Upstream struct {
	Source     SourceKey
	URL        string
	Token      Secret            // "": none
	Registered time.Time         // another registration under the same name is another source
	SigningKey ed25519.PublicKey // the key that must sign the catalogue; nil: no signature needed
	Serial     int64             // the greatest serial of the accepted signed catalogues; 0: none
	Memory     SourceMemory      // nil: none
}

// SourceMemory is where a [Marketplace] keeps the answers of one registered source, so that they
// outlive the process. Its methods may be called concurrently, and also by requests whose caller no
// longer waits.
type SourceMemory interface {
	// File returns the data kept under a path. Nil: no data is kept, or it cannot be read just now.
	File(ctx context.Context, path string) []byte
	// KeepFile keeps data under a path, if it can. The path of the catalogue is "".
	KeepFile(ctx context.Context, path string, data []byte)
	// AcceptSerial records the serial of a signed catalogue, unless a greater one is recorded. It
	// returns the greatest serial. ErrNotFound: the source was removed.
	AcceptSerial(ctx context.Context, serial int64) (greatest int64, err error)
}

// Catalog is the catalogue of a source. Each entry of its file is in exactly one of the two lists.
// Callers share it and must not change it.
type Catalog struct {
	Revision  string            // of the file: equal for files that say the same; "": not known
	Entries   []CatalogEntry    // the good entries, in the order of the file; their ids are unique
	Problems  []CatalogProblem  // the bad entries, in the order of the file
	Renames   map[string]string // former ids and those that followed, maybe former too; no cycle
	Serial    int64             // of a signed catalogue, grows with each; 0: not signed
	Expires   time.Time         // of a signed catalogue; zero: never
	FetchedAt time.Time         // when the source last gave or confirmed the catalogue
	Failure   error             // why it could not be asked since FetchedAt; nil: not asked, or good
}

// RenamedError says under which id a source offers a template that had another id there. A
// [Marketplace] wraps it in its CodeNotFound.
type RenamedError struct{ ID string }

// Error implements error.
func (e *RenamedError) Error() string { return "the template is now " + quote(e.ID) }

// Renamed returns the id under which the catalogue offers what had an id that it does not offer, by
// at most 100 renames. "": none.
func (c Catalog) Renamed(id string) string { return c.renamed(id, c.offered()) }

// maxRenamed is how many renames of one template are followed.
const maxRenamed = 100

// renamed returns the first of the offered ids that follow one that is not offered. "": none.
func (c Catalog) renamed(id string, offered map[string]*CatalogEntry) string {
	for range maxRenamed {
		if id = c.Renames[id]; id == "" {
			return ""
		}
		if _, found := offered[id]; found {
			return id
		}
	}
	return ""
}

// follow adds what was installed under former ids to the ids that are offered now, in byte order.
func (c Catalog) follow(by map[string][]Installation) {
	offered := c.offered()
	for id, from := range by {
		_, found := offered[id]
		if now := c.renamed(id, offered); !found && now != "" {
			by[now] = slices.SortedFunc(slices.Values(append(by[now], from...)),
				func(a, b Installation) int { return strings.Compare(a.ID, b.ID) })
		}
	}
}

// offered returns the entries by their ids; nil: a bad one. Without renames it returns nothing.
func (c Catalog) offered() map[string]*CatalogEntry {
	if len(c.Renames) == 0 {
		return nil
	}
	by := make(map[string]*CatalogEntry, len(c.Entries)+len(c.Problems))
	for _, p := range c.Problems {
		by[p.ID] = nil
	}
	for i := range c.Entries {
		by[c.Entries[i].ID] = &c.Entries[i]
	}
	return by
}

// CatalogEntry is a template that a source offers. Its form is good: [Sources.Browse] and
// [Templates.Install] check the content.
type CatalogEntry struct {
	Index int    // in the file's templates, from 0
	ID    string // never ""
	// Content has lists that are not nil. Its Manifest is nil when it is in its own file and not
	// known.
	Content      Content
	ManifestFile string // its path, relative to the source and decoded; "": inline
	// ManifestDigest is "sha256:" and the hex SHA-256 of the manifest's canonical form (RFC 8785).
	// "": the catalogue does not say.
	ManifestDigest string
}

// with returns an entry together with what is installed from it. Without the manifest at hand, or
// when nothing is installed, Behind stays nil: unknown is not false.
func (e CatalogEntry) with(installed []Installation) SourceTemplate {
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
	t.Behind = new(slices.ContainsFunc(installed, func(i Installation) bool {
		return i.Origin.Revision != revision
	}))
	return t
}

// CatalogProblem is an entry that cannot be installed.
type CatalogProblem struct {
	Index  int    // in the file's templates, from 0
	ID     string // "": the entry has no readable id
	Reason string // a sentence fragment for a person, such as "name is missing"
}

// SourceTemplates lists what a source offers, and what is installed from it.
type SourceTemplates struct {
	Templates []SourceTemplate // the templates that can be installed, in the order of the catalogue
	Bad       []CatalogProblem // those that cannot, likewise; the filter does not narrow it
	FetchedAt time.Time        // when the source last gave or confirmed its catalogue
	Stale     bool             // the source could not be asked just now
}

// SourceTemplate is a template of a source.
type SourceTemplate struct {
	CatalogEntry
	InstalledAs []string // ids of the templates from it or a former id, in byte order; not nil
	// Behind reports whether one of those templates has another revision than the source. Nil: none
	// is installed, or the manifest is in a file that has not been asked for.
	Behind *bool
}

// CatalogFilter narrows a list of what sources offer. An entry must match all fields that are not
// "".
type CatalogFilter struct {
	Category string // the entry's category
	Tag      string // one of the entry's tags
	Text     string // words: each must be in the id, name or description; case does not matter
}

// SourceListing lists what one of several sources offers.
type SourceListing struct {
	Source SourceKey
	SourceTemplates
	Problem string // why the source has no list: a sentence for a person; "": it has one
}

// maxSearch limits the memory of the lists of one search, in bytes.
const maxSearch = 32 << 20

// fit takes the memory of a list from the room that a search has left. A list that does not fit is
// dropped: a hundred sources may offer 100,000 templates each.
func (l *SourceListing) fit(room *atomic.Int64) error {
	size := cache.Size(l.SourceTemplates)
	for left := room.Load(); size <= left; left = room.Load() {
		if room.CompareAndSwap(left, left-size) {
			return nil
		}
	}
	l.SourceTemplates = SourceTemplates{}
	return &Error{
		Code: CodeSourceFailed,
		Message: "source " + quote(l.Source.Name) + " offers too much for a search of all" +
			" sources: list this source alone, or search for other words",
	}
}

func (f CatalogFilter) check() error {
	var c checker
	c.filter(f.Category, f.Tag)
	c.text("q", f.Text, limits.NameLength)
	return c.err()
}

// says reports whether an entry contains all words, which are in lower case, in any order and
// anywhere, also within longer words. The line breaks keep a word from running over two fields. No
// words: every entry.
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

// labelled reports whether a content has a category and a tag, byte by byte, as a store compares
// them for [TemplateQuery]. "" matches every content.
func labelled(c Content, category, tag string) bool {
	return (category == "" || c.Category != nil && *c.Category == category) &&
		(tag == "" || slices.Contains(c.Tags, tag))
}

// entryProblem returns why a good entry cannot be installed on this server, as far as that is known
// without its manifest file. "": it can.
func (s *contentChecker) entryProblem(entry CatalogEntry) string {
	var c checker
	c.id("id", entry.ID)
	entry.Content.checkHead(&c)
	if entry.Content.Manifest != nil {
		s.validate(&c, c.manifest(entry.Content.Manifest))
	}
	if c.ok() {
		return ""
	}
	return c.errs[0].sentence()
}

// SourcePage asks for one chunk of a list of sources.
type SourcePage struct {
	Scope Scope
	Owner string
	After string // the last name of the previous chunk; "" from the start
	Limit int    // the most sources to return, > 0
	// Every asks for the sources of all scopes and owners, as [SourceKey.Compare] sorts them,
	// behind the source of Scope, Owner and After; all "": from the start.
	Every bool
}

// SourceFile is an answer of a source, as a [Marketplace] keeps it. Only the Marketplace can read
// its Data.
type SourceFile struct {
	Path   string // relative to the source; "": its catalogue
	Data   []byte
	KeptAt time.Time
}

// SourceFileStore is an optional role: it keeps answers of sources. Without it a process asks each
// source once more after its start.
type SourceFileStore interface {
	// KeepSourceFile keeps an answer of a source, and replaces what was kept under its path. It is
	// not a mutation. Of each source the store keeps the file with the path "" and the
	// [limits.SourceFiles] other files with the latest KeptAt. All are deleted with the source.
	// ErrNotFound when the source is not registered.
	KeepSourceFile(ctx context.Context, key SourceKey, file SourceFile) error
	// SourceFile returns the file kept under that path. ErrNotFound.
	SourceFile(ctx context.Context, key SourceKey, path string) (SourceFile, error)
}

// Installation says where a template came from, without its content.
type Installation struct {
	ID     string // of the template
	Origin Origin // its Base is zero
}

// InstallationPage asks for one chunk of a list of installations.
type InstallationPage struct {
	Scope Scope
	Owner string
	After string // the last id of the previous chunk; "" from the start
	Limit int    // the most installations to return, > 0
}

// ErrBadEntry marks a [Marketplace]'s error about one entry of a catalogue, or its manifest. It is
// in the error's tree. The source itself works, so [event.SourceFailing] is not reported.
var ErrBadEntry = errors.New("bad entry")

// ErrSourceWaits marks a [Marketplace]'s error about an answer that it did not read because it was
// reading too many others. It is in the error's tree. The source itself works, and calls that ask
// several sources go on with the others.
var ErrSourceWaits = errors.New("too many answers of sources are being read")

// byEntry groups installations by the id of the catalogue entry that they came from, in order of
// id. One entry may be installed under several aliases.
func byEntry(list []Installation) map[string][]Installation {
	by := make(map[string][]Installation, len(list))
	for _, i := range list {
		by[i.Origin.ID] = append(by[i.Origin.ID], i)
	}
	return by
}

// unbound returns why a template of scope at is not bound to the source that now has the name of
// its source. Nil: it is bound. A template of the server never follows a second registration of a
// personal source, whose name and owner's id may be another person's by then: the store takes the
// URL from its origin when the first is removed.
func (o *Origin) unbound(at Scope, up Upstream) *Error {
	switch {
	case o.URL == up.URL:
		return nil
	case o.URL == "" && o.Source.Scope == ScopePersonal:
		return sourceGone(o)
	}
	return sourceMoved(o, up, o.Source.Scope == at)
}

func sourceGone(origin *Origin) *Error {
	return notFound("the source " + quote(origin.Source.Name) +
		", from which this template came, is no longer registered")
}

// sourceMoved returns the error for a template whose source is now registered at another URL. own
// reports whether the source is of the template's half, so that [Sources.Rebind] can bind it.
func sourceMoved(origin *Origin, up Upstream, own bool) *Error {
	was, then := cmp.Or(origin.URL, "an unknown address"), "re-bind the source if that is right"
	if !own {
		then = "delete the template and install it again if that is right"
	}
	return &Error{
		Code: CodeSourceMoved,
		Message: "this template came from " + was + ", but the source " + quote(up.Source.Name) +
			" is now registered at " + up.URL + ": " + then,
	}
}
