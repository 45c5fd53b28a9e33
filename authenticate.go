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
	if kind, ours := s.keys.kind(bearer); ours {
		return s.authenticateKey(ctx, kind, bearer)
	}
	return s.askAuthenticator(ctx, bearer)
}

func unauthenticated() *Error {
	return &Error{Code: CodeUnauthenticated, Message: "a valid bearer token is required"}
}

// authenticateKey makes one store call for every key whose id is well-formed: unknown, wrong and revoked ones take
// the same way to the same answer.
func (s *Service) authenticateKey(ctx context.Context, kind Kind, bearer string) (Principal, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return Principal{}, err
	}
	t, ok := ring.parse(kind, bearer)
	if !ok {
		return Principal{}, unauthenticated()
	}
	credential, err := s.store.Credential(ctx, t.ID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Principal{}, fault("read API key", err)
	}
	matches := ring.matches(kind, t, credential.APIKey)
	if !matches || !credential.RevokedAt.IsZero() || !credential.active() {
		return Principal{}, unauthenticated()
	}
	return Principal{Kind: credential.Holder.Kind, ID: credential.Holder.ID}, nil
}

// active reports whether the key's holder may act: a user unless its row says no, a service account only by its row.
func (c Credential) active() bool {
	if c.Holder.Kind == KindServiceAccount {
		return c.ServiceAccount != nil && !c.ServiceAccount.Inactive
	}
	return c.User == nil || !c.User.Inactive
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
