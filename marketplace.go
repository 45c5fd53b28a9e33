package svc

import "context"

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
}

// Upstream is a source as a [Marketplace] is to ask it.
type Upstream struct {
	Source SourceKey
	URL    string
	Token  Secret // "" none
}
