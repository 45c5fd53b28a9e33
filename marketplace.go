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

// Marketplace fetches templates from sources. Package marketplace has an implementation for the web
// and for file systems. The Service calls all methods concurrently.
type Marketplace interface {
	// CheckURL refuses a source's URL that is malformed or forbidden. It sends no request. The
	// caller sees the error's text.
	CheckURL(url string) error
	// Template asks the source for the template with this id in its catalogue, with its manifest.
	// It always asks and uses no copy.
	//
	// Errors are [*Error] with CodeNotFound (the catalogue has no such entry), CodeSourceFailed
	// (the source is unreachable, answers badly, or the entry is bad) or CodeSourceTimeout. The
	// caller sees their Message. Any other error counts as CodeSourceFailed, and the caller does
	// not see it.
	Template(ctx context.Context, from Upstream, id string) (Content, error)
	// Catalog returns what the source offers. It uses a copy that is not older than maxAge, else it
	// asks the source. If the source cannot be asked or answers badly, Catalog returns an older
	// copy, if it has one, with Failure set. It asks for no manifest. Callers share the result and
	// must not change it.
	//
	// Errors are those of Template, without CodeNotFound.
	Catalog(ctx context.Context, from Upstream, maxAge time.Duration) (Catalog, error)
	// Manifest returns the manifest of a catalogue entry that names a file for it. It uses a copy
	// when the entry's ManifestDigest shows that the copy is still good, else it asks the source.
	//
	// Errors are those of Template, without CodeNotFound.
	Manifest(ctx context.Context, from Upstream, entry CatalogEntry) (json.RawMessage, error)
}

// Upstream tells a [Marketplace] how to ask a source.
type Upstream struct {
	Source SourceKey
	URL    string
	Token  Secret // "": none
	// Registered is the time of the source's registration. Another registration under the same name
	// is another source: nothing kept for the first is used for it.
	Registered time.Time
	SigningKey ed25519.PublicKey // the key that must sign the catalogue; nil: no signature needed
	Serial     int64             // the greatest serial of the accepted signed catalogues; 0: none
	Memory     SourceMemory      // nil: none
}

// SourceMemory is where a [Marketplace] keeps the answers of a source, so that they outlive the
// process. It belongs to one registration. Its methods may be called concurrently, and also by
// requests whose caller no longer waits.
type SourceMemory interface {
	// File returns the data kept under a path. Nil: no data is kept, or it cannot be read just now.
	File(ctx context.Context, path string) []byte
	// KeepFile keeps data under a path, if it can. The path of the catalogue is "".
	KeepFile(ctx context.Context, path string, data []byte)
	// AcceptSerial records the serial of a signed catalogue, unless a greater one is recorded. It
	// returns the greatest serial.
	AcceptSerial(ctx context.Context, serial int64) (greatest int64, err error)
}

// upstreams asks the registered sources.
type upstreams struct {
	*base
	*journal
	*contents
	market  Marketplace  // nil: no source can be asked
	sealer  *seal.Sealer // nil: source tokens are refused
	failing *failing
}

// upstream returns how to ask a registered source, with its token unsealed. It returns ErrNotFound
// when the source is not registered.
func (s *upstreams) upstream(ctx context.Context, key SourceKey) (Upstream, error) {
	source, err := s.store.Source(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return Upstream{}, ErrNotFound
	} else if err != nil {
		return Upstream{}, fault("read source", err)
	}
	return s.upstreamOf(source)
}

// upstreamOf returns how to ask a source that was read from the store.
func (s *upstreams) upstreamOf(source Source) (Upstream, error) {
	up := Upstream{
		Source: source.SourceKey, URL: source.URL, Registered: source.CreatedAt,
		SigningKey: source.SigningKey, Serial: source.Serial,
	}
	// In a transaction of the host, Memory stays nil: a request may outlive the transaction.
	if !s.inTransaction {
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

// sourceMoved returns the error for a template whose source is now registered at another URL.
func sourceMoved(origin *Origin, up Upstream) *Error {
	was := "an address that is not known"
	if origin.URL != "" {
		was = origin.URL
	}
	return &Error{
		Code: CodeSourceMoved,
		Message: "this template came from " + was + ", and the source " + quote(up.Source.Name) +
			" is registered at " + up.URL + " now: re-bind the source if that is right",
	}
}

// originUpstream returns how to ask the source that a template came from. Errors: CodeNotFound,
// naming the source, when the source was removed; CodeSourceMoved when it is now registered at
// another URL.
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
	return notFound("the source " + quote(origin.Source.Name) +
		", from which this template came, is registered no longer")
}

// fetch asks a source for a template. It returns the content and its revision. It checks the
// source's answer as strictly as the input of a caller.
func (s *upstreams) fetch(
	ctx context.Context, by Principal, up Upstream, id string,
) (Content, string, error) {
	if s.market == nil {
		return Content{}, "", takesNoSources()
	}
	content, err := s.market.Template(ctx, up, id)
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
		Code: CodeSourceFailed,
		Message: "source " + quote(up.Source.Name) + ": this template of it is bad: " +
			firstMessage(err),
		Err: errors.Join(ErrBadEntry, err),
	}
}

// firstMessage returns the text of the first error, with its field.
func firstMessage(err error) string {
	first, is := errors.AsType[*Error](err)
	if !is {
		return "it cannot be read"
	}
	return first.Field + " " + first.Message
}

// sourceFault passes on an [*Error] of a Marketplace, and hides the text of every other error.
func sourceFault(up Upstream, err error) error {
	err = up.Token.hideIn(err) // a source may repeat the token in its answer
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, context.Canceled) {
		return fault("ask source", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{
			Code:    CodeSourceTimeout,
			Message: "source " + quote(up.Source.Name) + " did not answer in time",
			Err:     err,
		}
	}
	return &Error{
		Code:    CodeSourceFailed,
		Message: "source " + quote(up.Source.Name) + " could not be asked",
		Err:     err,
	}
}

// maxFailing limits the failing sources kept in memory: about 300 bytes each, and at most 10 MiB.
const maxFailing = 1 << 13

// failing holds the sources that failed when this process last asked them, with their registration
// times.
type failing struct {
	mu      sync.Mutex
	sources map[SourceKey]time.Time
}

// turned records whether a source fails, and reports whether that is a change.
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
	// Removed sources stay in the map. When it is full, drop all: the sources that still fail are
	// announced once more.
	if f.sources == nil || len(f.sources) == maxFailing {
		f.sources = map[SourceKey]time.Time{}
	}
	f.sources[up.Source] = up.Registered
	return true
}

// sourceProblem returns the message of an error that concerns only one of several sources. It
// returns every other error unchanged.
func sourceProblem(err error) (string, error) {
	first, is := errors.AsType[*Error](err)
	ofSource := []Code{CodeNotFound, CodeSourceFailed, CodeSourceTimeout}
	if is && (slices.Contains(ofSource, first.Code) || errors.Is(err, seal.ErrOpen)) {
		return first.Message, nil
	}
	return "", err
}

// asked announces when a source begins to fail, and when it answers again. A bad or missing entry
// of its catalogue is not a failure of the source.
func (s *upstreams) asked(ctx context.Context, by Principal, up Upstream, err error) {
	// Announce nothing in a transaction of the host, or for a cancelled request.
	if s.inTransaction || errors.Is(err, context.Canceled) {
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
	// announce does not fail outside a transaction.
	_ = s.announce(ctx, by.signs(happened(s.now(), action, up.Source.Target())))
}

// sourceMemory keeps the answers of a source in the store. A failed write or read costs one more
// request and one line in the log.
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

// maxKeptPath limits the path of a kept file, in bytes: some databases have short indexes.
const maxKeptPath = 1024

func (m sourceMemory) KeepFile(ctx context.Context, path string, data []byte) {
	if len(path) > maxKeptPath {
		return
	}
	file := SourceFile{Path: path, Data: data, KeptAt: m.sources.now()}
	err := m.sources.store.KeepSourceFile(ctx, m.key, file)
	if err != nil && !errors.Is(err, ErrNotFound) { // ErrNotFound: the source was removed meanwhile
		m.warn(ctx, "svc: what a source has answered cannot be kept", path, err)
	}
}

func (m sourceMemory) AcceptSerial(
	ctx context.Context, serial int64,
) (greatest int64, err error) {
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
	m.sources.log.WarnContext(ctx, message,
		"source", m.key.Name, "file", path, "error", err)
}
