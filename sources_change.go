package svc

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"slices"

	"github.com/extsvc/svc/internal/seal"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
)

// Register adds a trusted source to the server. The source's name is the alias, else the first
// segment of the URL's path without ".git" (https://github.com/acme/templates is "acme"). Register
// fetches nothing, but refuses an address that is visibly malformed or forbidden. Errors:
// CodeInvalid, CodeForbidden, CodeExists.
func (s *Sources) Register(ctx context.Context, by Principal, in NewSource) (Source, error) {
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
	err = s.commit(ctx, change{by: by, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		return happened(source.CreatedAt, EventSourceRegistered, source.Target()),
			tx.CreateSource(ctx, source)
	}})
	if errors.Is(err, ErrExists) {
		message := "a source named " + quote(source.Name) + " is already registered"
		return Source{}, taken("/alias", message)
	} else if err != nil {
		return Source{}, fault("register source", err)
	}
	return source, nil
}

// newSource validates the form of a registration and returns its row. The row has no times, no
// token and no name from the URL yet.
func (s *Sources) newSource(in NewSource) (Source, error) {
	var c checker
	source := Source{
		SourceKey: SourceKey{Scope: ScopeServer}, URL: in.URL,
		Description: in.Description, SigningKey: bytes.Clone(in.SigningKey),
	}
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

// checkAddress lets the marketplace check a source's URL. Without an alias it takes the source's
// name from the URL. Call it only for an authorized caller.
func (s *Sources) checkAddress(source *Source, in NewSource) error {
	var c checker
	c.check(s.checkSourceURL(in.URL))
	if in.Alias != nil {
		return c.err()
	}
	if source.Name = nameFromURL(in.URL); c.ok() && source.Name == "" {
		c.add("/alias", "is required: the URL has no path to take a name from")
	} else if c.ok() && (text.IDProblem(source.Name, MaxIDLength) != "" || token.Whole(source.Name)) {
		c.add("/alias",
			"is required: the URL's path does not start with a valid name")
	}
	return c.err()
}

func (s *Sources) checkSourceURL(address string) *Error {
	if s.market == nil {
		return Invalid("/url", "cannot be used: this server accepts no sources")
	}
	if err := s.market.CheckURL(address); err != nil {
		return Invalid("/url", err.Error())
	}
	return nil
}

func (s *Sources) checkSourceToken(token string) *Error {
	switch {
	case s.sealer == nil:
		return Invalid("/auth_token",
			"cannot be stored: this server has no key to encrypt it with")
	case token == "":
		return Invalid("/auth_token", "must not be empty")
	case len(token) > MaxSourceTokenLength:
		return Invalid("/auth_token", "must be at most 4096 bytes")
	case !text.Visible(token):
		return Invalid("/auth_token", "must be printable ASCII without spaces")
	}
	return nil
}

// Remove stops trusting a source of the server. Templates installed from it stay. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound.
func (s *Sources) Remove(ctx context.Context, by Principal, name string) error {
	if err := checkID("name", name); err != nil {
		return err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return err
	}
	key := SourceKey{Scope: ScopeServer, Name: name}
	err := s.commit(ctx, change{by: by, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		return happened(s.now(), EventSourceRemoved, key.Target()), tx.DeleteSource(ctx, key)
	}})
	if errors.Is(err, ErrNotFound) {
		return noSource()
	} else if err != nil {
		return fault("remove source", err)
	}
	s.checks.forget(key)
	return nil
}

// Rebind binds the templates that came from a source of this name to the source's current address.
// A source that is removed and registered at another address does not update templates from the old
// address until Rebind. It returns the ids of the server's templates that it has bound, in byte
// order. When all were bound already, the list is empty and not nil. Rebind fetches nothing and
// changes no content. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (s *Sources) Rebind(ctx context.Context, by Principal, name string) ([]string, error) {
	if err := checkID("name", name); err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return nil, err
	}
	source, err := s.store.Source(ctx, SourceKey{Scope: ScopeServer, Name: name})
	if errors.Is(err, ErrNotFound) {
		return nil, noSource()
	} else if err != nil {
		return nil, fault("read source", err)
	}
	var keys []TemplateKey
	err = s.commit(ctx, change{by: by, begin: s.changesTemplates, write: func(
		ctx context.Context, tx Store,
	) (rebound []Event, err error) {
		keys, err = tx.RebindTemplates(ctx, source.SourceKey, source.URL)
		for _, key := range keys {
			rebound = append(rebound, happened(s.now(), EventTemplateRebound, key.Target())...)
		}
		return rebound, err
	}})
	if err != nil {
		return nil, fault("re-bind templates", err)
	}
	ids := []string{}
	for _, key := range keys {
		if key.Scope == ScopeServer {
			ids = append(ids, key.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Reseal moves the tokens of the server's sources from Config.Sources.OldSealingKeys to SealingKey.
// It returns how many tokens it resealed, also together with an error. Only [Host] may call it.
//
// Reseal may run in several processes, and again after a failure: a resealed token stays resealed.
// You can remove the old keys when Reseal returns 0 and no error, and no process seals with them
// any more. UpdatedAt stays and Reseal makes no event, because callers see no change.
//
// A token that no key opens stays unchanged, and Reseal continues with the others. Errors:
// CodeForbidden; CodeInternal for each token that no key opens, naming its source, joined. A fault
// of the store stops Reseal and is returned alone.
func (s *Sources) Reseal(ctx context.Context, by Principal) (int, error) {
	if by.Kind != KindHost {
		return 0, forbidden("only the host application may reseal the tokens of sources")
	}
	var lost []error
	resealed := 0
	for source, err := range s.List(ctx, by) {
		done := false
		if err == nil {
			done, err = s.resealSource(ctx, source)
		}
		switch {
		case errors.Is(err, seal.ErrOpen):
			lost = append(lost, err)
		case err != nil:
			return resealed, err
		case done:
			resealed++
		}
	}
	return resealed, errors.Join(lost...)
}

// resealSource reseals the token of a listed source, in the source's current state. When the token
// needs no resealing, as in every second run, it starts no transaction.
func (s *Sources) resealSource(ctx context.Context, listed Source) (done bool, err error) {
	if needed, err := s.reseal(&listed); err == nil && !needed {
		return false, nil
	}
	err = s.store.ChangeSource(ctx, listed.SourceKey, func(source *Source) (bool, error) {
		write, err := s.reseal(source)
		done = write // the store may call again: the last call counts
		return write, err
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil // removed meanwhile
	} else if err != nil {
		return false, fault("reseal source", err)
	}
	return done, nil
}

// reseal seals the token of source with the current key. It reports whether the token was under
// another key.
func (s *Sources) reseal(source *Source) (bool, error) {
	if !source.HasAuth() {
		return false, nil
	}
	again, err := s.sealer.Reseal(source.SealedToken, source.binding())
	if err != nil {
		return false, sourceTokenLost(source.Name, err)
	}
	if again == nil {
		return false, nil
	}
	source.SealedToken = again
	return true, nil
}
