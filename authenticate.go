package svc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/rate"
	"github.com/extsvc/svc/internal/readcache"
	"github.com/extsvc/svc/internal/recent"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/limits"
)

// authenticator finds the principals of bearers. Each request calls it, so a cached key must cost
// no store call and no allocation.
type authenticator struct {
	*base
	*authorizer
	*keyHasher
	host      Authenticator // decides about bearers that are not keys; nil: refuses them
	uses      *keyring.Uses[newHash]
	known     *knownUsers // nil: the host is not asked for the users of keys and sessions
	writeUses func()      // starts the writer of key uses, once
}

// authenticate returns the principal of a bearer. It asks the host only about bearers that start
// with no prefix of keys: a mistyped key must not reach the host's logs.
func (s *authenticator) authenticate(ctx context.Context, bearer string) (Principal, error) {
	c, ours := s.keys.Claim(bearer)
	if !ours {
		return s.askAuthenticator(ctx, bearer)
	}
	key, err := s.accept(ctx, c)
	if err != nil {
		return Principal{}, err
	}
	return Principal{
		Kind: Kind(key.Holder.Kind), ID: key.Holder.ID,
		ScopingPolicyID: key.Holder.NarrowedBy, key: c.ID, rate: Rate(key.Rate),
	}, nil
}

// unauthenticated is the one answer to every bearer that is not accepted. A message for each reason
// would tell which keys exist.
func unauthenticated() *Error {
	return &Error{Code: CodeUnauthenticated, Message: "a valid bearer token is required"}
}

// accept returns a claimed key that is good, and records its use. It makes at most one store call
// for a key with a well-formed id, and none while the cache can be trusted. Unknown, wrong,
// expired, disabled and revoked keys take the same path to the same answer.
//
// The hash is compared in constant time and before the other conditions. So a caller without the
// secret cannot tell them apart by the time of the answer. An unknown key is compared as well, with
// the zero hash.
func (s *authenticator) accept(ctx context.Context, c keyring.Claim) (readcache.Key, error) {
	if err := ctx.Err(); err != nil {
		return readcache.Key{}, fault("authenticate", err)
	}
	if !c.Good {
		return readcache.Key{}, unauthenticated()
	}
	key, holder, err := s.key(ctx, c)
	if err != nil {
		return readcache.Key{}, err
	}
	now := s.clock()
	if !s.matches(c, key) || !key.Good(now) || holder.KeysRest {
		return readcache.Key{}, unauthenticated()
	}
	if s.known != nil {
		if err := s.known.check(ctx, identityOf(key.Holder), holder, now); err != nil {
			return readcache.Key{}, err
		}
	}
	s.noteUse(c, key, now)
	return key, nil
}

// key returns the cached or stored form of a claimed key, and its holder. It does not look up an id
// that was never issued. Without a key it returns the zero Key, which matches no claim. Both are of
// one state of the store. The holder is shared: do not change it.
func (s *authenticator) key(
	ctx context.Context, c keyring.Claim,
) (readcache.Key, *readcache.Standing, error) {
	if key, holder, ok := s.cached.Key(c.ID); ok {
		return key, holder, nil
	}
	if issued, err := s.issued(ctx, c); err != nil || !issued {
		return readcache.Key{}, nobody, err
	}
	return s.cached.LoadKey(ctx, c.ID, controlPlane, s.readKey)
}

// issued reports whether an id may belong to an issued key. It is false for an invented id: the tag
// in the id is a keyed hash, so strangers cannot make the store work. An id of an imported key has
// no tag and always may.
func (s *keyHasher) issued(ctx context.Context, c keyring.Claim) (bool, error) {
	tags, err := s.tags(ctx)
	return err == nil && tags.Issued(c), err
}

// matches reports whether the claim is that key. The kind of the holder is part of the hash: a row
// whose holder was edited into another kind does not match.
func (s *keyHasher) matches(c keyring.Claim, key readcache.Key) bool {
	return s.keys.Matches(c, string(key.Holder.Kind), key.Hash, key.Pepper)
}

// nobody is the holder of a key that was never issued.
var nobody = &readcache.Standing{KeysRest: true}

// readKey reads a key, its holder and the bank that stands for this service, in one snapshot. The
// bank comes along because most callers of a key go on to ask for a control-plane right. A missing
// key is cached like any other: the second try with a deleted key reads nothing.
//
// The seal is checked here and not at each use: to edit a cached key, a program would have to write
// this process's memory.
func (s *authenticator) readKey(
	ctx context.Context, id string,
) (readcache.Key, *readcache.Standing, readcache.Bank, error) {
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: id, BankID: controlPlane})
	if err != nil {
		return readcache.Key{}, nobody, readcache.Bank{}, fault("read API key", err)
	}
	var key readcache.Key
	if snapshot.Key != nil {
		key = s.copyOf(snapshot.Key)
		if !s.keys.Sealed(snapshot.Key.row()) {
			s.reportEdited(ctx, id)
			key.Closed = true
		}
	}
	key.Generation = snapshot.Generation
	holder, bank := s.snapshotStanding(key.Holder, snapshot)
	return key, holder, bank, nil
}

// copyOf returns the cached form of a key. It has no pointers, apart from the holder's names, so a
// million keys cost the garbage collector nothing. A key under an unknown or retired pepper keeps
// its row, but its place makes every comparison fail.
func (s *keyHasher) copyOf(k *APIKey) readcache.Key {
	key := readcache.Key{
		Holder: k.Holder.narrowed(k.ScopingPolicyID), Pepper: s.keys.Place(k.Pepper),
		Closed: k.Disabled || !k.RevokedAt.IsZero(), Unsealed: len(k.Seal) == 0,
		Rate: rate.Rate(k.Rate),
	}
	copy(key.Hash[:], k.Hash)
	if !k.ExpiresAt.IsZero() {
		key.Expires = k.ExpiresAt.UnixMicro()
	}
	if !k.LastUsedAt.IsZero() {
		key.Used = minuteOf(k.LastUsedAt)
	}
	return key
}

// reportEdited logs a key whose row this service has not written. It is an error, not a warning: a
// writer of the database may have tried to change what a key is good for.
func (s *keyHasher) reportEdited(ctx context.Context, id string) {
	s.log.ErrorContext(ctx, "svc: cannot accept an API key: another program has changed its row,"+
		" or its pepper has another secret than before", "api_key", id)
}

// askAuthenticator asks the host about a bearer. The host's error goes to the log without the
// bearer, which the error may quote.
func (s *authenticator) askAuthenticator(ctx context.Context, bearer string) (Principal, error) {
	if s.host == nil || bearer == "" {
		return Principal{}, unauthenticated()
	}
	p, err := s.host.Authenticate(ctx, bearer)
	if errors.Is(err, ErrUnauthenticated) {
		return Principal{}, unauthenticated()
	} else if err != nil {
		return Principal{}, &Error{
			Code:    CodeUnavailable,
			Message: "the bearer token cannot be checked now: try again later",
			Err:     Secret(bearer).hideIn(err),
		}
	}
	if err := s.acceptPrincipal(ctx, p); err != nil {
		return Principal{}, err
	}
	return p, nil
}

// acceptPrincipal checks a principal that the host has authenticated, and refuses an inactive one.
// The store must answer: without it, a user who was made inactive would pass.
func (s *authenticator) acceptPrincipal(ctx context.Context, p Principal) error {
	if err := vouchable(p); err != nil {
		return fault("authenticate", err)
	}
	known, _, err := s.standing(ctx, p.holder(), controlPlane)
	if err != nil {
		return err
	}
	if known.Inactive {
		return unauthenticated()
	}
	if s.known == nil {
		return nil
	}
	return s.known.check(ctx, p.Identity(), known, s.clock())
}

// KnownUserPeriod is how long the Service uses a positive answer of Config.Users.Known, by
// [Config].Now, where Config.Users.RequireKnown is set.
const KnownUserPeriod = 5 * time.Second

// knownUsers asks the host whether it knows the users of keys and sessions, and keeps its positive
// answers. It is safe for concurrent use.
type knownUsers struct {
	// ask is Config.Users.Known. Nil: a user is known by its row.
	ask   func(ctx context.Context, id string) (bool, error)
	known recent.Set
}

func newKnownUsers(ask func(ctx context.Context, id string) (bool, error)) *knownUsers {
	const most = 1 << 14 // their ids take at most 8 MiB
	return &knownUsers{ask: ask, known: recent.Set{Most: most, Period: KnownUserPeriod}}
}

// check refuses a principal whose user, or whose owner, the host does not know. A service account
// without a row has no owner: the host itself has named it.
func (k *knownUsers) check(
	ctx context.Context, who Identity, standing *readcache.Standing, now time.Time,
) error {
	user := who.ID
	if who.Kind == KindServiceAccount {
		user = standing.Owner
	}
	switch {
	case user == "":
		return nil
	case k.ask == nil && standing.User == "":
		return unauthenticated()
	case k.ask == nil || k.known.Has(user, now):
		return nil
	}
	known, err := k.ask(ctx, user)
	switch {
	case err != nil:
		return &Error{
			Code: CodeUnavailable, Err: err,
			Message: "whether the user is known cannot be checked now: try again later",
		}
	case !known:
		return unauthenticated()
	}
	k.known.Add(user, now) // from before the question
	return nil
}

// vouchable reports what is wrong with a principal that the host has authenticated. Such a mistake
// is a fault of the host and not of the caller: so it becomes CodeInternal, and is logged.
func vouchable(p Principal) error {
	if p.Kind != KindUser && p.Kind != KindServiceAccount {
		return errors.New("the host returned a principal of kind " + quote(string(p.Kind)))
	}
	if problem := text.IDProblem(p.ID, limits.IDLength); problem != "" {
		return errors.New("the host returned a principal whose id " + problem)
	}
	id := p.ScopingPolicyID
	if problem := text.IDProblem(id, limits.IDLength); id != "" && problem != "" {
		return errors.New("the host returned a principal whose scoping policy's id " + problem)
	}
	for _, pattern := range p.Actions {
		if err := policy.ValidVouch(pattern); err != nil {
			return errors.New("the host vouched for " + quote(pattern) + ", which " + err.Error())
		}
	}
	return nil
}

// Limits for recording the uses of keys.
const (
	useFlush   = 10 * time.Second // longest wait of a use in memory, while the store is reachable
	useBatch   = 256              // uses in one write
	useTimeout = 5 * time.Second  // for writing a batch
)

// newHash is a key's hash under the first pepper. It was made while the bearer was at hand: the
// store knows no secret to hash later.
type newHash struct {
	holder    Identity
	old, hash [sha256.Size]byte
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// noteUse records that a key was accepted: once a minute, and not in a transaction of the host. A
// key under an older pepper, or from before rows were sealed, gets a new hash under the first
// pepper. That happens at its first use in any minute, because its pepper may be retired in the
// next.
//
// The Service of a host's transaction has no background work that could write the use. The usual
// call only compares two minutes: it must not lock, wait for the store or allocate.
func (s *authenticator) noteUse(c keyring.Claim, key readcache.Key, now time.Time) {
	if s.inTransaction {
		return
	}
	minute := minuteOf(now)
	noted := minute <= key.Used || !s.cached.UseKey(c.ID, minute)
	moves := s.keys.Outdated(key.Pepper, key.Unsealed)
	if noted && (!moves || s.uses.Moves(c.ID)) {
		return
	}
	use := keyring.Use[newHash]{ID: c.ID, At: time.Unix(minute*60, 0).UTC()}
	if moves {
		use.New = &newHash{
			holder: identityOf(key.Holder), old: key.Hash,
			hash: s.keys.Hash(string(key.Holder.Kind), c.Token),
		}
	}
	s.uses.Add(use)
	s.writeUses()
}

// flush writes uses at intervals until ctx ends, and then writes the rest. So Close loses no use
// while the store is reachable.
func (s *authenticator) flush(ctx context.Context) {
	tick := time.NewTicker(useFlush)
	defer tick.Stop()
	for goesOn := true; goesOn; {
		goesOn = background.Wait(ctx, tick.C)
		s.flushOnce(context.WithoutCancel(ctx)) // after the look at ctx, so that it writes every earlier use
	}
}

// flushOnce writes the waiting uses. Uses that it cannot write keep waiting. Batches keep each
// transaction short: uses must not hold up mutations.
func (s *authenticator) flushOnce(ctx context.Context) {
	uses := s.uses.Take()
	for len(uses) > 0 {
		n := min(len(uses), useBatch)
		if err := s.writeBatch(ctx, uses[:n]); err != nil {
			s.log.WarnContext(ctx,
				"svc: cannot write when API keys were last used, will retry", "error", err)
			for _, use := range uses {
				s.uses.Add(use)
			}
			return
		}
		uses = uses[n:]
	}
}

// writeBatch writes uses, and then the new hashes of keys, one by one. The tag keys of older
// peppers come before the hashes. Once all keys have left a pepper, the host may drop its secret,
// but the ids made under it must still be known.
func (s *authenticator) writeBatch(ctx context.Context, batch []keyring.Use[newHash]) error {
	if s.readOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	uses := make([]LastUse, len(batch))
	for i, use := range batch {
		uses[i] = LastUse{ID: use.ID, At: use.At}
	}
	if err := s.store.UseAPIKeys(ctx, uses); err != nil {
		return err
	}
	moves := func(use keyring.Use[newHash]) bool { return use.New != nil }
	if !slices.ContainsFunc(batch, moves) {
		return nil
	}
	if err := s.keys.KeepTags(ctx, s.store); err != nil {
		return err
	}
	for _, use := range batch {
		if err := s.hashAnew(ctx, use); err != nil {
			return err
		}
	}
	return nil
}

// hashAnew writes the new hash of a key. It skips a key that has another hash by now, and a key
// whose row was changed by other means than this service. The latter would get a valid seal. It
// writes no event: the key is good for the same as before.
func (s *authenticator) hashAnew(ctx context.Context, use keyring.Use[newHash]) error {
	if use.New == nil {
		return nil
	}
	err := s.store.ChangeAPIKey(ctx, use.New.holder, use.ID, func(key *APIKey) (bool, error) {
		if !bytes.Equal(key.Hash, use.New.old[:]) || !s.keys.Sealed(key.row()) {
			return false, nil
		}
		key.Hash, key.Pepper = use.New.hash[:], s.keys.Version()
		s.seal(key)
		return true, nil
	})
	s.cached.DropKey(use.ID) // a stale copy would cause a new hash each minute
	if noRow(err) {          // revoked
		return nil
	}
	return err
}

// keyHasher makes and checks keys. A Service and its copies for transactions of the host share one
// Ring, which is safe for concurrent use.
type keyHasher struct {
	*base
	keys *keyring.Ring
}

// tags returns the keys of the tags in ids. In a transaction of the host, those from the store are
// not remembered, because a rollback may undo them.
func (s *keyHasher) tags(ctx context.Context) (keyring.Tags, error) {
	var keep keyring.Values // nil: a read-only Service keeps no value
	if !s.readOnly {
		keep = s.store
	}
	tags, err := s.keys.Tags(ctx, keep, !s.inTransaction)
	return tags, fault("read the key of API key ids", err)
}

// newKey returns a key that its holder does not have yet. It is not sealed, since the fields that
// the seal covers are not all set.
func (s *keyHasher) newKey(holder Identity, t token.Token) IssuedKey {
	hash := s.keys.Hash(string(holder.Kind), t)
	return IssuedKey{Key: Secret(t.String()), APIKey: APIKey{
		ID: t.ID, Holder: holder, Prefix: t.Prefix + t.ID,
		Hash: hash[:], Pepper: s.keys.Version(),
	}}
}

// stamp sets the requested fields of a new key, and seals it. The seal comes last: it covers them.
func (s *keyHasher) stamp(key *APIKey, in NewAPIKey, now time.Time) {
	key.Description, key.ScopingPolicyID = in.Description, in.ScopingPolicyID
	key.CreatedAt, key.ExpiresAt, key.Rate = now, in.ExpiresAt, in.Rate
	s.seal(key)
}

// seal sets the seal of a row, under the pepper of its hash. Call it after every change of a field
// that the seal covers: a row with an old seal is refused. Nil without a pepper.
func (s *keyHasher) seal(key *APIKey) { key.Seal = s.keys.Seal(key.row()) }

// lockOwn locks the caller's own key, if it has one, and judges it. It returns the generation of
// the store; 0: it has read nothing.
func (s *keyHasher) lockOwn(
	ctx context.Context, tx Store, by Principal,
) (generation int64, err error) {
	if by.key == "" {
		return 0, nil
	}
	var own AccessSnapshot
	if err = tx.Lock(ctx, Locks{RelyOnKey: by.key}); err == nil {
		own, err = s.judge(ctx, tx, by, AccessQuery{Bare: true}) // no change can come between
	}
	return own.Generation, err
}

// judge refuses a caller whose key is no longer accepted, by the present rows of store, and returns
// them. These are the checks of Authenticate without the secret, which the caller has shown
// already. It uses no cached row: the cache may not have the latest revocation of another process
// yet. The clock counts as well: a key may have expired while the transaction waited. query says
// what else to read.
func (s *keyHasher) judge(
	ctx context.Context, store Store, by Principal, query AccessQuery,
) (snapshot AccessSnapshot, err error) {
	query.KeyID, query.Identity, query.ScopingPolicyID = by.key, Identity{}, ""
	snapshot, err = store.Access(ctx, query)
	if err != nil {
		return snapshot, fault("read the caller's API key", err)
	}
	key := snapshot.Key
	if key == nil || key.Holder != by.Identity() || snapshot.keysRest(key.Holder) ||
		!s.copyOf(key).Good(s.clock()) || !s.keys.Sealed(key.row()) {
		// The key was accepted a moment ago: the cache may still hold it.
		s.forget(APIKey{ID: by.key, Holder: by.Identity()}.Target())
		return snapshot, unauthenticated() // the same answer for every reason
	}
	return snapshot, nil
}
