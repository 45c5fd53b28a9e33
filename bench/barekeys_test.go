package bench_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/extsvc/svc"
)

// credentialRow is the columns of a key and of its holder.
type credentialRow struct {
	key                                    svc.APIKey
	created                                int64
	revoked                                *int64
	userID, userName, email                *string
	userInactive, accountInactive          *bool
	accountID, accountName, owner, scoping *string
}

func (b *bare) lookUp(ctx context.Context, id string) (credentialRow, error) {
	var r credentialRow
	k := &r.key
	err := b.credential.QueryRowContext(ctx, id).Scan(&k.ID, &k.Holder.Kind, &k.Holder.ID, &k.Prefix, &k.Description, &k.Hash, &k.Pepper,
		&r.created, &r.revoked, &r.userID, &r.userName, &r.email, &r.userInactive,
		&r.accountID, &r.accountName, &r.owner, &r.scoping, &r.accountInactive)
	return r, err
}

// credential is the row as a store returns it. All keys here are users'.
func (r credentialRow) credential() svc.Credential {
	c := svc.Credential{APIKey: r.key}
	c.CreatedAt = fromMicro(r.created)
	if r.revoked != nil {
		c.RevokedAt = fromMicro(*r.revoked)
	}
	if r.userID != nil {
		c.User = &svc.User{ID: *r.userID, DisplayName: *r.userName, Email: r.email, Inactive: *r.userInactive}
	}
	return c
}

func (b *bare) issue(ctx context.Context, key svc.APIKey) error {
	return b.mutate(ctx, key.Target(), func(tx *sql.Tx) error { return b.insertKey(ctx, tx, key) })
}

func (b *bare) insertKey(ctx context.Context, tx *sql.Tx, key svc.APIKey) error {
	_, err := tx.StmtContext(ctx, b.createKey).ExecContext(ctx, key.ID, key.Holder.Kind, key.Holder.ID, key.Prefix, key.Description,
		key.Hash, key.Pepper, key.CreatedAt.UnixMicro(), nil)
	return err
}

func (b *bare) revoke(ctx context.Context, key svc.APIKey) error {
	return b.mutate(ctx, key.Target(), func(tx *sql.Tx) error {
		_, err := tx.StmtContext(ctx, b.revokeKey).ExecContext(ctx, time.Now().UnixMicro(), key.ID, key.Holder.Kind, key.Holder.ID)
		return err
	})
}
