package svc

import (
	"context"
	"errors"
	"fmt"
)

// DefaultMaxKeysPerHolder is how many API keys that are not revoked a holder has at most, unless
// [KeyConfig].MaxPerHolder says otherwise.
const DefaultMaxKeysPerHolder = 1000

// mutateKeys is mutate for what makes or changes a key of a holder. In the transaction that writes
// it locks the keys of the holder, and judges the caller again: a caller whose key has ended since
// it was authenticated gets CodeUnauthenticated, and nothing is written. live is how many keys of
// the holder are not revoked, counted up to the most that are allowed.
//
// These locks are held until the transaction ends, and each has one job:
//
//   - The lock on changes of access ([AccessStore].ChangeAccess): an Apply that makes the caller inactive comes before or after.
//     It is the first to be taken, because an Apply may be long: nobody's key is locked while this call waits for one.
//   - The lock on the holder's keys ([APIKeyStore].LockAPIKeys): of two that count and then add, one counts what the other has added.
//   - The lock on the caller's own key ([APIKeyStore].ChangeAPIKey): a revocation of it comes before, and is seen, or after.
//
// A bearer of the host's Authenticator, and the host itself, have no key here.
func (s *Service) mutateKeys(ctx context.Context, by Principal, holder Identity, write keyMutation) error {
	return s.mutateLocked(ctx, by, by, holder, write)
}

// keyMutation writes keys of a holder that has live keys, and returns the events.
type keyMutation func(ctx context.Context, tx Store, live int) ([]Event, error)

// mutateLocked is mutateKeys, which judges another principal than the one that signs the events.
func (s *Service) mutateLocked(ctx context.Context, by, judged Principal, holder Identity, write keyMutation) error {
	return s.mutate(ctx, by, func(ctx context.Context, store Store) (events []Event, err error) {
		err = store.Atomically(ctx, func(ctx context.Context, tx Store) error {
			live, err := s.lockKeys(ctx, tx, judged, holder)
			if err != nil {
				return err
			}
			events, err = write(ctx, tx, live)
			return err
		})
		return events, err
	})
}

// lockKeys takes the locks of mutateKeys, judges the caller, and counts the holder's keys.
func (s *Service) lockKeys(ctx context.Context, tx Store, by Principal, holder Identity) (live int, err error) {
	if by.key != "" {
		if err := tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (Bundle, error) { return Bundle{}, nil }); err != nil {
			return 0, fmt.Errorf("lock access: %w", err)
		}
	}
	if live, err = tx.LockAPIKeys(ctx, holder, s.config.Keys.MaxPerHolder); err != nil || by.key == "" {
		return live, err
	}
	err = tx.ChangeAPIKey(ctx, by.Identity(), by.key, func(*APIKey) (bool, error) { return false, nil })
	if errors.Is(err, ErrNotFound) {
		return 0, s.ended(by)
	} else if err != nil {
		return 0, fmt.Errorf("lock the caller's API key: %w", err)
	}
	return live, s.judge(ctx, tx, by)
}

// judge refuses a caller whose key is not accepted any more, by what store holds now.
func (s *Service) judge(ctx context.Context, store Store, by Principal) error {
	if by.key == "" {
		return nil
	}
	snapshot, err := store.Access(ctx, AccessQuery{KeyID: by.key})
	if err != nil {
		return fault("read the caller's API key", err)
	}
	key := snapshot.Key
	if key == nil || key.Holder != by.Identity() || snapshot.keysRest(key.Holder) ||
		!s.keys.copyOf(key).good(s.config.Now()) || !s.keys.sealed(*key) {
		return s.ended(by)
	}
	return nil
}

// ended is the answer to a caller whose key was accepted a moment ago.
func (s *Service) ended(by Principal) error {
	s.forget(APIKey{ID: by.key, Holder: by.Identity()}.Target())
	return unauthenticated()
}

// keysRest reports whether nobody may act with the keys of a holder, whom the snapshot is about:
// it, or its owner, is inactive, or it is a service account that is gone. A user needs no row.
func (a AccessSnapshot) keysRest(holder Identity) bool {
	switch user, account := a.User, a.ServiceAccount; holder.Kind {
	case KindUser:
		return user != nil && user.Inactive
	case KindServiceAccount:
		return account == nil || account.Inactive || user == nil || user.Inactive
	}
	return true
}

// room refuses one more key to a holder that has as many as are allowed.
func (s *Service) room(live int) error {
	if most := s.config.Keys.MaxPerHolder; live >= most {
		return &Error{Code: CodeLimit, Message: fmt.Sprintf("the holder has %d API keys that are not revoked, and more are not allowed: revoke one first", most)}
	}
	return nil
}
