package svc

import (
	"context"
	"errors"
	"iter"
	"time"
)

// APIKey is an issued key as it is kept: without the key itself.
type APIKey struct {
	ID          string // the 16 characters behind the key's prefix
	Holder      Identity
	Prefix      string // the key's first characters, its id included: unique, and no secret
	Description *string
	Hash        []byte // of kind, id and secret, under the pepper
	Pepper      string // the pepper's version; "" none
	CreatedAt   time.Time
	RevokedAt   time.Time // zero: it is good
}

// IssuedKey is a new key: the only time that the key itself is seen.
type IssuedKey struct {
	APIKey
	Key Secret
}

// Credential is what judging a key needs to know, read in one snapshot.
type Credential struct {
	APIKey
	User           *User           // of a user's key; nil: no row. Its channels are not read
	ServiceAccount *ServiceAccount // of a service account's key; nil: no row
}

// APIKeyStore keeps API keys.
type APIKeyStore interface {
	// CreateAPIKey adds a key. ErrExists when its id is taken.
	CreateAPIKey(ctx context.Context, key APIKey) error
	// Credential returns the key with that id, revoked or not, with its holder's row. ErrNotFound.
	Credential(ctx context.Context, id string) (Credential, error)
	// APIKeys returns a chunk of the holder's keys that are not revoked, newest first (CreatedAt, then ID,
	// descending), behind page's last row. A chunk may be shorter than page.Limit; only an empty one is the end.
	APIKeys(ctx context.Context, page APIKeyPage) ([]APIKey, error)
	// RevokeAPIKey marks the holder's key as revoked. ErrNotFound when it is unknown, another's or revoked before.
	RevokeAPIKey(ctx context.Context, holder Identity, id string, at time.Time) error
	// KeepValue returns the value kept under name, after keeping value if there was none. All callers, in all
	// processes, get the same.
	KeepValue(ctx context.Context, name string, value []byte) ([]byte, error)
}

// APIKeyPage asks for one chunk of a list of keys.
type APIKeyPage struct {
	Holder    Identity
	AfterTime time.Time // CreatedAt and ID of the last row of the chunk before; zero from the start
	AfterID   string
	Limit     int // at most so many, > 0
}

// IssueAPIKey issues a key for a user, or for a service account when by is [Host]. The caller needs iam:users:write, must
// not be a service account, and must itself have every control-plane right that the holder has. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound (a user whom Config.KnownUser does not know).
func (s *Service) IssueAPIKey(ctx context.Context, by Principal, holder Identity, description *string) (IssuedKey, error) {
	if err := checkKeyRequest(holder, description); err != nil {
		return IssuedKey{}, err
	}
	if by.Kind == KindServiceAccount {
		return IssuedKey{}, forbidden("a service account issues no keys")
	}
	if err := s.authorizeKeys(ctx, by, holder, ActionUsersWrite); err != nil {
		return IssuedKey{}, err
	}
	return s.issue(ctx, by, holder, description)
}

// IssueMyAPIKey issues a key for the calling user. Errors: CodeInvalid, CodeForbidden (a service account).
func (s *Service) IssueMyAPIKey(ctx context.Context, by Principal, description *string) (IssuedKey, error) {
	var c checker
	c.optionalText("/description", description, MaxDescriptionLength)
	if err := c.err(); err != nil {
		return IssuedKey{}, err
	}
	if err := authorizeMe(by); err != nil {
		return IssuedKey{}, err
	}
	return s.issue(ctx, by, by.Identity(), description)
}

func checkKeyRequest(holder Identity, description *string) error {
	var c checker
	if holder.Kind != KindUser && holder.Kind != KindServiceAccount {
		c.add("kind", "must be a user or a service account")
	}
	c.id(holderField(holder), holder.ID)
	c.optionalText("/description", description, MaxDescriptionLength)
	return c.err()
}

func holderField(holder Identity) string {
	if holder.Kind == KindServiceAccount {
		return "sa_id"
	}
	return "user_id"
}

// issueTries is how often a key is drawn anew because its id is taken, which happens once in some 2^59 draws.
const issueTries = 4

// issue makes, stores and announces a key.
func (s *Service) issue(ctx context.Context, by Principal, holder Identity, description *string) (IssuedKey, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return IssuedKey{}, err
	}
	issued, err := IssuedKey{}, ErrExists
	for try := 0; try < issueTries && errors.Is(err, ErrExists); try++ {
		issued = ring.generate(holder)
		issued.Description, issued.CreatedAt = description, s.now()
		err = s.store.CreateAPIKey(ctx, issued.APIKey)
	}
	if err != nil {
		return IssuedKey{}, fault("issue API key", err)
	}
	return issued, s.committed(ctx, issued.CreatedAt, by, EventAPIKeyIssued, issued.Target())
}

// APIKeys lists the good keys of a user, newest first. The caller needs iam:users:read. The error, if any, is the last
// thing yielded.
func (s *Service) APIKeys(ctx context.Context, by Principal, holder Identity) iter.Seq2[APIKey, error] {
	return s.listKeys(ctx, holder, func() error {
		if err := checkID(holderField(holder), holder.ID); err != nil {
			return err
		}
		return s.authorizeKeys(ctx, by, holder, ActionUsersRead)
	})
}

// MyAPIKeys lists the calling user's good keys, newest first. The error, if any, is the last thing yielded.
func (s *Service) MyAPIKeys(ctx context.Context, by Principal) iter.Seq2[APIKey, error] {
	return s.listKeys(ctx, by.Identity(), func() error { return authorizeMe(by) })
}

func (s *Service) listKeys(ctx context.Context, holder Identity, allowed func() error) iter.Seq2[APIKey, error] {
	page := APIKeyPage{Holder: holder, Limit: listChunk}
	return list(ctx, "list API keys",
		allowed,
		func() ([]APIKey, error) { return s.store.APIKeys(ctx, page) },
		func(last APIKey) { page.AfterTime, page.AfterID = last.CreatedAt, last.ID })
}

// RevokeAPIKey revokes a holder's key: nothing accepts it after this returns. The caller needs iam:users:write and every
// control-plane right that the holder has. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (s *Service) RevokeAPIKey(ctx context.Context, by Principal, holder Identity, id string) error {
	if err := errors.Join(checkID(holderField(holder), holder.ID), checkID("key_id", id)); err != nil {
		return err
	}
	if err := s.authorizeKeys(ctx, by, holder, ActionUsersWrite); err != nil {
		return err
	}
	return s.revoke(ctx, by, holder, id)
}

// RevokeMyAPIKey revokes a key of the calling user. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (s *Service) RevokeMyAPIKey(ctx context.Context, by Principal, id string) error {
	if err := checkID("key_id", id); err != nil {
		return err
	}
	if err := authorizeMe(by); err != nil {
		return err
	}
	return s.revoke(ctx, by, by.Identity(), id)
}

func (s *Service) revoke(ctx context.Context, by Principal, holder Identity, id string) error {
	now := s.now()
	if err := s.store.RevokeAPIKey(ctx, holder, id, now); errors.Is(err, ErrNotFound) {
		return notFound("there is no such API key")
	} else if err != nil {
		return fault("revoke API key", err)
	}
	return s.committed(ctx, now, by, EventAPIKeyRevoked, APIKey{ID: id, Holder: holder}.Target())
}

// Target is the key, for events and change feeds.
func (k APIKey) Target() Target { return Target{Kind: TargetAPIKey, ID: k.ID, Holder: k.Holder} }
