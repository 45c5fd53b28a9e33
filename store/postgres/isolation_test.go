package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlstore"
)

// A transaction of the host that sees an old state changes nothing by it, and relies on nothing of it.
func TestHostsOldStateDecidesNothing(t *testing.T) {
	t.Parallel()
	user := func(id string) svc.Principal { return svc.Principal{Kind: svc.KindUser, ID: id} }
	deactivate := func(s *svc.Service, by svc.Principal, id string) error {
		inactive := true
		_, err := s.Users.Patch(context.Background(), by, id, svc.UserPatch{Inactive: &inactive})
		return err
	}
	calls := map[string]func(s *svc.Service) error{
		"the last administrator": func(s *svc.Service) error { return deactivate(s, user("first"), "first") },
		"a right that is gone":   func(s *svc.Service) error { return deactivate(s, user("second"), "third") },
		"an issuer that is inactive": func(s *svc.Service) error {
			return failure(s.Keys.Issue(context.Background(), user("second"), holder, svc.NewAPIKey{}))
		},
	}
	for name, call := range calls {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(name+" "+level.String(), func(t *testing.T) {
				if level == sql.LevelSerializable {
					longtest.Test(t, "the other isolation with an old state")
				}
				is := parallel(t)
				h := newHost(t, open(t, migrated(t), postgres.Options{}))
				go func() {
					for range h.Events {
					}
				}()
				is.NoErr(h.Service.Access.Apply(t.Context(), svc.Host, svc.Bundle{
					Users: []svc.User{{ID: "first"}, {ID: "second"}, {ID: "third"}, {ID: holder.ID}},
					Attachments: []svc.Attachment{
						{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "first"}},
						{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "second"}},
					},
				}))
				tx := must(h.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level}))
				defer tx.Rollback()
				must(tx.Exec("SELECT 1 FROM accounts")) // the state of the transaction begins
				is.NoErr(deactivate(h.Service, user("first"), "second"))
				err := call(h.Service.WithTx(sqlstore.Tx(tx, postgres.Dialect())))
				is.True(err != nil)
				is.Equal(strings.Contains(fmt.Sprint(errors.Unwrap(err)), "begin it as READ COMMITTED"), level != sql.LevelReadCommitted)
			})
		}
	}
}
