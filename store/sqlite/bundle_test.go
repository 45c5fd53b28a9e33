package sqlite_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// A transaction prepares each of its statements once, even the first transaction of a Store: many
// events cost no more preparations than few.
func TestTransactionsPrepareStatementsOnce(t *testing.T) {
	is := is.New(t)
	var readied []int64
	for _, events := range []int{2, 40} {
		seen := &tap{}
		store := tapped(t, migrated(t), seen)
		for range 2 {
			list := make([]svc.Event, events)
			for i := range list {
				list[i].ID = uuid.New()
			}
			is.NoErr(store.AddEvents(t.Context(), list))
			readied = append(readied, seen.readied.Swap(0))
		}
	}
	is.True(readied[0] > 0)
	is.Equal(readied[2:], readied[:2])
}

// The driver looks up each parameter by name, so the time of a statement grows with the square of
// its parameters.
func TestStatementsHaveFewParameters(t *testing.T) {
	is := is.New(t)
	most := 0
	store := tapped(t, migrated(t), &tap{run: func(_ driver.Conn, query string) error {
		most = max(most, strings.Count(parametersOnce(query), "$"))
		return nil
	}})
	is.NoErr(apply(t, store, 400))
	is.True(most > 0)
	is.True(most <= 32)
}

// A large bundle reports its progress several times.
func TestBundleReportsProgress(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t))
	service := must(svc.New(svc.Config{Store: store}))
	const users = 4000
	var reports []int
	is.NoErr(service.Access.Load(t.Context(), svc.Host, crowdOf(users), func(done, total int) {
		is.Equal(total, 2*users) // and a channel each
		reports = append(reports, done)
	}))
	is.True(len(reports) > 2)
	is.Equal(reports[len(reports)-1], 2*users)
}

func apply(t *testing.T, store *sqlstore.Store, users int) error {
	t.Helper()
	service := must(svc.New(svc.Config{Store: store}))
	return errors.Join(service.Access.Apply(t.Context(), svc.Host, crowdOf(users)), service.Close())
}

// crowdOf returns a bundle of users, each with a channel.
func crowdOf(users int) (b svc.Bundle) {
	for i := range users {
		id := fmt.Sprintf("user-%06d", i)
		b.Users = append(b.Users, svc.User{ID: id, Channels: []svc.Channel{{Provider: "telegram", SenderID: id}}})
	}
	return b
}
