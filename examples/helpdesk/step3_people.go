package main

import (
	"context"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// Step 3: people. The host has a row of each person, and svc has the rights and keys.

// signUp adds a person to a team and issues an API key. All is in one transaction of the host: an
// error leaves nothing.
func (d *desk) signUp(
	ctx context.Context, person, team string, key svc.NewAPIKey,
) (svc.Secret, error) {
	tx, err := d.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO people (id) VALUES (?)`, person); err != nil {
		return "", err
	}
	inTx := d.service.WithTx(sqlstore.Tx(tx, sqlite.Dialect()))
	if _, err := inTx.Users.Create(ctx, svc.Host, svc.User{ID: person}); err != nil {
		return "", err
	}
	if err := inTx.Groups.AddMembers(ctx, svc.Host, team, person); err != nil {
		return "", err
	}
	issued, err := inTx.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: person}, key)
	if err != nil {
		return "", err
	}
	return issued.Key, tx.Commit()
}
