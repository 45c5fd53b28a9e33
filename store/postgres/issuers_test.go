package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/store/postgres"
)

// countedBatches counts the keys of batches.
type countedBatches struct {
	*postgres.Store
	batches, keys, added atomic.Int64
}

func (c *countedBatches) AddAPIKeys(ctx context.Context, b batching.Keys[svc.APIKey, svc.Event]) ([]bool, error) {
	added, err := c.Store.AddAPIKeys(ctx, b)
	c.batches.Add(1)
	c.keys.Add(int64(len(added)))
	for _, is := range added {
		if is {
			c.added.Add(1)
		}
	}
	return added, err
}

// Callers that issue at once share transactions, while keys are revoked and others have too many. The
// host, a caller with its own key and an administrator get keys that work, and each has its record.
func TestIssuersShareTransactions(t *testing.T) {
	t.Parallel()
	const callers, each, most = 24, 6, 8
	is, ctx := is.New(t), t.Context()
	store := &countedBatches{Store: open(t, migrated(t), postgres.Options{})}
	service := must(svc.New(svc.Config{
		Store: store, Logger: slog.New(slog.DiscardHandler), Events: svc.EventConfig{Keep: true},
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 16)}}, MaxPerHolder: most},
	}))
	t.Cleanup(func() { is.NoErr(service.Close()) })
	admin := svc.Attachment{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "admin"}}
	users := []svc.User{{ID: "admin"}}
	for i := range callers {
		users = append(users, svc.User{ID: fmt.Sprint("u", i)})
	}
	is.NoErr(service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: users, Attachments: []svc.Attachment{admin}}))
	caller := func(id string) svc.Principal {
		key := must(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: id}, svc.NewAPIKey{}))
		by := must(service.Authenticate(ctx, string(key.Key)))
		return by
	}
	by := caller("admin")
	full := svc.Identity{Kind: svc.KindUser, ID: "full"}
	for range most {
		must(service.Keys.Issue(ctx, svc.Host, full, svc.NewAPIKey{}))
	}
	var own []svc.Principal
	for i := range callers {
		own = append(own, caller(fmt.Sprint("u", i)))
	}
	before := store.added.Load()
	var wait sync.WaitGroup
	for i, me := range own {
		wait.Go(func() {
			for n := range each {
				who, holder := me, svc.Me
				switch n % 3 {
				case 1:
					who, holder = svc.Host, svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("new", i, n)}
				case 2:
					who, holder = by, me.Identity()
				}
				issued, err := service.Keys.Issue(ctx, who, holder, svc.NewAPIKey{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := service.Authenticate(ctx, string(issued.Key)); err != nil {
					t.Error(err)
				}
				if n == each-1 {
					is.NoErr(service.Keys.Revoke(ctx, by, issued.Holder, issued.ID))
				}
				_, err = service.Keys.Issue(ctx, by, full, svc.NewAPIKey{})
				is.Equal(svc.ErrorCode(err), svc.CodeLimit)
			}
		})
	}
	wait.Wait()
	check := must(service.Audit.Verify(ctx, svc.Host))
	is.True(check.Fault == nil)
	var records int
	for r, err := range service.Audit.Records(ctx, svc.Host, svc.AuditQuery{}) {
		if is.NoErr(err); r.Action == event.APIKeyIssued {
			is.True(r.Actor.Kind == svc.KindHost || r.ActorKey != "")
			records++
		}
	}
	is.Equal(records, 1+most+callers+callers*each)
	t.Logf("%d keys in %d batches, %d of them added there", store.keys.Load(), store.batches.Load(), store.added.Load())
	is.True(store.added.Load()-before > callers) // of callers*each; others were issued alone
	is.True(store.batches.Load() < store.keys.Load())
}

// Callers wait for a connection: those that leave leave at once, and a key that has expired in the
// meantime issues nothing.
func TestIssuersWaitForAConnection(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	store := open(t, migrated(t), postgres.Options{MaxOpen: 1})
	var now atomic.Int64
	service := must(svc.New(svc.Config{
		Store: store, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(now.Load(), 0) },
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 16)}}, IgnoreExpired: true},
	}))
	t.Cleanup(func() { is.NoErr(service.Close()) })
	var callers []svc.Principal
	for _, expiry := range []int64{1, 1000, 1000} {
		in := svc.NewAPIKey{ExpiresAt: time.Unix(expiry, 0)}
		key := must(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(len(callers))}, in))
		by := must(service.Authenticate(ctx, string(key.Key)))
		callers = append(callers, by)
	}
	only := must(store.DB().Conn(ctx))
	leaving, leave := context.WithCancel(ctx)
	issued := make([]chan error, len(callers))
	for i, by := range callers {
		issued[i] = make(chan error, 1)
		ctx := ctx
		if i == 2 {
			ctx = leaving
		}
		go func() {
			_, err := service.Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{})
			issued[i] <- err
		}()
	}
	for store.DB().Stats().WaitCount == 0 { // one of them waits, and does the batch
		time.Sleep(time.Millisecond)
	}
	leave()
	is.True(<-issued[2] != nil)
	now.Store(10)
	is.NoErr(only.Close())
	is.Equal(svc.ErrorCode(<-issued[0]), svc.CodeUnauthenticated)
	is.NoErr(<-issued[1])
}
