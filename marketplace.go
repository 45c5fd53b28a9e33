package svc

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/seal"
)

// Marketplace fetches templates from sources. Package marketplace has the one that asks the web and file systems.
// All methods are called concurrently.
type Marketplace interface {
	// CheckURL refuses a source's address that can be seen, without asking anybody, to be malformed or forbidden.
	// What the error says is shown to the caller.
	CheckURL(url string) error
	// Template asks the source, now, for the template with that id in its catalogue, its manifest included.
	//
	// Errors are [*Error] with CodeNotFound (the catalogue has no such entry), CodeSourceFailed (unreachable,
	// answering badly, or the entry is bad) or CodeSourceTimeout, whose Message is shown to the caller. Any
	// other error counts as CodeSourceFailed and is not shown.
	Template(ctx context.Context, from Upstream, id string) (Content, error)
	// Catalog returns what the source offers: from a copy not older than maxAge when there is one, else the source is asked. When
	// it cannot be asked, or answers badly, and there is an older copy, that is returned with its Failure. No manifest is
	// asked for. What is returned is shared with other callers: it is not to be changed.
	//
	// Errors are those of Template, without CodeNotFound.
	Catalog(ctx context.Context, from Upstream, maxAge time.Duration) (Catalog, error)
	// Manifest returns the manifest of an entry of the source's catalogue that names a file for it: a copy when the entry's
	// ManifestDigest shows that it is still good, else the source is asked, now.
	//
	// Errors are those of Template, without CodeNotFound.
	Manifest(ctx context.Context, from Upstream, entry CatalogEntry) (json.RawMessage, error)
}

// Upstream is a source as a [Marketplace] is to ask it.
type Upstream struct {
	Source SourceKey
	URL    string
	Token  Secret // "" none
	// Registered is when the source was registered: another registration under the same name is another source, and
	// nothing that was kept of the first is used for it.
	Registered time.Time
	SigningKey ed25519.PublicKey // who has to have signed its catalogue; nil: nobody
	Serial     int64             // the greatest of the signed catalogues that were accepted; 0: none was
	Memory     SourceMemory      // nil: there is none
}

// SourceMemory is where a [Marketplace] keeps what a source has answered, so that it outlives the process: it belongs to one
// registration. Its methods may be called concurrently, and by requests that nobody waits for any more.
type SourceMemory interface {
	// File returns what was kept under a path; nil: nothing was, or it cannot be read just now.
	File(ctx context.Context, path string) []byte
	// KeepFile keeps data under a path, "" for the catalogue, if it can.
	KeepFile(ctx context.Context, path string, data []byte)
	// AcceptSerial notes the serial of a signed catalogue, unless a greater one was noted, and returns the greatest.
	AcceptSerial(ctx context.Context, serial int64) (greatest int64, err error)
}

// upstreams asks the registered sources.
type upstreams struct {
	*base
	*journal
	*contents
	sealer  *seal.Sealer // nil: source tokens are refused
	failing *failing
}

// upstream returns how to ask a registered source, its token unsealed. ErrNotFound when it is not registered.
func (s *upstreams) upstream(ctx context.Context, key SourceKey) (Upstream, error) {
	source, err := s.store.Source(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return Upstream{}, ErrNotFound
	} else if err != nil {
		return Upstream{}, fault("read source", err)
	}
	return s.upstreamOf(source)
}

// upstreamOf returns how to ask a source that was read.
func (s *upstreams) upstreamOf(source Source) (Upstream, error) {
	up := Upstream{Source: source.SourceKey, URL: source.URL, Registered: source.CreatedAt, SigningKey: source.SigningKey, Serial: source.Serial}
	if s.copies != nil { // what is asked of a source may go on when a transaction of the host has ended
		up.Memory = sourceMemory{s, source.SourceKey}
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

// sourceMoved is why a template is not updated from a source that is not where it was.
func sourceMoved(origin *Origin, up Upstream) *Error {
	was := "an address that is not known"
	if origin.URL != "" {
		was = origin.URL
	}
	return &Error{Code: CodeSourceMoved, Message: "this template came from " + was + ", and the source " + quote(up.Source.Name) +
		" is registered at " + up.URL + " now: re-bind the source if that is right"}
}

// originUpstream returns how to ask the source that a template came from. CodeNotFound, naming it, when it was removed;
// CodeSourceMoved when it is registered at another address now.
func (s *upstreams) originUpstream(ctx context.Context, origin *Origin) (Upstream, error) {
	up, err := s.upstream(ctx, origin.Source)
	switch {
	case errors.Is(err, ErrNotFound):
		return up, sourceGone(origin)
	case err == nil && up.URL != origin.URL:
		return up, sourceMoved(origin, up)
	}
	return up, err
}

func sourceGone(origin *Origin) *Error {
	return notFound("the source " + quote(origin.Source.Name) + ", from which this template came, is registered no longer")
}

// fetch asks a source for a template and checks what it answers as strictly as what a caller sends.
func (s *upstreams) fetch(ctx context.Context, by Principal, up Upstream, id string) (Content, string, error) {
	if s.config.Marketplace == nil {
		return Content{}, "", takesNoSources()
	}
	content, err := s.config.Marketplace.Template(ctx, up, id)
	if err != nil {
		err = sourceFault(up, err)
	}
	if s.asked(ctx, by, up, err); err != nil {
		return Content{}, "", err
	}
	content = content.clone()
	var c checker
	s.checkContent(&c, &content)
	if err := c.err(); err != nil {
		return Content{}, "", badEntry(up, err)
	}
	revision, err := content.Revision()
	if err != nil {
		return Content{}, "", badEntry(up, err)
	}
	return content, revision, nil
}

func takesNoSources() *Error {
	return &Error{Code: CodeSourceFailed, Message: "this server takes no sources"}
}

func badEntry(up Upstream, err error) *Error {
	return &Error{
		Code: CodeSourceFailed, Message: "source " + quote(up.Source.Name) + ": this template of it is bad: " + firstMessage(err),
		Err: errors.Join(ErrBadEntry, err),
	}
}

// firstMessage is what the first of some errors says, with its field.
func firstMessage(err error) string {
	first, is := errors.AsType[*Error](err)
	if !is {
		return "it cannot be read"
	}
	return first.Field + " " + first.Message
}

// sourceFault passes on what a Marketplace says in an Error, and hides everything else.
func sourceFault(up Upstream, err error) error {
	err = up.Token.hideIn(err) // a source may repeat what it was told
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, context.Canceled) {
		return fault("ask source", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeSourceTimeout, Message: "source " + quote(up.Source.Name) + " did not answer in time", Err: err}
	}
	return &Error{Code: CodeSourceFailed, Message: "source " + quote(up.Source.Name) + " could not be asked", Err: err}
}

// maxFailing is how many failing sources are remembered: some 300 bytes each, and at most 10 MiB.
const maxFailing = 1 << 13

// failing are the sources that failed when this process asked them last, by when they were registered.
type failing struct {
	mu      sync.Mutex
	sources map[SourceKey]time.Time
}

// turned notes whether a source fails, and reports whether that is news.
func (f *failing) turned(up Upstream, fails bool) bool {
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
	if f.sources == nil || len(f.sources) == maxFailing { // removed ones stay: forget all, and tell once more of those that still fail
		f.sources = map[SourceKey]time.Time{}
	}
	f.sources[up.Source] = up.Registered
	return true
}

// sourceProblem returns what is wrong with one source, of several that are dealt with, or the error when it is another.
func sourceProblem(err error) (string, error) {
	first, is := errors.AsType[*Error](err)
	if is && (slices.Contains([]Code{CodeNotFound, CodeSourceFailed, CodeSourceTimeout}, first.Code) || errors.Is(err, seal.ErrOpen)) {
		return first.Message, nil
	}
	return "", err
}

// asked tells the host when a source begins to fail, and when it answers again. An entry of its catalogue that is bad, or not there, is no
// failure of the source.
func (s *upstreams) asked(ctx context.Context, by Principal, up Upstream, err error) {
	if s.copies == nil || errors.Is(err, context.Canceled) { // in a transaction of the host, or given up
		return
	}
	code := ErrorCode(err)
	fails := (code == CodeSourceFailed || code == CodeSourceTimeout) && !errors.Is(err, ErrBadEntry)
	if !s.failing.turned(up, fails) {
		return
	}
	action := EventSourceFailing
	if !fails {
		action = EventSourceRecovered
	}
	_ = s.announce(ctx, by.signs(happened(s.now(), action, up.Source.Target()))) // outside of a transaction it does not fail
}

// sourceMemory is what a source has answered, in the store. What cannot be kept or read costs a request more, and a line in the log.
type sourceMemory struct {
	sources *upstreams
	key     SourceKey
}

func (m sourceMemory) File(ctx context.Context, path string) []byte {
	file, err := m.sources.store.SourceFile(ctx, m.key, path)
	if err != nil && !errors.Is(err, ErrNotFound) {
		m.warn(ctx, "svc: what a source answered before cannot be read", path, err)
	}
	return file.Data
}

// maxKeptPath is how many bytes the path of a file may have that is kept: some databases have short indexes.
const maxKeptPath = 1024

func (m sourceMemory) KeepFile(ctx context.Context, path string, data []byte) {
	if len(path) > maxKeptPath {
		return
	}
	err := m.sources.store.KeepSourceFile(ctx, m.key, SourceFile{Path: path, Data: data, KeptAt: m.sources.now()})
	if err != nil && !errors.Is(err, ErrNotFound) { // removed meanwhile
		m.warn(ctx, "svc: what a source has answered cannot be kept", path, err)
	}
}

func (m sourceMemory) AcceptSerial(ctx context.Context, serial int64) (greatest int64, err error) {
	err = m.sources.store.ChangeSource(ctx, m.key, func(source *Source) (bool, error) {
		greatest = max(source.Serial, serial)
		raised := greatest > source.Serial
		source.Serial = greatest
		return raised, nil
	})
	if errors.Is(err, ErrNotFound) {
		return 0, noSource()
	}
	return greatest, err
}

func (m sourceMemory) warn(ctx context.Context, message, path string, err error) {
	m.sources.config.Logger.WarnContext(ctx, message, "source", m.key.Name, "file", path, "error", err)
}
