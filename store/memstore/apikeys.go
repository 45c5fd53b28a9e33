package memstore

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/extsvc/svc"
)

// CreateAPIKey implements [svc.APIKeyStore].
func (s *Store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, taken := s.keys[key.ID]; taken {
		return svc.ErrExists
	}
	s.putKey(cloneKey(key))
	return nil
}

// putKey writes a key. All writes of keys go through it.
func (s *Store) putKey(key svc.APIKey) {
	put(s, s.keys, key.ID, key)
	if s.live[key.Holder] == nil {
		s.live[key.Holder] = map[string]svc.APIKey{} // stays, because a rollback may write to it
	}
	if key.RevokedAt.IsZero() {
		put(s, s.live[key.Holder], key.ID, key)
	} else {
		drop(s, s.live[key.Holder], key.ID)
	}
}

// countKeys counts the holder's keys that are not revoked, up to most, without those that have
// expired at a time that is not zero.
func (s *Store) countKeys(holder svc.Identity, most int, at time.Time) (live int) {
	for _, key := range s.live[holder] {
		if live == most {
			break
		}
		expired := !at.IsZero() && !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(at)
		if !expired {
			live++
		}
	}
	return live
}

// APIKeys implements [svc.APIKeyStore].
func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return first(s.liveKeys(page), page.Limit, func(key svc.APIKey) svc.APIKey {
		if page.Bare {
			key.Hash, key.Pepper, key.Seal = nil, "", nil
		}
		return cloneKey(key)
	}), nil
}

// liveKeys returns the keys behind page's last row, beyond its limit as well.
func (s *Store) liveKeys(page svc.APIKeyPage) []svc.APIKey {
	at, until := svc.APIKey.LastUse, page.UnusedSince
	if !page.ExpireBefore.IsZero() {
		at, until = func(k svc.APIKey) time.Time { return k.ExpiresAt }, page.ExpireBefore
	}
	compare := newestFirst
	if !until.IsZero() {
		compare = func(a, b svc.APIKey) int {
			return cmp.Or(at(a).Compare(at(b)), cmp.Compare(a.ID, b.ID))
		}
	}
	after := svc.APIKey{
		ID: page.AfterID, CreatedAt: page.AfterTime, ExpiresAt: page.AfterTime,
		LastUsedAt: page.AfterTime,
	}
	rows := s.keys
	if (page.Holder != svc.Identity{}) {
		rows = s.live[page.Holder]
	}
	return sortedRows(rows, func(key svc.APIKey) bool {
		return key.RevokedAt.IsZero() &&
			or(page.ScopingPolicyID, key.ScopingPolicyID) &&
			(until.IsZero() || !at(key).IsZero() && at(key).Before(until)) &&
			(page.AfterTime.IsZero() || compare(key, after) > 0)
	}, compare)
}

func newestFirst(a, b svc.APIKey) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

// ChangeAPIKey implements [svc.APIKeyStore].
func (s *Store) ChangeAPIKey(
	ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error),
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key, there := s.keys[id]
	if !there || key.Holder != holder || !key.RevokedAt.IsZero() {
		return svc.ErrNotFound
	}
	as := cloneKey(key)
	if write, err := change(&as); err != nil || !write {
		return err
	}
	key.Description, key.Disabled = cloneText(as.Description), as.Disabled
	key.ExpiresAt, key.RevokedAt, key.Rate = as.ExpiresAt, as.RevokedAt, as.Rate
	key.SuccessorID = as.SuccessorID
	key.Hash, key.Pepper, key.Seal = bytes.Clone(as.Hash), as.Pepper, bytes.Clone(as.Seal)
	s.putKey(key)
	s.recordChange(key.Target())
	return nil
}

// RevokeAPIKeys implements [svc.APIKeyStore].
func (s *Store) RevokeAPIKeys(
	ctx context.Context, holder svc.Identity, at time.Time, limit int,
) ([]string, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var ids []string
	var targets []svc.Target
	live := sortedRows(s.live[holder], func(svc.APIKey) bool { return true }, newestFirst)
	for _, key := range first(live, limit, same) {
		key.RevokedAt, key.Hash, key.Seal = at, nil, nil
		s.putKey(key)
		ids, targets = append(ids, key.ID), append(targets, key.Target())
	}
	if len(ids) > 0 {
		s.recordChange(targets...)
	}
	return ids, nil
}

// UseAPIKeys implements [svc.APIKeyStore].
func (s *Store) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, use := range uses {
		key, there := s.keys[use.ID]
		if !there {
			continue
		}
		if use.At.After(key.LastUsedAt) {
			key.LastUsedAt = use.At
		}
		s.putKey(key)
	}
	return nil
}

// KeepValue implements [svc.APIKeyStore].
func (s *Store) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if _, there := s.kept[name]; !there {
		put(s, s.kept, name, bytes.Clone(value))
		s.recordChange()
	}
	return bytes.Clone(s.kept[name]), nil
}

func cloneKey(key svc.APIKey) svc.APIKey {
	key.Description = cloneText(key.Description)
	key.Hash, key.Seal = bytes.Clone(key.Hash), bytes.Clone(key.Seal)
	return key
}
