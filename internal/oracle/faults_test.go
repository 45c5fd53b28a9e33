package oracle_test

import (
	"context"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
)

// The oracle notices a service that lacks one of its rules: without the rule, the oracle disagrees.
func TestTheOracleNoticesEachRule(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	documents := []func(*scene) attempt{(*scene).patchPolicy}
	for rule, draws := range map[string][]func(*scene) attempt{
		"ceiling": nil, "broken ceiling": nil, "ceiling of keys": nil, "effect of keys": nil, "grant": nil, "taken": nil, "the inactive": nil,
		"accounts": nil, "senders": nil, "public": nil, "contexts": nil, "last administrator": nil, "own denies": nil,
		"activation": {(*scene).patchUser}, "narrowed keys": documents, "own narrowing": documents, // which matter in few attempts
	} {
		t.Run(rule, func(t *testing.T) { noticed(t, trials{ignored: rule, draws: draws}) })
	}
}

// The oracle notices a store that hides rows from the service, and a service that takes the caller for another one.
func TestTheOracleNoticesPlantedFaults(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	hiding := func(hide func(*svc.Bundle)) func(svc.Store) svc.Store {
		return func(store svc.Store) svc.Store { return &hidingStore{Store: store, hide: hide} }
	}
	for _, fault := range []struct {
		name string
		trials
	}{
		{"an attachment to a group is not seen", trials{wrap: hiding(func(b *svc.Bundle) {
			b.Attachments = slices.DeleteFunc(b.Attachments, func(a svc.Attachment) bool { return a.Principal.Type == svc.GrantedToGroup })
		})}},
		{"inactive users are not seen", trials{wrap: hiding(func(b *svc.Bundle) {
			b.Users = slices.DeleteFunc(b.Users, func(u svc.User) bool { return u.Inactive })
		})}},
		{"service accounts are not seen", trials{wrap: hiding(func(b *svc.Bundle) { b.ServiceAccounts = nil })}},
		{"policies of banks are not seen", trials{wrap: hiding(func(b *svc.Bundle) { b.BankPolicies = nil })}},
		{"narrowed keys are not seen", trials{wrap: func(store svc.Store) svc.Store { return &hidingStore{Store: store, keys: true} }}},
		{"the narrowing of the caller is forgotten", trials{as: func(by svc.Principal) svc.Principal {
			by.ScopingPolicyID = ""
			return by
		}}},
		{"what the host vouches for is forgotten", trials{as: func(by svc.Principal) svc.Principal {
			by.Actions = nil
			return by
		}}},
	} {
		t.Run(fault.name, func(t *testing.T) { noticed(t, fault.trials) })
	}
}

// noticed fails unless the trials end with a surprise.
func noticed(t *testing.T, p trials) {
	t.Helper()
	_, err := p.run(t, 100_000) // some rules matter in one attempt of ten thousand
	is.New(t).True(err != nil)  // the oracle and the service disagree
}

// hidingStore hides rows of access from what a service keeps for its comparisons, and not from decisions.
type hidingStore struct {
	svc.Store
	hide func(*svc.Bundle) // nil: nothing
	keys bool              // hides which keys a policy narrows
}

func (s *hidingStore) ReadAccess(ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error) (svc.StoreChanges, error) {
	return s.Store.ReadAccess(ctx, read, func(part svc.Bundle) error {
		if read.Bare && s.hide != nil {
			s.hide(&part)
		}
		return yield(part)
	})
}

func (s *hidingStore) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	if s.keys && page.ScopingPolicyID != "" {
		return nil, nil
	}
	return s.Store.APIKeys(ctx, page)
}

func (s *hidingStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, &hidingStore{tx, s.hide, s.keys}) })
}
