package svc

import (
	"context"
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
}

// Upstream is a source as a [Marketplace] is to ask it.
type Upstream struct {
	Source SourceKey
	URL    string
	Token  Secret // "" none
	// Registered is when the source was registered: another registration under the same name is another source, and
	// nothing that was kept of the first is used for it.
	Registered time.Time
}
