package bench_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"

	"github.com/extsvc/svc"
)

// controlPlane is the bank whose policy a look-up of a key reads.
const controlPlane = "*"

func keyLookup(ctx context.Context, s *site) comparison {
	return comparison{exact: true, same: func() error { return s.sameKey(ctx) }, sides: []side{s.bareLookUp(ctx), {
		name: "service", call: func() error {
			_, err := s.store.Access(ctx, svc.AccessQuery{KeyID: s.anyKey().ID, BankID: controlPlane})
			return err
		},
	}}}
}

// authenticateKey compares the whole cost of an uncached bearer, including hashing, with reading
// its row. In a transaction of the host nothing is cached.
func authenticateKey(ctx context.Context, s *site) comparison {
	forgetful := s.service.WithStore(s.store)
	return comparison{exact: true, same: func() error { return s.sameKey(ctx) }, sides: []side{s.bareLookUp(ctx), {
		name: "service", call: func() error {
			_, err := forgetful.Authenticate(ctx, string(s.anyKey().Key))
			return err
		},
	}}}
}

// verifyKey compares a cached bearer with hashing its bytes once.
func verifyKey(ctx context.Context, s *site) comparison {
	const hot = 1000
	next := 0
	key := func() string {
		next = (next + 1) % hot
		return string(s.issued[next%len(s.issued)].Key)
	}
	secret := make([]byte, sha256.Size)
	return comparison{same: func() error { return s.sameKey(ctx) }, sides: []side{
		{name: "floor", call: func() error {
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(key()))
			mac.Sum(nil)
			return nil
		}},
		{name: "service", call: func() error {
			_, err := s.service.Authenticate(ctx, key())
			return err
		}},
	}}
}

func (s *site) bareLookUp(ctx context.Context) side {
	return side{name: "floor", call: func() error {
		_, err := s.bare.lookUpAccess(ctx, s.anyKey().ID, controlPlane)
		return err
	}}
}

func (s *site) sameKey(ctx context.Context) error {
	for range 10 {
		key := s.anyKey()
		row, failed := s.bare.lookUpAccess(ctx, key.ID, controlPlane)
		snapshot, err := s.store.Access(ctx, svc.AccessQuery{KeyID: key.ID, BankID: controlPlane})
		who, refused := s.service.Authenticate(ctx, string(key.Key))
		if err := errors.Join(failed, err, refused); err != nil {
			return err
		}
		if err := errors.Join(equal(snapshot.Key.Hash, row.key.Hash), equal(who.Identity(), row.key.Holder)); err != nil {
			return err
		}
	}
	return nil
}

// readPrincipal compares one look-up with reading a key, its holder, everything that decides for
// the holder, and a bank's policy.
func readPrincipal(ctx context.Context, s *site) comparison {
	key := s.issued[0]
	read := func() (svc.AccessSnapshot, error) {
		return s.store.Access(ctx, svc.AccessQuery{KeyID: key.ID, BankID: "bank"})
	}
	return comparison{
		sides: []side{
			{name: "floor", call: func() error {
				_, err := s.bare.lookUp(ctx, key.ID)
				return err
			}},
			{name: "service", call: func() error {
				_, err := read()
				return err
			}},
		},
		same: func() error {
			snapshot, err := read()
			return errors.Join(err, equal(len(snapshot.Grants), 2*groups), equal(snapshot.Key.Holder, key.Holder),
				equal(snapshot.User.ID, key.Holder.ID), equal(snapshot.BankPolicy.BankID, "bank"))
		},
	}
}

func issueKey(ctx context.Context, s *site) comparison {
	var last svc.IssuedKey
	var fresh []svc.IssuedKey
	floor := side{
		name: "floor",
		before: func(calls int) (err error) {
			fresh, err = makeKeys(ctx, calls, ofPrincipal)
			return err
		},
		call: func() error {
			key := fresh[0].APIKey
			fresh = fresh[1:]
			return s.bare.issue(ctx, key)
		},
	}
	service := side{name: "service", call: func() (err error) {
		last, err = s.service.Keys.Issue(ctx, svc.Host, principal, svc.NewAPIKey{})
		return err
	}}
	return comparison{exact: true, sides: []side{floor, service}, same: func() error {
		if err := floor.before(1); err != nil {
			return err
		}
		bare := fresh[0]
		err := errors.Join(floor.call(), service.call())
		for _, key := range []svc.IssuedKey{bare, last} {
			who, refused := s.service.Authenticate(ctx, string(key.Key))
			err = errors.Join(err, refused, equal(who.Identity(), principal))
		}
		return err
	}}
}

func revokeKey(ctx context.Context, s *site) comparison {
	var keys []svc.IssuedKey
	before := func(calls int) (err error) {
		if keys, err = makeKeys(ctx, calls, ofPrincipal); err != nil {
			return err
		}
		return s.insert(ctx, keys)
	}
	revoking := func(revoke func(svc.APIKey) error) func() error {
		return func() error {
			key := keys[0].APIKey
			keys = keys[1:]
			return revoke(key)
		}
	}
	sides := []side{
		{name: "floor", before: before, call: revoking(func(key svc.APIKey) error { return s.bare.revoke(ctx, key) })},
		{name: "service", before: before, call: revoking(func(key svc.APIKey) error {
			return s.service.Keys.Revoke(ctx, svc.Host, key.Holder, key.ID)
		})},
	}
	return comparison{exact: true, sides: sides, same: func() error {
		var err error
		for _, side := range sides {
			err = errors.Join(err, side.before(1))
			key := keys[0]
			err = errors.Join(err, side.call())
			if _, refused := s.service.Authenticate(ctx, string(key.Key)); svc.ErrorCode(refused) != svc.CodeUnauthenticated {
				err = errors.Join(err, errors.New(side.name+": the key is good still"))
			}
		}
		return err
	}}
}
