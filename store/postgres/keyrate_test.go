package postgres_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// All processes that set this KeyRate count together.
func ExampleKeyRate() {
	var pool *pgxpool.Pool // the host's
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		return
	}
	defer service.Close()
	api := httpapi.New(service, httpapi.Options{
		KeyRate: postgres.KeyRate(pool, postgres.KeyRateOptions{Timeout: 200 * time.Millisecond}),
	})
	_ = api // mount it under /ext/svc
}

// slowly allows no further request while a test runs.
func slowly(burst int) svc.Rate { return svc.Rate{PerSecond: limits.LeastRate, Burst: burst} }

// Of requests to several processes at once, as many pass as the burst allows. The first ones make the table.
func TestKeyRateIsExact(t *testing.T) {
	is := is.New(t)
	url := pgtest.Schema(t)
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		take := postgres.KeyRate(newPool(t, url), postgres.KeyRateOptions{Timeout: time.Minute})
		for range 8 {
			wg.Go(func() {
				for range 10 {
					left, err := take(httptest.NewRequest("GET", "/", nil), "k", slowly(100))
					switch {
					case err != nil:
						t.Error(err)
					case left.Refused:
						refused.Add(1)
					default:
						passed.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	is.Equal(passed.Load(), int64(100))
	is.Equal(refused.Load(), int64(140))
}

func TestKeyRate(t *testing.T) {
	is := is.New(t)
	pool := newPool(t, pgtest.Schema(t))
	r := httptest.NewRequest("GET", "/", nil)
	take := func(take func(*http.Request, string, svc.Rate) (svc.Allowance, error), key string, rate svc.Rate) svc.Allowance {
		t.Helper()
		left := must(take(r, key, rate))
		is.True(left.Next > 0)
		is.True(left.Next <= time.Duration(float64(time.Second)/rate.PerSecond))
		left.Next = 0
		return left
	}
	plain := postgres.KeyRate(pool, postgres.KeyRateOptions{})
	for _, want := range []svc.Allowance{{Remaining: 2}, {Remaining: 1}, {}, {Refused: true}, {Refused: true}} {
		is.Equal(take(plain, "k", slowly(3)), want)
	}
	is.Equal(take(plain, "other", slowly(3)), svc.Allowance{Remaining: 2})
	is.Equal(take(plain, "k", slowly(5)), svc.Allowance{Remaining: 1}) // three are used, and this one
	is.Equal(take(plain, "k", svc.Rate{PerSecond: 2 * limits.LeastRate, Burst: 5}), svc.Allowance{})
	is.Equal(take(plain, "k", slowly(2)), svc.Allowance{Refused: true})

	tenant := "a"
	apart := postgres.KeyRate(pool, postgres.KeyRateOptions{Tenant: func(*http.Request) string { return tenant }})
	is.Equal(take(apart, "k", slowly(1)), svc.Allowance{})
	is.Equal(take(apart, "k", slowly(1)), svc.Allowance{Refused: true})
	tenant = "b"
	is.Equal(take(apart, "k", slowly(1)), svc.Allowance{})

	// A key that was not used for long has its whole burst, with or without its row.
	must(pool.Exec(t.Context(), `UPDATE svc_key_rates SET until = 0 WHERE key = 'other'`))
	is.Equal(take(plain, "other", slowly(3)), svc.Allowance{Remaining: 2})
	must(pool.Exec(t.Context(), `UPDATE svc_key_rates SET until = 0 WHERE key = 'other'`))
	for range 1024 { // unused rows go after so many requests
		must(plain(r, "busy", svc.Rate{PerSecond: limits.Rate, Burst: limits.Burst}))
	}
	var rows int
	is.NoErr(pool.QueryRow(t.Context(), `SELECT COUNT(*) FROM svc_key_rates WHERE key = 'other'`).Scan(&rows))
	is.Equal(rows, 0)
}

// Without the database, the host chooses what happens.
func TestKeyRateFails(t *testing.T) {
	is := is.New(t)
	pool := newPool(t, pgtest.Schema(t))
	pool.Close()
	r := httptest.NewRequest("GET", "/", nil)
	is.True(failure(postgres.KeyRate(pool, postgres.KeyRateOptions{})(r, "k", slowly(1))) != nil)
	var why error
	refuse := svc.Allowance{Refused: true, Next: time.Second}
	left := must(postgres.KeyRate(pool, postgres.KeyRateOptions{Failed: func(_ *http.Request, err error) (svc.Allowance, error) {
		why = err
		return refuse, nil
	}})(r, "k", slowly(1)))
	is.Equal(left, refuse)
	is.True(why != nil && !errors.Is(why, svc.ErrNotFound))
}
