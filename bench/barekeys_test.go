package bench_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/extsvc/svc"
)

// keyRow holds the columns of a key.
type keyRow struct {
	svc.APIKey
	created                    int64
	revoked, expires, lastUsed *int64
	disabled                   int64
}

func (r *keyRow) columns() []any {
	return []any{&r.ID, &r.Holder.Kind, &r.Holder.ID, &r.Prefix, &r.Description, &r.Hash, &r.Pepper, &r.created, &r.revoked,
		&r.expires, &r.disabled, &r.lastUsed, &r.ScopingPolicyID, &r.Seal}
}

// accessRow holds the columns of a key, its holder, and the holder's rights.
type accessRow struct {
	generation                                   int64
	bank, scopingDocument, narrowing             []byte
	userID, userName, email, groups, grants      *string
	userInactive, accountInactive                *bool
	accountID, accountName, owner, scoping, name *string
	narrowName                                   *string
	key                                          keyRow
}

// boundary separates the texts of policies. It is as long as a random one.
const boundary = "##########"

// lookUp reads a key and its holder.
func (b *bare) lookUp(ctx context.Context, id string) (accessRow, error) {
	var r accessRow
	err := b.key.QueryRowContext(ctx, id).Scan(append(r.key.columns(), &r.userID, &r.userName, &r.email, &r.userInactive,
		&r.accountID, &r.accountName, &r.owner, &r.scoping, &r.accountInactive)...)
	return r, err
}

func (b *bare) lookUpAccess(ctx context.Context, id, bank string) (accessRow, error) {
	var r accessRow
	err := b.access.QueryRowContext(ctx, boundary, bank, id).Scan(append([]any{
		&r.generation, &r.bank, &r.userID, &r.userName, &r.email, &r.userInactive, &r.groups, &r.grants,
		&r.accountID, &r.accountName, &r.owner, &r.scoping, &r.accountInactive, &r.name, &r.scopingDocument,
		&r.narrowName, &r.narrowing,
	}, r.key.columns()...)...)
	return r, err
}

func (b *bare) issue(ctx context.Context, key svc.APIKey) error {
	return b.mutate(ctx, key.Target(), func(tx *sql.Tx) error {
		if b.lockHolder != nil {
			if _, err := tx.StmtContext(ctx, b.lockHolder).ExecContext(ctx, key.Holder.Kind, key.Holder.ID); err != nil {
				return err
			}
		}
		var live int
		if err := tx.StmtContext(ctx, b.countKeys).QueryRowContext(ctx, key.Holder.Kind, key.Holder.ID, 1000).Scan(&live); err != nil {
			return err
		}
		return b.insertKey(ctx, tx, key)
	})
}

func (b *bare) insertKey(ctx context.Context, tx *sql.Tx, key svc.APIKey) error {
	_, err := tx.StmtContext(ctx, b.createKey).ExecContext(ctx, key.ID, key.Holder.Kind, key.Holder.ID, key.Prefix, key.Description,
		key.Hash, key.Pepper, key.CreatedAt.UnixMicro(), nil, nil, 0, nil, key.ScopingPolicyID, key.Seal)
	return err
}

func (b *bare) revoke(ctx context.Context, key svc.APIKey) error {
	return b.mutate(ctx, key.Target(), func(tx *sql.Tx) error {
		if _, err := tx.StmtContext(ctx, b.lockKey).ExecContext(ctx, key.ID, key.Holder.Kind, key.Holder.ID); err != nil {
			return err
		}
		var row keyRow
		if err := tx.StmtContext(ctx, b.lockedKey).QueryRowContext(ctx, key.ID).Scan(row.columns()...); err != nil {
			return err
		}
		_, err := tx.StmtContext(ctx, b.updateKey).ExecContext(ctx, row.Description, row.expires, row.disabled,
			time.Now().UnixMicro(), nil, row.Pepper, nil, row.ID)
		return err
	})
}
