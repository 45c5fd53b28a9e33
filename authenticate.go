package svc

import (
	"context"
	"errors"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/token"
)

// Authenticate finds the principal behind a bearer token: the holder of an issued key, or whomever the host's
// Authenticator finds for anything else. CodeUnauthenticated, always with the same message, when there is none, or an
// inactive one; CodeUnavailable when it cannot be told just now.
func (s *Service) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	if kind, ours := s.keys.kind(bearer); ours {
		return s.authenticateKey(ctx, kind, bearer)
	}
	return s.askAuthenticator(ctx, bearer)
}

func unauthenticated() *Error {
	return &Error{Code: CodeUnauthenticated, Message: "a valid bearer token is required"}
}

// authenticateKey makes at most one store call for a key whose id is well-formed, and none while its copies can be trusted: unknown,
// wrong, expired, disabled and revoked ones take the same way to the same answer.
func (s *Service) authenticateKey(ctx context.Context, kind Kind, bearer string) (Principal, error) {
	if err := ctx.Err(); err != nil {
		return Principal{}, fault("authenticate", err)
	}
	ring, err := s.ring(ctx)
	if err != nil {
		return Principal{}, err
	}
	t, ok := token.Parse(bearer, ring.prefixes[kind])
	if !ok {
		return Principal{}, unauthenticated()
	}
	key, holder, err := s.key(ctx, ring, t)
	if err != nil {
		return Principal{}, err
	}
	now := s.config.Now()
	if !ring.matches(kind, t, key) || !key.good(now) || holder.keysRest {
		return Principal{}, unauthenticated()
	}
	s.noteUse(ring, kind, t, key, now)
	return Principal{Kind: key.holder.Kind, ID: key.holder.ID}, nil
}

// key returns what is known of the key that a token claims to be, and of its holder. An id that was never issued is not looked up.
func (s *Service) key(ctx context.Context, ring *keyring, t token.Token) (keyCopy, *standing, error) {
	if s.copies != nil {
		if key, holder, ok := s.copies.key(t.ID); ok {
			return key, holder, nil
		}
	}
	switch {
	case !ring.issued(t):
		return keyCopy{}, nobody, nil
	case s.copies == nil:
		key, holder, _, err := s.readKey(ctx, t.ID)
		return key, holder, err
	}
	return s.copyKey(ctx, t.ID)
}

// copyKey reads a key, and all that its holder's requests need, and keeps copies. What others are reading just now it waits for.
func (s *Service) copyKey(ctx context.Context, id string) (keyCopy, *standing, error) {
	s.followStore()
	c := s.copies
	keyFence, bankFence, now := c.keys.Fence(idOf(id)), c.banks.Fence(controlPlane), c.holders.Now()
	if done, others := c.keys.Turn(keyFence, idOf(id)); done != nil {
		defer done()
	} else {
		wait(ctx, others)
		if key, holder, ok := c.key(id); ok {
			return key, holder, nil
		}
	}
	key, holder, bank, err := s.readKey(ctx, id)
	if err == nil {
		c.keys.Put(keyFence, idOf(id), key)
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
		key = copyOf(snapshot.Key)
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
		return Principal{}, &Error{Code: CodeUnavailable, Message: "the bearer token cannot be checked just now, try again later", Err: err}
	}
	if err := vouchable(p); err != nil {
		return Principal{}, &Error{Code: CodeInternal, Message: "an unexpected fault, see the server's log", Err: err}
	}
	known, _, err := s.standing(ctx, p.Identity(), controlPlane)
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
	for _, pattern := range p.Actions {
		if err := policy.ValidAction(pattern); err != nil {
			return errors.New("the host's Authenticator vouched for " + quote(pattern) + ", which " + err.Error())
		}
	}
	return nil
}
