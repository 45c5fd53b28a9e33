// Package sqltest has what the tests of both SQL stores share.
package sqltest

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// ReadKey reads a key: svc.ErrNotFound when there is none.
func ReadKey(ctx context.Context, store svc.Store, id string) (svc.APIKey, error) {
	snapshot, err := store.Access(ctx, svc.AccessQuery{KeyID: id})
	if err == nil && snapshot.Key == nil {
		err = svc.ErrNotFound
	}
	if err != nil {
		return svc.APIKey{}, err
	}
	return *snapshot.Key, nil
}

// ReadUser reads a user, without its channels: svc.ErrNotFound when there is none.
func ReadUser(ctx context.Context, store svc.Store, id string) (svc.User, error) {
	query := svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: id}}
	snapshot, err := store.Access(ctx, query)
	if err == nil && snapshot.User == nil {
		err = svc.ErrNotFound
	}
	if err != nil {
		return svc.User{}, err
	}
	return *snapshot.User, nil
}

// Generation returns that of a store.
func Generation(t testing.TB, store svc.Store) int64 {
	t.Helper()
	changes, err := store.Changes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return changes.Generation
}

// CreateTemplate creates a template named after its id.
func CreateTemplate(ctx context.Context, service *svc.Service, id string) error {
	_, err := service.Templates.Create(ctx, svc.Host, svc.NewTemplate{
		ID: id, Content: svc.Content{Name: id, Manifest: json.RawMessage(`{"version":"1"}`)},
	})
	return err
}

// Serve returns a Service that is closed when the test ends. Unless config says otherwise, it logs nothing and has a pepper.
func Serve(t *testing.T, config svc.Config) *svc.Service {
	t.Helper()
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Keys.Peppers == nil {
		config.Keys.Peppers = []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}
	}
	service, err := svc.New(config)
	checks{t}.NoErr(err)
	t.Cleanup(func() { checks{t}.NoErr(service.Close()) })
	return service
}

// Value returns the value of a query with one row, in a database, a connection or a transaction.
func Value[T any](t testing.TB, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, query string, args ...any) (value T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// Column returns the last column of a query, as text.
func Column(t testing.TB, db *sql.DB, query string, args ...any) (texts []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(any)
		}
		text := ""
		row[len(row)-1] = &text
		err = rows.Scan(row...)
		texts = append(texts, text)
	}
	if err := errors.Join(err, rows.Err()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return texts
}

// Parameter finds the parameters of a statement.
var Parameter = regexp.MustCompile(`\$[0-9]+`)

// NumberedInOrder reports whether a statement numbers its parameters by first appearance.
func NumberedInOrder(statement string) bool {
	seen := map[string]bool{}
	for _, p := range Parameter.FindAllString(statement, -1) {
		if seen[p] {
			continue
		}
		seen[p] = true
		if p != "$"+strconv.Itoa(len(seen)) {
			return false
		}
	}
	return true
}

// Source is registered before Calls.
var Source = svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}

// Calls returns calls with large rows or many rows, by the index that their last statements use. A
// primary key is the name of its table.
func Calls(ctx context.Context, store svc.FullStore) map[string]func() error {
	now := time.Now()
	keys := func(page svc.APIKeyPage) func() error {
		page.AfterTime, page.AfterID, page.Limit = now, "a", 1
		return func() error { return failure(store.APIKeys(ctx, page)) }
	}
	list := func(kind event.TargetKind, page svc.AccessPage) func() error {
		page.Kind, page.After, page.Limit = kind, "a/b/c", 1
		read := svc.AccessRead{Page: &page}
		return func() error {
			return failure(store.ReadAccess(ctx, read, func(svc.Bundle) error { return nil }))
		}
	}
	user := svc.Identity{Kind: svc.KindUser, ID: "a"}
	return map[string]func() error{
		"svc_api_keys_created": keys(svc.APIKeyPage{}),
		"svc_api_keys_expiry": keys(svc.APIKeyPage{
			KeyQuery: svc.KeyQuery{ExpireBefore: now},
		}),
		"svc_api_keys_last_use": keys(svc.APIKeyPage{
			KeyQuery: svc.KeyQuery{UnusedSince: now},
		}),
		"svc_api_keys_scoping":         keys(svc.APIKeyPage{ScopingPolicyID: "p"}),
		"svc_api_keys_holder":          keys(svc.APIKeyPage{Holder: user}),
		"svc_service_accounts_owner":   list(event.TargetServiceAccount, svc.AccessPage{User: "u"}),
		"svc_service_accounts_scoping": list(event.TargetServiceAccount, svc.AccessPage{Policy: "p"}),
		"svc_attachments_policy":       list(event.TargetAttachment, svc.AccessPage{Policy: "p"}),
		"svc_attachments":              list(event.TargetAttachment, svc.AccessPage{Group: "g"}),
		"svc_channels_user":            list(event.TargetChannel, svc.AccessPage{User: "u"}),
		"svc_group_members":            list(event.TargetMember, svc.AccessPage{Group: "g"}),
		"svc_templates_installed": func() error {
			return failure(store.Installations(ctx, svc.InstallationPage{Limit: 10}))
		},
		"svc_templates_source": func() error {
			return failure(store.RebindTemplates(ctx, Source, "https://new.example"))
		},
		"svc_source_files_kept": func() error {
			return store.KeepSourceFile(ctx, Source, svc.SourceFile{Path: "a"})
		},
		"svc_source_files": func() error {
			err := failure(store.SourceFile(ctx, svc.SourceKey{}, "a"))
			if errors.Is(err, svc.ErrNotFound) {
				return nil
			}
			return err
		},
	}
}

func failure[T any](_ T, err error) error { return err }
