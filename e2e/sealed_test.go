package e2e_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
)

// unsealedColumns of a key's row do not affect what the key may do.
var unsealedColumns = []string{"description", "last_used_at", "rate_per_second", "rate_burst", "successor_id"}

// edits holds a new value for each other column. A column in neither list fails the test.
var edits = map[string]string{
	"id": "'0000000000000000'", "holder_kind": "'service_account'", "holder_id": "'root'", "prefix": "'svcu_other'",
	"hash": "(SELECT hash FROM svc_api_keys WHERE description = 'another')", "pepper": "'2'", "created_at": "created_at - 1",
	"revoked_at": "1", "expires_at": "NULL", "disabled": "1 - disabled", "scoping_policy_id": "''", "seal": "NULL",
}

// sealedSite is a Service over a database, with its log.
type sealedSite struct {
	*svc.Service
	t   *testing.T
	db  *sql.DB
	log bytes.Buffer
	new func() *svc.Service // another Service with an empty cache
}

func newSealedSite(t *testing.T, store svc.Store, db *sql.DB) *sealedSite {
	s := &sealedSite{t: t, db: db}
	s.new = func() *svc.Service {
		service := must(svc.New(svc.Config{
			Store: store, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
			Keys: svc.KeyConfig{Peppers: []svc.Pepper{
				{Version: "1", Secret: []byte("a pepper of this test")}, {Version: "2", Secret: []byte("another pepper of this test")},
			}},
		}))
		t.Cleanup(func() { _ = service.Close() })
		return service
	}
	s.Service = s.new()
	bundle := must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}, {"id": "root"}], "policies": [{"id": "narrow", "document": {"version": "2026-03-24", "statements": []}}]}`)))
	if err := s.Access.Apply(t.Context(), svc.Host, bundle); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sealedSite) issue(description string) svc.IssuedKey {
	holder := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	key := must(s.Keys.Issue(s.t.Context(), svc.Host, holder, svc.NewAPIKey{
		Description: &description, ExpiresAt: time.Now().Add(time.Hour), ScopingPolicyID: "narrow",
	}))
	if description == "disabled" {
		must(s.Keys.Patch(s.t.Context(), svc.Host, holder, key.ID, svc.APIKeyPatch{Disabled: new(true)}))
	}
	return key
}

func (s *sealedSite) execute(statement string) {
	s.t.Helper()
	if _, err := s.db.Exec(statement); err != nil {
		s.t.Fatal(err)
	}
}

// columns returns the columns of the table of keys.
func (s *sealedSite) columns() []string {
	rows := must(s.db.Query(`SELECT * FROM svc_api_keys LIMIT 0`))
	defer rows.Close()
	return slices.DeleteFunc(must(rows.Columns()), func(column string) bool {
		return column == "last_use" // the database makes it of others
	})
}

// good reports whether a Service with an empty cache accepts a key.
func (s *sealedSite) good(key svc.IssuedKey) bool {
	_, err := s.new().Authenticate(s.t.Context(), string(key.Key))
	if err != nil && svc.ErrorCode(err) != svc.CodeUnauthenticated {
		s.t.Error(err)
	}
	return err == nil
}

// test edits each column of a key's row in the database.
func (s *sealedSite) test() {
	s.issue("another")
	for _, column := range s.columns() {
		key := s.issue("edited")
		if column == "disabled" {
			key = s.issue("disabled")
		}
		where := " WHERE id = '" + key.ID + "'"
		if slices.Contains(unsealedColumns, column) {
			s.execute("UPDATE svc_api_keys SET " + column + " = NULL" + where)
			if !s.good(key) {
				s.t.Errorf("refused when its %s is edited", column)
			}
			continue
		}
		value, there := edits[column]
		if !there {
			s.t.Fatalf("is %s sealed?", column)
		}
		s.log.Reset()
		s.execute("UPDATE svc_api_keys SET " + column + " = " + value + where)
		if s.good(key) {
			s.t.Errorf("accepted when its %s is edited", column)
		}
		reported := strings.Contains(s.log.String(), key.ID)
		if silent := column == "id" || column == "revoked_at"; reported == silent { // these are refused without a seal
			s.t.Errorf("%s is edited, and the log is %q", column, s.log.String())
		}
	}
	revoked := s.issue("revoked")
	if err := s.Keys.Revoke(s.t.Context(), svc.Host, revoked.Holder, revoked.ID); err != nil {
		s.t.Fatal(err)
	}
	s.execute("UPDATE svc_api_keys SET revoked_at = NULL WHERE id = '" + revoked.ID + "'")
	if s.good(revoked) {
		s.t.Error("accepted when its revocation is undone")
	}
}

// The Service refuses and reports a key's row edited in the database, whichever the column.
func TestEditedRows(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		store := must(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), sqlite.Options{}))
		t.Cleanup(func() { _ = store.Close() })
		newSealedSite(t, store, store.DB()).test()
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		store := must(postgres.Open(t.Context(), pgtest.Schema(t), postgres.Options{}))
		t.Cleanup(func() { _ = store.Close() })
		newSealedSite(t, store, store.DB()).test()
	})
}
