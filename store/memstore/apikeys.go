package memstore

import (
	"cmp"
	"context"
	"slices"
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
	s.keys[key.ID] = cloneKey(key)
	s.changed(key.Target())
	return nil
}

// Credential implements [svc.APIKeyStore].
func (s *Store) Credential(ctx context.Context, id string) (svc.Credential, error) {
	if err := s.lock(ctx); err != nil {
		return svc.Credential{}, err
	}
	defer s.mu.Unlock()
	key, err := found(s.keys, id, cloneKey)
	if err != nil {
		return svc.Credential{}, err
	}
	credential := svc.Credential{APIKey: key}
	switch key.Holder.Kind {
	case svc.KindUser:
		credential.User = foundOrNil(s.users, key.Holder.ID, withoutChannels)
	case svc.KindServiceAccount:
		credential.ServiceAccount = foundOrNil(s.serviceAccounts, key.Holder.ID, same)
	}
	return credential, nil
}

// APIKeys implements [svc.APIKeyStore].
func (s *Store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	after := svc.APIKey{CreatedAt: page.AfterTime, ID: page.AfterID}
	fromStart := page.AfterTime.IsZero()
	var chunk []svc.APIKey
	for _, key := range s.keys {
		if key.Holder == page.Holder && key.RevokedAt.IsZero() && (fromStart || newestFirst(key, after) > 0) {
			chunk = append(chunk, key)
		}
	}
	slices.SortFunc(chunk, newestFirst)
	return first(chunk, page.Limit, cloneKey), nil
}

func newestFirst(a, b svc.APIKey) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

// RevokeAPIKey implements [svc.APIKeyStore].
func (s *Store) RevokeAPIKey(ctx context.Context, holder svc.Identity, id string, at time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key, there := s.keys[id]
	if !there || key.Holder != holder || !key.RevokedAt.IsZero() {
		return svc.ErrNotFound
	}
	key.RevokedAt = at
	s.keys[id] = key
	s.changed(key.Target())
	return nil
}

// KeepValue implements [svc.APIKeyStore].
func (s *Store) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if _, there := s.kept[name]; !there {
		s.kept[name] = cloneBytes(value)
		s.changed()
	}
	return cloneBytes(s.kept[name]), nil
}

func cloneKey(key svc.APIKey) svc.APIKey {
	key.Description = cloneText(key.Description)
	key.Hash = cloneBytes(key.Hash)
	return key
}
