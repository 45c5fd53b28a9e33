package sqlite_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlstore"
)

// keeping returns a service that keeps events.
func keeping(t *testing.T, store *sqlstore.Store) *svc.Service {
	t.Helper()
	service := must(svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}, Keys: svc.KeyConfig{
		Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}},
	}}))
	t.Cleanup(func() { _ = service.Close() })
	return service
}

// TestMutationsThatAreKeptShareCommits: the mutation's transaction writes the record, so it costs
// no extra commit.
func TestMutationsThatAreKeptShareCommits(t *testing.T) {
	is := is.New(t)
	seen := &tap{}
	c := newCrowd(t, tappedDB(t, migrated(t), seen))
	service := keeping(t, c.store)
	for i := range 16 {
		c.join(t.Context(), func(ctx context.Context) {
			if err := sqltest.CreateTemplate(ctx, service, fmt.Sprint(i%12)); (err != nil) != (svc.ErrorCode(err) == svc.CodeExists) {
				t.Error(err)
			}
		})
	}
	c.letGo(t)
	is.Equal(seen.commits.Load(), int64(1))
	is.Equal(sqltest.Generation(t, c.store), int64(12))
	check := must(service.Audit.Verify(t.Context(), svc.Host))
	is.Equal(check.Fault, nil)
	is.Equal(check.Newest.Number, int64(12)) // and none of those that were refused
}

// TestVerifyFindsEditsOfTheDatabase edits the records like an attacker who can write the file.
func TestVerifyFindsEditsOfTheDatabase(t *testing.T) {
	is := is.New(t)
	path := migrated(t)
	service := keeping(t, open(t, path).Store)
	for i := range 20 {
		is.NoErr(sqltest.CreateTemplate(t.Context(), service, fmt.Sprint(i)))
	}
	sound := must(service.Audit.Verify(t.Context(), svc.Host))
	is.Equal(sound.Fault, nil)
	is.Equal([]int64{sound.Oldest.Number, sound.Newest.Number}, []int64{1, 20})
	db := raw(t, path)
	for _, edit := range []struct {
		statement string
		fault     int64
	}{
		{`DELETE FROM svc_audit WHERE number <= 4`, 0}, // which is allowed
		{`UPDATE svc_audit SET row_was = '{}' WHERE number = 19`, 19},
		{`UPDATE svc_audit SET row_is = 'null' WHERE number = 18`, 18},
		{`UPDATE svc_audit SET actor_id = 'eve' WHERE number = 17`, 17},
		{`UPDATE svc_audit SET happened_at = happened_at - 1 WHERE number = 15`, 15},
		{`DELETE FROM svc_audit WHERE number = 13`, 14},
		{`UPDATE svc_audit SET number = 100 + number WHERE number IN (9, 10)`, 11},
		{`UPDATE svc_audit SET number = 119 - number WHERE number > 100 AND number < 120`, 9},
		{`UPDATE svc_audit SET hash = previous WHERE number = 8`, 8},
		{`UPDATE svc_audit SET previous = NULL WHERE number = 5`, 5},
	} {
		must(db.Exec(edit.statement))
		check := must(service.Audit.Verify(t.Context(), svc.Host, sound.Newest))
		if (check.Fault == nil) != (edit.fault == 0) || check.Fault != nil && check.Fault.Number != edit.fault {
			t.Errorf("%s: %+v, want %d", edit.statement, check.Fault, edit.fault)
		}
	}
}
