package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/sqltest"
)

// A generation whose changes have no row is a gap: readers from before it start again.
func TestGapsInChangesAreAReset(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t))
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(1)))
	must(store.DB().Exec(`UPDATE svc_generation SET value = value + 1`))
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(2)))
	for since, reset := range map[int64]bool{0: true, 1: true, 2: false, 3: false, 4: true} {
		changes := must(store.Changes(t.Context(), since))
		is.Equal(changes.Reset, reset)
	}
}

func TestOldChangesAreForgotten(t *testing.T) {
	is := parallel(t)
	store := open(t, migrated(t))
	fill(t, store.DB(), 12_031)
	oldest := func() (generation int64) {
		is.NoErr(store.DB().QueryRow("SELECT MIN(number) FROM svc_changefeed").Scan(&generation))
		return generation
	}
	is.Equal(oldest(), int64(1))
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(0)))
	is.Equal(oldest(), int64(1025)) // so many at once
	for i := range 256 {
		is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(1+i)))
	}
	is.Equal(oldest(), int64(2049))
	for since, reset := range map[int64]bool{0: true, 2000: true, 2047: true, 2048: false, 12_000: false} {
		changes := must(store.Changes(t.Context(), since))
		is.Equal(changes.Reset, reset)
		if !reset {
			is.Equal(int64(len(changes.Targets)), 12_031+257-since)
		}
	}
}

// fill makes that many generations.
func fill(t *testing.T, db *sql.DB, generations int) {
	t.Helper()
	_, err := db.Exec(`INSERT INTO svc_changefeed WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT i, 1, i, '{"Targets":[{"Kind":"user","ID":"u' || i || '"}]}' FROM n`, generations)
	if err == nil {
		_, err = db.Exec(`UPDATE svc_generation SET value = $1`, generations)
	}
	is.New(t).NoErr(err)
}
