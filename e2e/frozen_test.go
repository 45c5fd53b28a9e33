//go:build unix

package e2e_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// atMost is how long a request may take while the database does not answer: the 5 s that are promised, and what a machine may add to
// them that is busy, or stands still twice. Without the promise, a request takes 30 s.
const atMost = 25 * time.Second

// frozen returns the routes that are asked: all in CI, else one for each way to use the store.
func frozen() map[string]row {
	if longtest.InCI() {
		return matrix
	}
	rows := map[string]row{}
	for _, name := range []string{
		"GET /me/resolve", "POST /introspect", "POST /banks", "GET /admin/templates", "POST /admin/templates/{template_id}/install",
		"POST /me/api-keys", "DELETE /users/{user_id}/api-keys", "GET /users", "PUT /users/{user_id}", "DELETE /policies/{policy_id}",
		"POST /admin/access-bundle", "GET /admin/events",
	} {
		rows[name] = matrix[name]
	}
	return rows
}

// TestFrozenDatabase stops PostgreSQL where it stands: every request is answered in time, whatever it was about to do.
func TestFrozenDatabase(t *testing.T) {
	longtest.Parallel(t, "a server that stands still")
	cluster := pgtest.Start(t)
	s := newSite(t, onShelf, func(c *svc.Config) {
		store := must(postgres.Open(t.Context(), cluster.URL, postgres.Options{MaxOpen: 4}))
		t.Cleanup(func() { _ = store.Close() })
		c.Store = store
	})
	routes, keys, seen := frozen(), s.restock(), s.admin()
	seen.send("GET", "/me/api-keys", "").is(200)
	unseen := map[string]string{}
	for name := range routes {
		unseen[name] = s.key("admin")
	}
	cluster.Freeze()
	distrusted := time.Now().Add(5 * time.Second) // from then on, no copy is used
	for _, moment := range []string{"when it happens", "later"} {
		if moment == "later" {
			time.Sleep(time.Until(distrusted))
		}
		var group sync.WaitGroup
		for name, row := range routes {
			for who, caller := range map[string]caller{"seen": seen, "unseen": s.as(unseen[name])} {
				group.Go(func() {
					method, _, _ := strings.Cut(name, " ")
					began := time.Now()
					answer := caller.send(method, keys.in(row.target, keyID(caller.bearer)), row.body)
					took := time.Since(began)
					fromCopies := who == "seen" && answer.status == row.statuses[5] && moment != "later" && (method == "GET" || name == "POST /banks" || name == "POST /introspect")
					if took > atMost || answer.status != 503 && !fromCopies {
						t.Errorf("%s, %s, %s: answered %d after %s", moment, name, who, answer.status, took)
					}
				})
			}
		}
		group.Wait()
	}
	cluster.Thaw()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if seen.send("GET", "/me/api-keys", "").status == 200 {
			break
		}
	}
	changed := true
	for name, row := range routes {
		if changed {
			keys = s.restock()
		}
		method, _, _ := strings.Cut(name, " ")
		changed = method != "GET"
		admin := s.admin()
		admin.send(method, keys.in(row.target, keyID(admin.bearer)), row.body).is(row.statuses[5])
	}
}
