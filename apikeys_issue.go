package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/limits"
)

// Keys issues, lists, changes and revokes API keys. A change and the records of its events are one
// transaction. When a method has returned, this process accepts and refuses keys by the new state.
// Other processes follow as they do in [Service.Decide]. A write checks the caller again in its
// transaction: CodeUnauthenticated when the caller's own key has ended. A key of another holder is
// CodeNotFound.
type Keys struct {
	*keyIssuer
	callers  *authenticator // judges keys that are introspected
	together *issuer        // nil: keys are issued one by one
}

// Issue issues a key for a user or a service account, or for the caller ([Me]). The key is random,
// with a secret of 190 bits, and no other method shows it. The holder may be inactive: then the key
// is accepted as soon as the holder is active. A user needs no row.
//
// For another user, the caller needs iam:users:write; for a service account
// iam:service_accounts:manage, and for its own ([MyAccount]) iam:service_account_keys:write. The
// caller needs every right of the holder; iam:banks:grant stands for the rights that are not of the
// control plane. The caller must be neither a service account nor narrowed. For Me it needs no
// action. The transaction checks all this again. With PostgreSQL, such a call waits for a bundle
// that is being applied.
//
// Event: [event.APIKeyIssued]. Errors: CodeForbidden for Me, and CodeNotFound for another user,
// unless by is [Host], when Config.Users.Known does not know the user; CodeNotFound (a service
// account without a row); CodeLimit; CodeKeyReused.
func (s *Keys) Issue(
	ctx context.Context, by Principal, holder Identity, in NewAPIKey,
) (IssuedKey, error) {
	now := s.now() // of the row, its event and its answer
	var c checker
	c.holder(holder)
	in.check(&c, now)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	allowed, err := s.authorizeIssue(ctx, by, holder)
	if err != nil {
		return IssuedKey{}, err
	}
	holder = allowed.holder
	request, err := s.idempotent(by, allowed, in.IdempotencyKey, "issue", []any{holder, in}, now)
	if err != nil {
		return IssuedKey{}, err
	}
	var issued IssuedKey
	answer, err := once(ctx, request, func() (answer issuedAnswer, err error) {
		if err := in.late(now); err != nil {
			return answer, err
		} else if err := s.checkScoping(ctx, by, holder, in.ScopingPolicyID); err != nil {
			return answer, err
		}
		issued, err = s.draw(ctx, holder, func(key *IssuedKey) error {
			s.stamp(&key.APIKey, in, now)
			answer = issuedAnswer{string(key.Key), now}
			kept, err := request.answer(answer)
			if err != nil {
				return err
			}
			return s.addKey(ctx, by, allowed, key.APIKey, event.APIKeyIssued, kept)
		})
		return answer, fault("issue API key", err)
	})
	if err != nil {
		return IssuedKey{}, err
	} else if answer.Key != string(issued.Key) { // an earlier request, with equal settings, made it
		return s.issuedBefore(ctx, holder, in, answer)
	}
	return issued, nil
}

// issueTries is how often a key is drawn when its id is taken, about once in 2^59 draws. A store
// that always answers ErrExists must not loop for ever.
const issueTries = 4

// issuedAnswer is what the store keeps of an issued key, to answer the same request again.
type issuedAnswer struct {
	Key string    // the whole key
	At  time.Time // the CreatedAt of the key
}

// room refuses one more key to a holder that has as many as allowed. It must run under the lock of
// the holder's keys: without it, two concurrent calls could both find the last place.
func (s *keyIssuer) room(live int) error {
	if most := s.most; live >= most { // the count stops at most
		return &Error{Code: CodeLimit, Message: fmt.Sprintf(
			"the holder has %d API keys, and more are not allowed: revoke one first", most)}
	}
	return nil
}

// addKey adds a key to its holder's keys. ErrExists: a key has that id, of any holder, revoked or
// not. The count of the holder's keys and the new key are one transaction: so the limit is exact.
func (s *Keys) addKey(
	ctx context.Context, by Principal, allowed basis, key APIKey, action event.Action,
	answer *StoredAnswer,
) error {
	allowed.scoping, allowed.most = key.ScopingPolicyID, s.most
	locks := Locks{Holder: key.Holder}
	c := change{by: by, basis: &allowed, locks: locks, answer: answer, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		if err := s.room(allowed.live); err != nil {
			return nil, err
		}
		err := createKey(ctx, tx, key, action == event.APIKeyImported || s.inTransaction)
		return happened(key.CreatedAt, action, key.Target()), err
	}}
	if answer == nil && action == event.APIKeyIssued && s.together != nil && allowed.lasts(by) {
		c.together = func(ctx context.Context) ([]Event, error) {
			return s.together.issue(ctx, by, &allowed, key)
		}
	}
	return s.commit(ctx, c)
}

// lasts reports whether a caller may issue a key until something changes that it relies on. The host
// relies on nothing, unless a row must exist.
func (b *basis) lasts(by Principal) bool {
	return b.at > 0 || by.Kind == KindHost && !b.row && b.scoping == ""
}

// issuer issues keys of concurrent callers together, in one transaction.
type issuer struct {
	*keyIssuer
	// The host relies on no lock on access, so it does not wait with those who do.
	relying, host *batching.Batches[*newKey]
}

// newKey is a key that waits to be issued.
type newKey struct {
	batching.Key[APIKey, Event]
	by    Principal
	basis *basis
	added bool
}

// issuedTogether is how many keys one transaction adds, at most.
const issuedTogether = 64

// newIssuer returns nil when the store adds keys one by one.
func newIssuer(of *keyIssuer) *issuer {
	if of.roles.batches == nil || of.inTransaction {
		return nil
	}
	i := &issuer{keyIssuer: of}
	spreads := func(err error) bool { return errors.Is(err, ErrUnavailable) }
	i.relying, i.host = batching.New(i.add, spreads), batching.New(i.add, spreads)
	return i
}

// issue adds a key, and returns its event. errSingle: its batch has not added it.
func (i *issuer) issue(ctx context.Context, by Principal, b *basis, key APIKey) ([]Event, error) {
	events := i.sign(by, happened(key.CreatedAt, event.APIKeyIssued, key.Target()))
	k := &newKey{Key: batching.Key[APIKey, Event]{
		Key: key, Event: events[0], Since: b.at, Caller: by.key,
	}, by: by, basis: b}
	batches := i.relying
	if k.Since == 0 {
		batches = i.host
	}
	err := batches.Do(ctx, k)
	if ended := ctx.Err(); ended != nil && err != nil {
		err = fmt.Errorf("%w: %w", ended, err)
	} else if err == nil && !k.added {
		err = errSingle
	}
	return events, err
}

// add adds the keys of a batch. It judges them when the transaction has begun.
func (i *issuer) add(ctx context.Context, take func(most int) []*newKey) error {
	var query AccessQuery
	i.count(&basis{most: i.most}, &query)
	b := batching.Keys[APIKey, Event]{Most: query.Most, ValidAt: query.ValidAt, Audit: i.keep}
	var keys []*newKey
	b.Take = func() (list []batching.Key[APIKey, Event]) {
		for _, k := range take(issuedTogether) {
			if i.refuses(k.by.Kind == KindHost) == nil && (k.Since == 0 || k.basis.key.Good(i.clock())) {
				keys, list = append(keys, k), append(list, k.Key)
			}
		}
		return list
	}
	added, err := i.roles.batches.AddAPIKeys(ctx, b)
	for n, is := range added {
		keys[n].added = is
	}
	return err
}

// createKey adds a key to the store. An id is known that follows from the hash of an imported key,
// or that the host can show before it commits. Then any process may hold that there is no such key,
// and createKey is a mutation.
func createKey(ctx context.Context, tx Store, key APIKey, known bool) error {
	err := tx.CreateAPIKey(ctx, key)
	if err == nil && known {
		err = tx.ChangeAPIKey(ctx, key.Holder, key.ID, func(*APIKey) (bool, error) {
			return true, nil
		})
	}
	return err
}

// issuedBefore returns a key as it was when issued, without later patches. It refuses a key that is
// revoked now: a caller must not take it for a working key. An expired or disabled key is returned.
func (s *Keys) issuedBefore(
	ctx context.Context, holder Identity, in NewAPIKey, answer issuedAnswer,
) (IssuedKey, error) {
	c, _ := s.keys.Claim(answer.Key) // under the present prefixes
	if !c.Good || c.Kind != string(holder.Kind) {
		return IssuedKey{}, keyReused(
			"the prefix of keys has changed since this idempotency key was used: draw another one")
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: c.ID})
	if err != nil {
		return IssuedKey{}, fault("read API key", err)
	}
	if snapshot.Key == nil || !snapshot.Key.RevokedAt.IsZero() {
		return IssuedKey{}, keyReused(
			"the API key that this request issued is revoked: draw another idempotency key")
	}
	issued := s.newKey(holder, c.Token)
	s.stamp(&issued.APIKey, in, answer.At)
	return issued, nil
}

// draw draws keys until store can keep one: at most issueTries, and only after ErrExists. store
// runs in its own transaction each time. In a transaction of the host, a taken id undoes only its
// own try.
func (s *Keys) draw(
	ctx context.Context, holder Identity, store func(*IssuedKey) error,
) (IssuedKey, error) {
	if s.readOnly { // there may be no tags
		return IssuedKey{}, errReadOnly
	}
	tags, err := s.tags(ctx)
	if err != nil {
		return IssuedKey{}, err
	}
	issued, err := IssuedKey{}, ErrExists // so that the loop begins
	for try := 0; try < issueTries && rowExists(err); try++ {
		issued = s.newKey(holder, s.keys.Draw(string(holder.Kind), tags))
		err = store(&issued)
	}
	return issued, err
}

// List lists the keys of a holder, of the caller ([Me]) or of all holders ([AllHolders]) that are
// not revoked: newest first, unless the query says otherwise, with expired and disabled keys. The
// caller needs iam:users:read; for a service account iam:service_accounts:manage, for its own
// iam:service_accounts:read, and for all holders the first two. For Me it needs no action, but must
// be a user that is not narrowed.
//
// Nothing happens before the loop over the sequence begins. The list is read 128 keys at a time, not
// in one snapshot. An error is the last value. Errors: CodeNotFound (a service account without a
// row; a query for all keys of an unknown user, as Config.Users says, who has none).
func (s *Keys) List(
	ctx context.Context, by Principal, holder Identity, query KeyQuery,
) iter.Seq2[APIKey, error] {
	page := APIKeyPage{Holder: by.or(holder), KeyQuery: query}
	page.Limit = chunkOf(query.Limit)
	page.ExpireBefore, page.UnusedSince = roundUp(query.ExpireBefore), roundUp(query.UnusedSince)
	return lists.Take(query.Limit, lists.Chunks(ctx, page, page.Limit, doing("list API keys"),
		func(*APIKeyPage) error {
			var c checker
			query.check(&c)
			if holder == AllHolders {
				return cmp.Or(c.err(), s.authorizeAll(ctx, by, false))
			}
			if err := errors.Join(c.err(), checkHolder(holder)); err != nil {
				return err
			}
			_, err := s.authorizeKeys(ctx, by, holder, false)
			return err
		},
		func(page APIKeyPage) ([]APIKey, error) {
			keys, err := s.store.APIKeys(ctx, page)
			all := KeyQuery{Limit: query.Limit, Bare: query.Bare}
			if err == nil && len(keys) == 0 && holder.Kind == KindUser && query == all {
				_, unknown := s.checkUser(ctx, by, holder.ID, false)
				if ErrorCode(unknown) == CodeNotFound { // a host that cannot say hides no list
					err = unknown
				}
			}
			return keys, cmp.Or(err, s.cached.Renew(ctx)) // decisions are not older than the list
		},
		func(p *APIKeyPage, last APIKey) { p.AfterTime, p.AfterID = query.Position(last), last.ID }))
}

// Find returns the key that a text names: a whole key, the prefix of one, or its id. It checks no
// secret. Revoked keys are found as well; the key has no Hash, Pepper or Seal. No event and no
// error repeats the text. A user that is not narrowed needs no action for its own keys. For others,
// the caller needs iam:users:read, and for those of service accounts also
// iam:service_accounts:manage. Errors: CodeNotFound.
func (s *Keys) Find(ctx context.Context, by Principal, name string) (APIKey, error) {
	key, err := s.keyNamed(ctx, name)
	if err != nil {
		return APIKey{}, err
	}
	if key.Holder != by.Identity() || authorizeMe(by) != nil {
		err := s.authorize(ctx, by, action.UsersRead)
		if err == nil && key.Holder.Kind == KindServiceAccount {
			err = s.authorize(ctx, by, action.AccountsManage)
		}
		if err != nil {
			return APIKey{}, err
		}
	}
	if key.ID == "" {
		return APIKey{}, notFound("there is no such key")
	}
	key.Hash, key.Pepper, key.Seal = nil, "", nil
	return key, nil
}

// keyNamed reads the key that a text names. The zero APIKey: there is none.
func (s *keyIssuer) keyNamed(ctx context.Context, name string) (APIKey, error) {
	whole, _ := s.keys.Claim(name) // a prefix of another system's key has the form of one
	for _, id := range []string{name[max(0, len(name)-token.IDLength):], whole.ID} {
		if text.IDProblem(id, limits.IDLength) != "" {
			continue
		}
		snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: id})
		if err != nil {
			return APIKey{}, fault("read API key", err)
		}
		s.cached.Hear(snapshot.Generation)
		key := snapshot.Key
		if key != nil &&
			(key.Prefix == name || key.ID == name || whole.Good && key.ID == whole.ID) {
			return *key, nil
		}
	}
	return APIKey{}, nil
}

// Import takes over a key of another system. From then on the Service accepts it like a key issued
// here. The rules for callers and the other errors are those of [Keys.Issue]; CodeExists when the
// key was imported before, even if it is revoked now.
//
// The store keeps a hash of the hash, under the pepper. The key's ID follows from the hash, without
// the pepper. [Keys.Rotate] replaces the key by one in the form of the Service. An invented bearer
// with the prefix costs a read of the store. The key counts for the limit of its holder. Event:
// [event.APIKeyImported].
func (s *Keys) Import(
	ctx context.Context, by Principal, holder Identity, in ImportedKey,
) (APIKey, error) {
	now := s.now()
	var c checker
	if c.holder(holder); holder == Me {
		c.add("user_id", "must name a holder: keys cannot be imported for the caller")
	}
	in.NewAPIKey.check(&c, now)
	if field, problem := s.keys.CheckImport(in.Prefix, in.Hash); problem != "" {
		c.add(field, problem)
	}
	if in.IdempotencyKey != "" {
		c.add(idempotencyHeader, "must be empty: a key cannot be imported twice")
	}
	if err := c.err(); err != nil {
		return APIKey{}, err
	}
	allowed, err := s.authorizeIssue(ctx, by, holder)
	if err != nil {
		return APIKey{}, err
	}
	if err := s.checkScoping(ctx, by, allowed.holder, in.ScopingPolicyID); err != nil {
		return APIKey{}, err
	}
	key := s.newKey(allowed.holder, token.Imported(in.Prefix, in.Hash)).APIKey
	s.stamp(&key, in.NewAPIKey, now)
	// Once: its id cannot be drawn again.
	err = s.addKey(ctx, by, allowed, key, event.APIKeyImported, nil)
	if rowExists(err) {
		return APIKey{}, taken("hash", "this key was imported before")
	} else if err != nil {
		return APIKey{}, fault("import API key", err)
	}
	return key, nil
}

// Introspect says whether a token is an accepted API key, for a gateway that checks the bearers of
// others (RFC 7662). A token that is not accepted is no error. The caller needs
// iam:keys:introspect.
//
// It accepts the keys that [Service.Authenticate] accepts, at the same cost, and the same follows a
// change. The use of an accepted key is recorded. The host's Authenticator is not asked. token is
// the token only, of any length; no event and no error repeats it.
func (s *Keys) Introspect(ctx context.Context, by Principal, token string) (Introspection, error) {
	if err := s.authorize(ctx, by, action.KeysIntrospect); err != nil {
		return Introspection{}, err
	}
	claim, isKey := s.keys.Claim(token)
	if !isKey {
		return Introspection{}, nil
	}
	key, err := s.callers.accept(ctx, claim)
	if ErrorCode(err) == CodeUnauthenticated {
		return Introspection{}, nil
	} else if err != nil {
		return Introspection{}, err
	}
	in := Introspection{
		Active: true, Holder: identityOf(key.Holder), ScopingPolicyID: key.Holder.NarrowedBy,
	}
	if key.Expires != 0 {
		in.ExpiresAt = time.UnixMicro(key.Expires).UTC()
	}
	return in, nil
}

// RevokeLeaked revokes those tokens that are keys issued here, for reports of secret scanners, and
// returns them in the order of tokens, without Hash and Seal. A token counts only as a whole key
// with its secret. Expired and disabled keys are revoked as well. Keys revoked earlier are left
// out.
//
// Only [Host] may call it. Each key is its own transaction with an [event.APIKeyRevoked]: on an
// error, RevokeLeaked also returns the keys that it has revoked. Tokens without the form of a key
// cost no call of the store.
func (s *Keys) RevokeLeaked(ctx context.Context, by Principal, tokens []string) ([]APIKey, error) {
	if by.Kind != KindHost {
		return nil, forbidden("only the host application may revoke leaked keys")
	}
	var revoked []APIKey
	for _, leaked := range tokens {
		key, err := s.goodKey(ctx, leaked)
		if err != nil {
			return revoked, err
		}
		if key == nil {
			continue
		}
		key.retire(s.now(), 0)
		err = s.storeRevocation(ctx, by, basis{}, *key, key.RevokedAt)
		if noRow(err) {
			s.forget(key.Target())
			continue
		} else if err != nil {
			return revoked, fault("revoke API key", err)
		}
		revoked = append(revoked, *key)
	}
	return revoked, nil
}

// goodKey reads the key that text contains. It returns nil for a text that is not a key issued
// here, and for a revoked key. It reads the store and not the cache, so that it also finds a key
// that another process issued just now.
func (s *Keys) goodKey(ctx context.Context, text string) (*APIKey, error) {
	c, ours := s.keys.Claim(text)
	if !ours || !c.Good {
		return nil, nil
	}
	if issued, err := s.issued(ctx, c); err != nil || !issued {
		return nil, err
	}
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: c.ID})
	if err != nil {
		return nil, fault("read API key", err)
	}
	key := snapshot.Key
	if key == nil || !key.RevokedAt.IsZero() || !s.matches(c, s.copyOf(key)) {
		s.forget(APIKey{ID: c.ID}.Target())
		return nil, nil
	}
	return key, nil
}

// Mask masks what may be an API key, for logs and answers that repeat a caller's text. Of a key in
// the form of the Service it leaves prefix and id. It replaces with "***" at least 16 visible
// characters, other than quotes, brackets and separators, after a prefix of Config.Keys.Imports.
func (s *Keys) Mask(text string) string { return s.keys.Mask(text) }
