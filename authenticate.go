package svc

import (
	"context"
	"errors"

	"github.com/extsvc/svc/internal/policy"
)

// Authenticate finds the principal behind a bearer token: the holder of an issued key, or whomever the host's
// Authenticator finds for anything else. CodeUnauthenticated, always with the same message, when there is none, or an
// inactive one; CodeUnavailable when it cannot be told just now.
func (s *Service) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	if c, ours := s.keys.claim(bearer); ours {
		return s.authenticateKey(ctx, c)
	}
	return s.askAuthenticator(ctx, bearer)
}

func unauthenticated() *Error {
	return &Error{Code: CodeUnauthenticated, Message: "a valid bearer token is required"}
}

// authenticateKey makes at most one store call for a key whose id is well-formed, and none while its copies can be trusted: unknown,
// wrong, expired, disabled and revoked ones take the same way to the same answer.
func (s *Service) authenticateKey(ctx context.Context, c claim) (Principal, error) {
	if err := ctx.Err(); err != nil {
		return Principal{}, fault("authenticate", err)
	}
	if !c.good {
		return Principal{}, unauthenticated()
	}
	ring, err := s.ring(ctx)
	if err != nil {
		return Principal{}, err
	}
	key, holder, err := s.key(ctx, ring, c)
	if err != nil {
		return Principal{}, err
	}
	now := s.config.Now()
	if !ring.matches(c, key) || !key.good(now) || holder.keysRest {
		return Principal{}, unauthenticated()
	}
	s.noteUse(ring, c, key, now)
	return Principal{Kind: key.holder.Kind, ID: key.holder.ID, ScopingPolicyID: key.holder.narrowedBy, key: c.ID}, nil
}

// key returns what is known of the key that is claimed, and of its holder. An id that was never issued is not looked up.
func (s *Service) key(ctx context.Context, ring *keyring, c claim) (keyCopy, *standing, error) {
	if s.copies != nil {
		if key, holder, ok := s.copies.key(c.ID); ok {
			return key, holder, nil
		}
	}
	switch {
	case !ring.issued(c):
		return keyCopy{}, nobody, nil
	case s.copies == nil:
		key, holder, _, err := s.readKey(ctx, c.ID)
		return key, holder, err
	}
	return s.copyKey(ctx, c.ID)
}

// copyKey reads a key, and all that its holder's requests need, and keeps copies. What others are reading just now it waits for.
func (s *Service) copyKey(ctx context.Context, id string) (keyCopy, *standing, error) {
	s.followStore()
	c := s.copies
	keyFence, bankFence, now := c.keys.Fence(idOf(id)), c.banks.Fence(controlPlane), c.holders.Now()
	defer turn(ctx, c.keys, keyFence, idOf(id))()
	if key, holder, ok := c.key(id); ok {
		return key, holder, nil
	}
	key, holder, bank, err := s.readKey(ctx, id)
	if err == nil {
		c.keys.keep(keyFence, idOf(id), key)
		c.banks.Put(bankFence, controlPlane, bank)
		c.holders.PutSince(now, key.holder, holder)
	}
	return key, holder, err
}

// readKey reads a key, its holder and the bank that stands for this service, in one snapshot.
func (s *Service) readKey(ctx context.Context, id string) (keyCopy, *standing, bankCopy, error) {
	snapshot, err := s.store.Access(ctx, AccessQuery{KeyID: id, BankID: controlPlane})
	if err != nil {
		return keyCopy{}, nobody, bankCopy{}, fault("read API key", err)
	}
	var key keyCopy
	if snapshot.Key != nil {
		key = s.keys.copyOf(snapshot.Key)
		if !s.keys.sealed(*snapshot.Key) {
			s.reportEdited(ctx, id)
			key.closed = true
		}
	}
	key.generation = snapshot.Generation
	holder, bank := s.snapshotStanding(key.holder, snapshot)
	return key, holder, bank, nil
}

func (s *Service) askAuthenticator(ctx context.Context, bearer string) (Principal, error) {
	if s.config.Authenticator == nil || bearer == "" {
		return Principal{}, unauthenticated()
	}
	p, err := s.config.Authenticator.Authenticate(ctx, bearer)
	if errors.Is(err, ErrUnauthenticated) || ErrorCode(err) == CodeUnauthenticated {
		return Principal{}, unauthenticated()
	} else if err != nil {
		return Principal{}, &Error{Code: CodeUnavailable, Message: "the bearer token cannot be checked just now, try again later", Err: Secret(bearer).hideIn(err)}
	}
	if err := vouchable(p); err != nil {
		return Principal{}, &Error{Code: CodeInternal, Message: "an unexpected fault, see the server's log", Err: err}
	}
	known, _, err := s.standing(ctx, p.actor(), controlPlane)
	if err != nil {
		return Principal{}, err
	}
	if known.inactive {
		return Principal{}, unauthenticated()
	}
	return p, nil
}

// vouchable says what is wrong with a principal that the host's Authenticator returned.
func vouchable(p Principal) error {
	if p.Kind != KindUser && p.Kind != KindServiceAccount {
		return errors.New("the host's Authenticator returned a principal of kind " + quote(string(p.Kind)))
	}
	if problem := idProblem(p.ID); problem != "" {
		return errors.New("the host's Authenticator returned a principal whose id " + problem)
	}
	if problem := idProblem(p.ScopingPolicyID); p.ScopingPolicyID != "" && problem != "" {
		return errors.New("the host's Authenticator returned a principal whose scoping policy's id " + problem)
	}
	for _, pattern := range p.Actions {
		if err := policy.ValidVouch(pattern); err != nil {
			return errors.New("the host's Authenticator vouched for " + quote(pattern) + ", which " + err.Error())
		}
	}
	return nil
}
