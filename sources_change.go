package svc

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/aead"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/limits"
)

// Register adds a trusted source. Its name is the alias, else the first segment of the URL's path
// without ".git" (https://github.com/acme/templates is "acme"), else the directory of an address
// like fs://acme. Register fetches nothing, but refuses an address that is visibly malformed or
// forbidden; without a Marketplace, every one. A token is sealed with [SourceConfig].SealingKey, for
// this row and URL only; without that key it is CodeInvalid.
//
// To change the URL or the signing key, remove the source and register it again: that is another
// source, and nothing kept of the first is used for it. A user has at most
// [limits.PersonalSources]. Event: [event.SourceRegistered]. Errors: CodeExists (at "/alias"),
// CodeLimit, CodeUnauthenticated (for its own, when the caller's issued key is revoked in the
// meantime).
func (s *Sources) Register(ctx context.Context, by Principal, in NewSource) (Source, error) {
	source, err := s.newSource(in)
	if err != nil {
		return Source{}, err
	}
	at, err := s.admit(ctx, by, action.TemplateSource)
	if err != nil {
		return Source{}, err
	}
	source.SourceKey = at.source(source.Name)
	if err := s.checkAddress(&source, in); err != nil {
		return Source{}, err
	}
	// The binding has the name, which checkAddress may have taken from the URL.
	if in.AuthToken != nil {
		source.SealedToken = s.sealer.Seal([]byte(*in.AuthToken), source.binding())
	}
	source.CreatedAt = s.now()
	source.UpdatedAt = source.CreatedAt
	// Only the store decides whether the name is taken: of concurrent calls one wins.
	err = s.commit(ctx, change{
		by: by, basis: &at.basis, locks: source.locks(), room: at.roomForSource(source.Name),
		write: func(ctx context.Context, tx Store) ([]Event, error) {
			return happened(source.CreatedAt, event.SourceRegistered, source.Target()),
				tx.CreateSource(ctx, source)
		},
	})
	if rowExists(err) {
		message := "a source named " + quote(source.Name) + " is already registered"
		return Source{}, taken("/alias", message)
	} else if err != nil {
		return Source{}, fault("register source", err)
	}
	return source, nil
}

// roomForSource returns the check of a change that adds a source: the area may be full.
func (a place) roomForSource(name string) func(ctx context.Context, tx Store) error {
	const most = limits.PersonalSources
	all := SourcePage{Scope: a.scope, Owner: a.owner, Limit: most}
	return a.room(most, "sources", func(ctx context.Context, tx Store) (bool, error) {
		found, err := tx.Sources(ctx, all)
		return len(found) == most, err
	}, func(ctx context.Context, tx Store) error {
		_, err := tx.Source(ctx, a.source(name))
		return err
	})
}

// newSource validates the form of a registration and returns its row. The row has no scope, no
// times, no token and no name from the URL yet. It needs neither rights nor the marketplace, so it
// comes first.
func (s *Sources) newSource(in NewSource) (Source, error) {
	var c checker
	// The caller keeps its slice and may change it, so the key is copied.
	source := Source{
		URL: in.URL, Description: in.Description, SigningKey: bytes.Clone(in.SigningKey),
	}
	if in.URL == "" {
		c.add("/url", "is required")
	} else {
		c.text("/url", in.URL, limits.URLLength)
	}
	if in.Alias != nil {
		source.Name = *in.Alias
		c.id("/alias", source.Name)
	}
	if in.AuthToken != nil {
		c.check(s.checkSourceToken(string(*in.AuthToken)))
	}
	// An empty key is not nil: it is a mistake, and not the wish for no signature.
	if in.SigningKey != nil && len(in.SigningKey) != ed25519.PublicKeySize {
		c.add("/signing_key", "must be an Ed25519 public key of 32 bytes")
	}
	c.optionalText("/description", in.Description, limits.DescriptionLength)
	return source, c.err()
}

// checkAddress lets the marketplace check a source's URL. Without an alias it takes the source's
// name from the URL. Call it only for an authorized caller: the marketplace's answer shows which
// addresses the host allows.
func (s *Sources) checkAddress(source *Source, in NewSource) error {
	var c checker
	c.check(s.checkSourceURL(source.SourceKey, in.URL))
	if in.Alias != nil {
		return c.err()
	}
	// A name from the URL meets the rules of an alias, and like it, is no API key.
	if source.Name = nameFromURL(in.URL); c.ok() && source.Name == "" {
		c.add("/alias", "is required: the URL has no path to take a name from")
	} else if c.ok() &&
		(text.IDProblem(source.Name, limits.IDLength) != "" || token.Whole(source.Name)) {
		c.add("/alias", "is required: the URL's path does not start with a valid name")
	}
	return c.err()
}

// checkSourceURL returns what is wrong with an address. The caller sees the text of the
// marketplace's error. Nil: the address looks usable. Each request checks the address again, after
// it has resolved the name.
func (s *Sources) checkSourceURL(source SourceKey, address string) *Error {
	if s.market == nil {
		return Invalid("/url", "cannot be used: this server accepts no sources")
	}
	check := s.market.CheckURL
	if checker, is := s.market.(SourceChecker); is {
		check = func(address string) error { return checker.CheckSource(source, address) }
	}
	if err := check(address); err != nil {
		return Invalid("/url", err.Error())
	}
	return nil
}

// checkSourceToken returns what is wrong with an access token: it must fit into an HTTP header. No
// message shows a part of the token.
func (s *Sources) checkSourceToken(token string) *Error {
	switch {
	case s.sealer == nil:
		return Invalid("/auth_token",
			"cannot be stored: this server has no key to encrypt it with")
	case token == "":
		return Invalid("/auth_token", "must not be empty")
	case len(token) > limits.SourceTokenLength:
		return Invalid("/auth_token", "must be at most 4096 bytes")
	// Another character would break the header, or add one.
	case !text.Visible(token):
		return Invalid("/auth_token", "must be printable ASCII without spaces")
	}
	return nil
}

// Patch changes the description or the token of a source and returns it. The registration stays the
// same, with its Serial and its templates. Concurrent patches of different fields all take effect.
// A patch that changes nothing writes nothing: no event, the same UpdatedAt. A token that is given
// always counts as a change. An operation that has read the old token may still use it. Event:
// [event.SourcePatched]. Errors: CodeNotFound.
func (s *Sources) Patch(
	ctx context.Context, by Principal, name string, patch SourcePatch,
) (Source, error) {
	if err := s.checkPatch(name, patch); err != nil {
		return Source{}, err
	}
	at, err := s.admit(ctx, by, action.TemplateSource)
	if err != nil {
		return Source{}, err
	}
	key := at.source(name)
	var patched Source
	err = s.commit(ctx, change{by: by, basis: &at.basis, write: func(
		ctx context.Context, tx Store,
	) (events []Event, err error) {
		err = tx.ChangeSource(ctx, key, func(source *Source) (bool, error) {
			// The store may call again: the last call counts.
			events = nil
			changed := s.applyPatch(source, patch)
			if changed {
				source.UpdatedAt = later(source.UpdatedAt, s.now())
				events = happened(source.UpdatedAt, event.SourcePatched, key.Target())
			}
			patched = *source
			return changed, nil
		})
		return events, err
	}})
	if noRow(err) {
		return Source{}, noSource()
	} else if err != nil {
		return Source{}, fault("patch source", err)
	}
	return patched, nil
}

func (s *Sources) checkPatch(name string, patch SourcePatch) error {
	var c checker
	c.lookup("name", name)
	if patch.AuthToken != nil && patch.AuthToken.Value != nil {
		c.check(s.checkSourceToken(string(*patch.AuthToken.Value)))
	}
	if patch.Description != nil {
		c.optionalText("/description", patch.Description.Value, limits.DescriptionLength)
	}
	return c.err()
}

// applyPatch reports whether it has changed source. The seal of a new token is bound to the row, so
// that it is made here, with the row at hand.
func (s *Sources) applyPatch(source *Source, patch SourcePatch) (changed bool) {
	if d := patch.Description; d != nil && !equalText(d.Value, source.Description) {
		source.Description, changed = d.Value, true
	}
	switch token := patch.AuthToken; {
	case token == nil:
	case token.Value != nil:
		source.SealedToken = s.sealer.Seal([]byte(*token.Value), source.binding())
		changed = true
	case source.HasAuth():
		source.SealedToken, changed = nil, true
	}
	return changed
}

// Remove stops trusting a source, and deletes its token and stored answers. Templates installed
// from it stay, with their Origin; checks and updates of them return CodeNotFound until a source
// with this name is registered at the same URL, or [Sources.Rebind] binds them to another.
// Templates of the server that came from a personal source must be installed again: no later source
// updates them. Of calls that have asked the source already, only those still end well that write at
// that moment. Every other call finds the removal, in each process. Event: [event.SourceRemoved]. Errors:
// CodeNotFound, also at a second call.
func (s *Sources) Remove(ctx context.Context, by Principal, name string) error {
	if err := checkID("name", name); err != nil {
		return err
	}
	at, err := s.admit(ctx, by, action.TemplateSource)
	if err != nil {
		return err
	}
	key := at.source(name)
	// The server's templates may lose their URL with a personal source. The
	// store's feed names them.
	removal := change{
		by: by, basis: &at.basis, locks: key.locks(), access: s.personal,
		begin: s.changesTemplates,
	}
	removal.write = func(ctx context.Context, tx Store) ([]Event, error) {
		return happened(s.now(), event.SourceRemoved, key.Target()), tx.DeleteSource(ctx, key)
	}
	if err = s.commit(ctx, removal); noRow(err) {
		return noSource()
	}
	return fault("remove source", err)
}

// Rebind binds the templates of this half that came from a source of this name to its current
// address: a source that was removed and registered at another address updates them only then. It
// trusts the new address, whose owner decides their next update. It returns the ids that it has
// bound, in byte order, not nil. Rebind fetches nothing and changes no content, no UpdatedAt and no
// ETag of a template.
//
// It is one write for all these templates. Those of other halves and other users stay bound to the
// old address. Each bound template has an [event.TemplateRebound]. An update that has asked the old
// address returns CodeChanged and writes nothing. Errors: CodeNotFound.
func (s *Sources) Rebind(ctx context.Context, by Principal, name string) ([]string, error) {
	if err := checkID("name", name); err != nil {
		return nil, err
	}
	at, err := s.admit(ctx, by, action.TemplateSource)
	if err != nil {
		return nil, err
	}
	// The source may be removed before the write. Then the templates have an address that no source
	// has, as after any removal.
	source, err := s.store.Source(ctx, at.source(name))
	if noRow(err) {
		return nil, noSource()
	} else if err != nil {
		return nil, fault("read source", err)
	}
	var ids []string
	err = s.commit(ctx, change{by: by, basis: &at.basis, begin: s.changesTemplates, write: func(
		ctx context.Context, tx Store,
	) (rebound []Event, err error) {
		keys, err := tx.RebindTemplates(ctx, source.SourceKey, source.URL)
		ids = []string{} // the last call of write counts
		for _, key := range keys {
			ids = append(ids, key.ID)
			rebound = append(rebound, happened(s.now(), event.TemplateRebound, key.Target())...)
		}
		return rebound, err
	}})
	if err != nil {
		return nil, fault("re-bind templates", err)
	}
	slices.Sort(ids)
	return ids, nil
}

// Reseal moves the tokens of all sources, also of users, from Config.Sources.OldSealingKeys to
// SealingKey, and returns how many it has resealed, also with an error. Only [Host] may call it,
// and not of MySources. Run it when every process has the new SealingKey and the old keys. When it
// returns 0 and no error, and no process seals with the old keys any longer, remove them.
//
// Reseal may run in several processes, and again after a failure. Each token is its own
// transaction. UpdatedAt stays, and there is no event. A token that no key opens stays unchanged:
// CodeInternal for each, naming its source, joined. A fault of the store stops Reseal and is its
// only error.
func (s *Sources) Reseal(ctx context.Context, by Principal) (int, error) {
	if s.readOnly {
		return 0, errReadOnly
	}
	var lost []error
	resealed := 0
	for source, err := range s.every(ctx, by) {
		done := false
		if err == nil {
			done, err = s.resealSource(ctx, source)
		}
		switch {
		// Only the source is at fault: the others have their own tokens.
		case errors.Is(err, aead.ErrOpen):
			lost = append(lost, err)
		case err != nil:
			return resealed, err
		case done:
			resealed++
		}
	}
	return resealed, errors.Join(lost...)
}

// every lists the sources of the server and of all users, for the host.
func (s *Sources) every(ctx context.Context, by Principal) iter.Seq2[Source, error] {
	page := SourcePage{Every: true, Limit: listChunk}
	return lists.Chunks(ctx, page, page.Limit, doing("list sources"),
		func(*SourcePage) error {
			if by.Kind != KindHost || s.personal {
				return forbidden("only the host application may reseal the tokens of sources")
			}
			return nil
		},
		func(page SourcePage) ([]Source, error) { return s.store.Sources(ctx, page) },
		func(page *SourcePage, last Source) {
			page.Scope, page.Owner, page.After = last.Scope, last.Owner, last.Name
		})
}

// SealReport says under which keys the tokens of sources are.
type SealReport struct {
	// Under counts the tokens under each key: first Config.Sources.SealingKey, then each of
	// OldSealingKeys. Without keys it is empty.
	Under []int
	Lost  int // the tokens that no key opens
}

// Sealed counts the tokens of all sources, also of users, by the keys that they are under. It
// writes nothing. Only [Host] may call it, and not of MySources.
func (s *Sources) Sealed(ctx context.Context, by Principal) (SealReport, error) {
	counts := SealReport{Under: make([]int, s.sealer.Keys())}
	for source, err := range s.every(ctx, by) {
		if err != nil {
			return SealReport{}, err
		}
		if !source.HasAuth() {
			continue
		}
		if under, err := s.sealer.Under(source.SealedToken, source.binding()); err != nil {
			counts.Lost++
		} else {
			counts.Under[under]++
		}
	}
	return counts, nil
}

// resealSource reseals the token of a listed source, in the source's current state: another process
// may have resealed or removed it since the list was read. When the token needs no resealing, as in
// every second run, it starts no transaction.
func (s *Sources) resealSource(ctx context.Context, listed Source) (done bool, err error) {
	// A token that no key opens goes on to the transaction: it may have been replaced in the
	// meantime.
	if needed, err := s.reseal(&listed); err == nil && !needed {
		return false, nil
	}
	err = s.store.ChangeSource(ctx, listed.SourceKey, func(source *Source) (bool, error) {
		write, err := s.reseal(source)
		done = write // the store may call again: the last call counts
		return write, err
	})
	if noRow(err) {
		return false, nil // removed in the meantime
	} else if err != nil {
		return false, fault("reseal source", err)
	}
	return done, nil
}

// reseal seals the token of source with the current key. It reports whether the token was under
// another key. The binding stays, so a token that a writer of the database has moved to another row
// is lost. It changes source only when it returns true.
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

// nameFromURL returns the first segment of the URL's path without ".git", or "". A directory of the
// host without a path has the directory's name. A source may not be able to have the name: the
// caller checks it.
func nameFromURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimLeft(u.EscapedPath(), "/"), "/")
	if first == "" && u.Scheme == "fs" {
		return u.Host
	}
	name, _ := url.PathUnescape(first) // url.Parse accepts only good escapes
	return strings.TrimSuffix(name, ".git")
}
