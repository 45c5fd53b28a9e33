package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
)

const clients = 8

// together calls do from 8 clients at once and counts the codes of their errors; "": no error.
func together(do func(i int) error) map[svc.Code]int {
	var group sync.WaitGroup
	var mu sync.Mutex
	start, codes := make(chan bool), map[svc.Code]int{}
	for i := range clients {
		group.Go(func() {
			<-start
			code := svc.ErrorCode(do(i))
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	close(start)
	group.Wait()
	return codes
}

// wantOne checks that one client succeeded, and that all others got the code others.
func wantOne(t *testing.T, doing string, codes map[svc.Code]int, others svc.Code) {
	t.Helper()
	if len(codes) != 2 || codes[""] != 1 || codes[others] != clients-1 {
		t.Errorf("%s: %v, want one to come first, and seven %s", doing, codes, others)
	}
}

// A user has no more templates and sources than are allowed, when two processes add at once.
func TestPersonalLimitsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	schema := pgtest.Schema(t)
	for name, open := range map[string]func(ctx context.Context) (database, error){
		"sqlite":   func(ctx context.Context) (database, error) { return sqlite.Open(ctx, path, sqlite.Options{}) },
		"postgres": func(ctx context.Context) (database, error) { return postgres.Open(ctx, schema, postgres.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, services := t.Context(), [2]*svc.Service{}
			for i := range services {
				store := must(open(ctx))
				market := must(marketplace.New(marketplace.Config{}))
				services[i] = must(svc.New(svc.Config{Store: store, Sources: svc.SourceConfig{Marketplace: market}}))
				t.Cleanup(func() { _, _ = services[i].Close(), store.Close() })
			}
			bundle := svc.Bundle{Users: []svc.User{{ID: "alice"}}}
			fails(t, services[0].Access.Apply(ctx, svc.Host, bundle), "")
			by := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{"template:*"}}
			create := func(n int, id string) error {
				content := svc.Content{Name: "n", Manifest: []byte(`{"version":"1"}`)}
				return failure(services[n%2].MyTemplates.Create(ctx, by, svc.NewTemplate{ID: id, Content: content}))
			}
			register := func(n int, id string) error {
				return failure(services[n%2].MySources.Register(ctx, by, svc.NewSource{URL: "https://example.com/x", Alias: &id}))
			}
			for most, add := range map[int]func(n int, id string) error{limits.PersonalTemplates: create, limits.PersonalSources: register} {
				for i := range most - 1 {
					fails(t, add(i, fmt.Sprint("n", i)), "")
				}
				wantOne(t, fmt.Sprint("add up to ", most), together(func(i int) error { return add(i, fmt.Sprint("at-once", i)) }), svc.CodeLimit)
			}
		})
	}
}
