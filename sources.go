package svc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/extsvc/svc/internal/token"
)

// Scope says to whom a source or template belongs.
type Scope string

// The scopes. Rows of the server have no owner; personal ones belong to a user.
const (
	ScopeServer   Scope = "server"
	ScopePersonal Scope = "personal"
)

// SourceKey names a source: unique over its three fields. Owner is "" exactly when Scope is [ScopeServer].
type SourceKey struct {
	Scope Scope
	Owner string
	Name  string
}

// Source is a trusted address from which templates can be installed.
type Source struct {
	SourceKey
	URL         string  // the base: its catalogue is URL/templates.json
	Description *string // nil: none given, which is not the same as ""
	SealedToken []byte  // the access token, encrypted for this row alone; nil: none
	SigningKey  []byte  // the Ed25519 public key (RFC 8032) by which its catalogue has to be signed; nil: by none
	Serial      int64   // the greatest of the signed catalogues that were accepted; 0: none was
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// HasAuth reports whether the source is asked with an access token.
func (s Source) HasAuth() bool { return len(s.SealedToken) > 0 }

// RegisterSource is the request to trust a source.
type RegisterSource struct {
	URL         string  // required
	Alias       *string // the source's name; nil: derived from URL, see [Service.RegisterSource]
	AuthToken   *Secret // sent to the source as a bearer; nil: none
	SigningKey  []byte  // the Ed25519 public key, 32 bytes, by which the source's catalogue has to be signed from now on; nil: by none
	Description *string
}

// SourceStore keeps sources.
type SourceStore interface {
	// CreateSource adds a source. ErrExists when its key is taken.
	CreateSource(ctx context.Context, source Source) error
	// Source returns the source with that key. ErrNotFound.
	Source(ctx context.Context, key SourceKey) (Source, error)
	// Sources returns a chunk of the sources of page's scope and owner, by name in byte order, after page.After.
	// A chunk of fewer than page.Limit is the end.
	Sources(ctx context.Context, page SourcePage) ([]Source, error)
	// ChangeSource reads the source with that key, calls change with it and, when that returns true, writes what change made of
	// its Description, URL, SealedToken, Serial and UpdatedAt, and nothing else, in one transaction: changes of one source
	// happen one after the other. change does no I/O and may be called again, with the source read anew; its error is
	// returned as it is and nothing is written. ErrNotFound.
	ChangeSource(ctx context.Context, key SourceKey, change func(source *Source) (write bool, err error)) error
	// DeleteSource removes the source with that key. ErrNotFound. What was installed from it stays.
	DeleteSource(ctx context.Context, key SourceKey) error
	// KeepSourceFile keeps what a source has answered, in the place of what was kept under its path before. It is no mutation: the
	// generation stays. Of a source those [MaxSourceFiles] files are kept, beside the one whose path is "", whose KeptAt is the
	// latest; all go with the source. ErrNotFound when that is not registered.
	KeepSourceFile(ctx context.Context, key SourceKey, file SourceFile) error
	// SourceFile returns what was kept of a file. ErrNotFound.
	SourceFile(ctx context.Context, key SourceKey, path string) (SourceFile, error)
}

// MaxSourceFiles is how many files of a source are kept in the store, beside its catalogue.
const MaxSourceFiles = 1000

// SourceFile is what a source has answered, as a [Marketplace] keeps it: only that can read it.
type SourceFile struct {
	Path   string // relative to the source; "": its catalogue
	Data   []byte
	KeptAt time.Time
}

// SourcePage asks for one chunk of a list of sources.
type SourcePage struct {
	Scope Scope
	Owner string
	After string // the last name of the chunk before; "" from the start
	Limit int    // at most so many, > 0
}

// RegisterSource trusts a source of the server. Its name is the alias, else the first segment of the URL's path without
// ".git" (https://github.com/acme/templates is "acme"). Nothing is fetched, but an address that can be seen to be
// forbidden is refused. Errors: CodeInvalid, CodeForbidden, CodeExists.
func (s *Service) RegisterSource(ctx context.Context, by Principal, in RegisterSource) (Source, error) {
	source, err := s.newSource(in)
	if err != nil {
		return Source{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return Source{}, err
	}
	if err := s.checkAddress(&source, in); err != nil {
		return Source{}, err
	}
	if in.AuthToken != nil {
		source.SealedToken = s.sealer.Seal([]byte(*in.AuthToken), source.binding())
	}
	source.CreatedAt = s.now()
	source.UpdatedAt = source.CreatedAt
	err = s.mutate(ctx, by, func(ctx context.Context, store Store) ([]Event, error) {
		return happened(source.CreatedAt, EventSourceRegistered, source.Target()), store.CreateSource(ctx, source)
	})
	if errors.Is(err, ErrExists) {
		return Source{}, taken("/alias", "a source named "+quote(source.Name)+" is registered already")
	} else if err != nil {
		return Source{}, fault("register source", err)
	}
	return source, nil
}

// newSource checks the form of a registration and returns the row it asks for, unstamped, without its token or a name from its URL.
func (s *Service) newSource(in RegisterSource) (Source, error) {
	var c checker
	source := Source{SourceKey: SourceKey{Scope: ScopeServer}, URL: in.URL, Description: in.Description, SigningKey: bytes.Clone(in.SigningKey)}
	if in.URL == "" {
		c.add("/url", "is required")
	} else {
		c.text("/url", in.URL, MaxURLLength)
	}
	if in.Alias != nil {
		source.Name = *in.Alias
		c.id("/alias", source.Name)
	}
	if in.AuthToken != nil {
		c.check(s.checkSourceToken(string(*in.AuthToken)))
	}
	if in.SigningKey != nil && len(in.SigningKey) != ed25519.PublicKeySize {
		c.add("/signing_key", "must be an Ed25519 public key of 32 bytes")
	}
	c.optionalText("/description", in.Description, MaxDescriptionLength)
	return source, c.err()
}

// checkAddress asks the marketplace about a source's URL, and names the source by that where there is no alias. Call it only for an
// authorized caller.
func (s *Service) checkAddress(source *Source, in RegisterSource) error {
	var c checker
	c.check(s.checkSourceURL(in.URL))
	if in.Alias != nil {
		return c.err()
	}
	if source.Name = nameFromURL(in.URL); c.ok() && source.Name == "" {
		c.add("/alias", "is required, because the URL has no path to take a name from")
	} else if c.ok() && (idProblem(source.Name) != "" || token.Whole(source.Name)) {
		c.add("/alias", "is required, because the URL's path does not start with a name that can be used")
	}
	return c.err()
}

func (s *Service) checkSourceURL(address string) *Error {
	if s.config.Marketplace == nil {
		return invalid("/url", "cannot be used: this server takes no sources")
	}
	if err := s.config.Marketplace.CheckURL(address); err != nil {
		return invalid("/url", err.Error())
	}
	return nil
}

func (s *Service) checkSourceToken(token string) *Error {
	switch {
	case s.sealer == nil:
		return invalid("/auth_token", "cannot be kept: this server was given no key to encrypt it with")
	case token == "":
		return invalid("/auth_token", "must not be empty")
	case len(token) > MaxSourceTokenLength:
		return invalid("/auth_token", "must be at most 4096 bytes")
	case !visible(token):
		return invalid("/auth_token", "must be printable ASCII without spaces")
	}
	return nil
}

// nameFromURL returns the first segment of the URL's path without ".git", or "".
func nameFromURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimLeft(u.EscapedPath(), "/"), "/")
	name, _ := url.PathUnescape(first) // what url.Parse let through is well escaped
	return strings.TrimSuffix(name, ".git")
}

// Sources lists the server's sources by name. The error, if any, is the last thing yielded.
func (s *Service) Sources(ctx context.Context, by Principal) iter.Seq2[Source, error] {
	page := SourcePage{Scope: ScopeServer, Limit: listChunk}
	return list(ctx, "list sources", page.Limit,
		func() error { return s.authorize(ctx, by, ActionTemplateAdmin) },
		func() ([]Source, error) { return s.store.Sources(ctx, page) },
		func(last Source) { page.After = last.Name })
}

// RemoveSource stops trusting a source of the server. What was installed from it stays. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound.
func (s *Service) RemoveSource(ctx context.Context, by Principal, name string) error {
	if err := checkID("name", name); err != nil {
		return err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return err
	}
	key := SourceKey{Scope: ScopeServer, Name: name}
	err := s.mutate(ctx, by, func(ctx context.Context, store Store) ([]Event, error) {
		return happened(s.now(), EventSourceRemoved, key.Target()), store.DeleteSource(ctx, key)
	})
	if errors.Is(err, ErrNotFound) {
		return noSource()
	} else if err != nil {
		return fault("remove source", err)
	}
	s.checks.forget(key)
	return nil
}

// upstream returns how to ask a registered source, its token unsealed. ErrNotFound when it is not registered.
func (s *Service) upstream(ctx context.Context, key SourceKey) (Upstream, error) {
	source, err := s.store.Source(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return Upstream{}, ErrNotFound
	} else if err != nil {
		return Upstream{}, fault("read source", err)
	}
	return s.upstreamOf(source)
}

// upstreamOf returns how to ask a source that was read.
func (s *Service) upstreamOf(source Source) (Upstream, error) {
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

func noSource() *Error { return notFound("no source of that name is registered") }

func sourceTokenLost(name string, err error) *Error {
	return &Error{Code: CodeInternal, Message: "the access token of source " + quote(name) +
		" cannot be read with this server's sealing keys: give it the key that is missing, or remove the source and register it again", Err: err}
}

// binding ties a sealed token to its row: moved to another row or address, it does not open.
func (s Source) binding() []byte {
	return []byte(strings.Join([]string{"source-token", string(s.Scope), s.Owner, s.Name, s.URL}, "\x00"))
}

// Compare orders by scope, owner and name, byte by byte, as package cmp does.
func (k SourceKey) Compare(other SourceKey) int {
	return cmp.Or(cmp.Compare(k.Scope, other.Scope), cmp.Compare(k.Owner, other.Owner), cmp.Compare(k.Name, other.Name))
}

// Target is the source, for events and change feeds.
func (k SourceKey) Target() Target {
	return Target{Kind: TargetSource, ID: k.Name, Scope: k.Scope, Owner: k.Owner}
}
