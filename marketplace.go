package svc

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"time"
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
