package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/marketplace"
)

const clients = 8

// together calls do from 8 clients at once and counts the statuses of what they were answered.
func together(do func(i int) answer) map[int]int {
	var group sync.WaitGroup
	var mu sync.Mutex
	start, statuses := make(chan bool), map[int]int{}
	for i := range clients {
		group.Go(func() {
			<-start
			status := do(i).status
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	close(start)
	group.Wait()
	return statuses
}

// wantOne wants one client to have come first, and all others to be told so.
func wantOne(t *testing.T, doing string, statuses map[int]int, first, others int) {
	t.Helper()
	if len(statuses) != 2 || statuses[first] != 1 || statuses[others] != clients-1 {
		t.Errorf("%s: statuses %v, want one %d and seven %d", doing, statuses, first, others)
	}
}

func TestEightAtOnce(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	u.offer(first)
	s := newSite(t, trusting(u))
	admin := s.admin()
	for round := range 5 {
		wantOne(t, "register", together(func(int) answer {
			return admin.post("/admin/template-sources", `{"url": "`+u.URL+`/acme"}`)
		}), 201, 409)
		wantOne(t, "create", together(func(i int) answer {
			return admin.post("/admin/templates", fmt.Sprintf(`{"id": "made", "name": "n%d", "manifest": {"version": "1"}}`, i))
		}), 200, 409)
		wantOne(t, "install", together(func(int) answer {
			return admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`)
		}), 200, 409)
		id := admin.post("/users/alice/api-keys", "").is(201).text("id")
		wantOne(t, "revoke", together(func(int) answer { return admin.delete("/users/alice/api-keys/" + id) }), 204, 404)
		wantOne(t, "delete what was made", together(func(int) answer { return admin.delete("/admin/templates/made") }), 204, 404)
		wantOne(t, "delete what was installed", together(func(int) answer { return admin.delete("/admin/templates/chat") }), 204, 404)
		wantOne(t, "remove", together(func(int) answer { return admin.delete("/admin/template-sources/acme") }), 204, 404)
		admin.get("/admin/templates").is(200).json(`{"templates": []}`)
		admin.get("/admin/template-sources").is(200).json(`[]`)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func TestPatchesOfDifferentFieldsAllHold(t *testing.T) {
	admin := newSite(t, marketplace.Config{}).admin()
	patches := [clients]string{
		`{"name": "N%d"}`, `{"description": "D%d"}`, `{"category": "C%d"}`, `{"integrations": ["I%d"]}`, `{"tags": ["T%d"]}`, `{"manifest": {"version": "M%d"}}`, `{}`, `{}`,
	}
	admin.post("/admin/templates", `{"id": "chat", "name": "n", "manifest": {"version": "1"}}`).is(200)
	for round := range 10 {
		statuses := together(func(i int) answer {
			body := patches[i]
			if strings.Contains(body, "%d") {
				body = fmt.Sprintf(body, round)
			}
			return admin.patch("/admin/templates/chat", body)
		})
		if statuses[200] != clients {
			t.Fatalf("statuses %v", statuses)
		}
		have := admin.get("/admin/templates/chat").is(200).template()
		got := fmt.Sprintf("%s %s %s %v %v %s", have.Name, *have.Description, *have.Category, have.Integrations, have.Tags, have.Manifest)
		if want := strings.ReplaceAll(`N# D# C# [I#] [T#] {"version":"M#"}`, "#", fmt.Sprint(round)); got != want {
			t.Fatalf("have %s, want %s", got, want)
		}
	}
}

// An edit is never lost: either it is in the way of the update, or it is made to what the update brought.
func TestPatchAgainstUpdate(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin := newSite(t, trusting(u)).admin()
	admin.register(u)
	for round := range 10 {
		u.offer(first)
		admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
		u.offer(second)
		statuses := together(func(i int) answer {
			if i == 0 {
				time.Sleep(time.Duration(round) * 100 * time.Microsecond)
				a := admin.patch("/admin/templates/chat", `{"category": "mine"}`)
				if a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
				return a
			}
			return admin.post("/admin/templates/chat/update", "")
		})
		if statuses[200]+statuses[409] != clients {
			t.Errorf("statuses %v", statuses)
		}
		if have := admin.get("/admin/templates/chat").is(200).template(); have.Category == nil || *have.Category != "mine" {
			t.Errorf("the edit is lost: %v %v", have, statuses)
		}
		admin.delete("/admin/templates/chat").is(204)
	}
}

// An update never brings back what was deleted, and an installation after it is its own.
func TestDeleteAgainstUpdate(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin := newSite(t, trusting(u)).admin()
	admin.register(u)
	for range 10 {
		u.offer(first)
		admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
		u.offer(second)
		together(func(i int) answer {
			if i == 0 {
				return admin.delete("/admin/templates/chat").is(204)
			}
			a := admin.post("/admin/templates/chat/update?force=1", "")
			if a.status != 200 && a.status != 404 {
				t.Errorf("update: %d %s", a.status, a.body)
			}
			return a
		})
		admin.get("/admin/templates/chat").is(404)
	}
}

// A request that begins after a revocation was answered is never accepted.
func TestRevokeAgainstUse(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	for range 5 {
		key := s.key("alice")
		user := s.as(key)
		user.get("/me/api-keys").is(200)
		var revoked atomic.Bool
		var late, accepted, refused atomic.Int64
		statuses := together(func(i int) answer {
			if i == 0 {
				for deadline := time.Now().Add(5 * time.Second); accepted.Load() < clients && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				a := admin.delete("/users/alice/api-keys/" + keyID(key))
				revoked.Store(true)
				return a
			}
			for n := 0; n < 20; {
				after := revoked.Load()
				a := user.get("/me/api-keys")
				switch {
				case a.status == http.StatusOK && after:
					late.Add(1)
				case a.status == http.StatusOK:
					accepted.Add(1)
				case a.status == http.StatusUnauthorized:
					refused.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
				if after {
					n++
				}
			}
			return answer{}
		})
		if late.Load() > 0 || accepted.Load() == 0 || refused.Load() == 0 || statuses[204] != 1 {
			t.Errorf("%d accepted after the revocation; %d before, %d refused, %v", late.Load(), accepted.Load(), refused.Load(), statuses)
		}
	}
}

// Lists that are read while everything changes are whole JSON, in order, and no id twice.
func TestListsWhileEverythingChanges(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	for i := range 80 {
		admin.post("/admin/templates", fmt.Sprintf(`{"id": "fixed%03d", "name": "n%03[1]d", "manifest": {"version": "1"}}`, i)).is(200)
	}
	var done atomic.Bool
	together(func(i int) answer {
		if i < 4 {
			defer done.Store(true)
			for n := range 20 {
				id := fmt.Sprintf("moving%d-%d", i, n)
				admin.post("/admin/templates", fmt.Sprintf(`{"id": %q, "name": "n%03d", "manifest": {"version": "1"}}`, id, n*4))
				admin.delete("/admin/templates/" + id)
			}
			return answer{}
		}
		for again := true; again; again = !done.Load() {
			a := admin.get("/admin/templates")
			list := unmarshal[struct{ Templates []template }](t, a.body).Templates
			fixed, last := 0, ""
			for _, each := range list {
				if at := each.Name + "\x00" + each.ID; at <= last {
					t.Errorf("out of order: %q after %q", at, last)
				} else {
					last = at
				}
				if strings.HasPrefix(each.ID, "fixed") {
					fixed++
				}
			}
			if fixed != 80 {
				t.Errorf("%d of 80 that never changed", fixed)
			}
		}
		return answer{}
	})
}
