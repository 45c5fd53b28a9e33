package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// with sends a request with a header.
func (c caller) with(header, value, method, target, body string) answer {
	c.t.Helper()
	return c.sendWith(method, target, body, func(r *http.Request) { r.Header[header] = strings.Split(value, "\n") })
}

const chat = "/admin/templates/chat"

// withChat is a site with the template "chat", made by hand.
func withChat(t *testing.T) (*site, caller, string) {
	s := newSite(t)
	admin := s.admin()
	created := admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200)
	tag := created.header.Get("ETag")
	if tag == "" || admin.get(chat).is(200).header.Get("ETag") != tag {
		t.Fatalf("the entity tag is %q", tag)
	}
	s.clock.tick()
	return s, admin, tag
}

// Each change has a tag of its own, and a change is made only to what the client has seen.
func TestIfMatch(t *testing.T) {
	s, admin, tag := withChat(t)
	install := func() {
		admin.post("/admin/templates/from/install", `{"source_name": "acme", "alias_id": "chat"}`).is(200)
	}
	s.market.offer("from", "From", `{"version": "1"}`)
	admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
	seen := map[string]bool{tag: true}
	next := func(method, target, body string) {
		t.Helper()
		s.clock.tick()
		before := admin.get(chat).body
		for _, old := range []string{`"x"`, `W/"x"`, `"1", "2"`, `"W/` + tag[1:], "W/" + strings.Replace(tag, `"`, `"W/`, 1)} {
			admin.with("If-Match", old, method, target, body).fails(412, "precondition_failed")
		}
		for old := range seen {
			if old != tag {
				admin.with("If-Match", old, method, target, body).fails(412, "precondition_failed")
			}
		}
		admin.with("If-Match", "x", method, target, body).refuses("If-Match")
		admin.with("If-None-Match", `"x"`, method, target, body).refuses("If-None-Match")
		if string(admin.get(chat).body) != string(before) {
			t.Fatal("a refused change was made")
		}
		admin.with("If-Match", `"x", W/`+tag, method, target, body).is(200) // a proxy has marked it
		tag = admin.get(chat).header.Get("ETag")
		if seen[tag] {
			t.Fatalf("%s %s: the tag %s was there before", method, target, tag)
		}
		seen[tag] = true
	}
	next("PATCH", chat, `{"name": "other"}`)
	next("PATCH", chat, `{"name": "Chat"}`)
	next("POST", chat+"/rollback", `{"version": 2}`)
	admin.delete(chat).is(204)
	s.clock.tick()
	install()
	tag = admin.get(chat).header.Get("ETag")
	if seen[tag] {
		t.Fatal("another template has the tag of one before")
	}
	next("POST", chat+"/update?force=1", "")
	s.market.offer("from", "From", `{"version": "2"}`)
	next("POST", chat+"/update", "")
	for _, old := range []string{`"x"`, `W/"x"`} {
		admin.with("If-Match", old, "DELETE", chat, "").fails(412, "precondition_failed")
	}
	admin.with("If-Match", "x", "DELETE", chat, "").refuses("If-Match")
	admin.with("If-Match", "*", "PATCH", chat, `{"name": "any"}`).is(200)
	admin.with("If-Match", "*", "PATCH", "/admin/templates/none", `{"name": "any"}`).is(404)
	s.as("session-of-plain").with("If-Match", `"x"`, "PATCH", chat, `{"name": "x"}`).is(403)
	admin.with("If-Match", tag, "DELETE", chat, "").fails(412, "precondition_failed")
	admin.with("If-Match", admin.get(chat).header.Get("ETag"), "DELETE", chat, "").is(204)
	admin.with("If-Match", "*", "DELETE", chat, "").is(404)
}

// Of many who have seen the same one is let through.
func TestIfMatchAtOnce(t *testing.T) {
	_, admin, tag := withChat(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range 16 {
		group.Go(func() {
			a := admin.with("If-Match", tag, "PATCH", chat, `{"name": "`+strings.Repeat("x", i+1)+`"}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	group.Wait()
	if statuses[200] != 1 || statuses[412] != 15 {
		t.Errorf("answered %v", statuses)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	s.market.offer("from", "From", `{"version": "1"}`)
	admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
	const keys, install = "/users/alice/api-keys", "/admin/templates/from/install"
	first := admin.with("Idempotency-Key", "once", "POST", keys, `{"description": "laptop"}`).is(201)
	again := admin.with("Idempotency-Key", "once", "POST", keys, `{"description":"laptop", "expires_at": null}`).is(201)
	if string(first.body) != string(again.body) {
		t.Errorf("answered %s, then %s", first.body, again.body)
	}
	admin.with("Idempotency-Key", "once", "POST", keys, `{}`).fails(422, "idempotency_key_reused")
	admin.with("Idempotency-Key", "once", "POST", "/users/bob/api-keys", `{"description": "laptop"}`).fails(422, "idempotency_key_reused")
	admin.with("Idempotency-Key", "once", "POST", install, `{"source_name": "acme"}`).fails(422, "idempotency_key_reused")
	mine := s.as("session-of-plain").with("Idempotency-Key", "once", "POST", "/me/api-keys", "").is(201)
	if string(mine.body) == string(first.body) {
		t.Error("a caller got another's key")
	}

	installed := admin.with("Idempotency-Key", "twice", "POST", install, `{"source_name": "acme", "alias_id": "chat"}`).is(200)
	repeated := admin.with("Idempotency-Key", "twice", "POST", install, `{"source_name": "acme", "alias_id": "chat"}`).is(200)
	if string(installed.body) != string(repeated.body) || installed.header.Get("ETag") != repeated.header.Get("ETag") {
		t.Errorf("answered %s, then %s", installed.body, repeated.body)
	}
	admin.with("Idempotency-Key", "thrice", "POST", install, `{"source_name": "acme", "alias_id": "chat"}`).fails(409, "already_exists")

	for _, wrong := range []string{"", "a b", "ä", strings.Repeat("x", 256), "a\nb", "\n"} {
		for target, body := range map[string]string{keys: `{}`, "/me/api-keys": `{}`, install: `{"source_name": "acme", "alias_id": "new"}`} {
			admin.with("Idempotency-Key", wrong, "POST", target, body).fails(400, "invalid_request")
		}
	}
	if list := admin.get(keys).is(200); strings.Count(string(list.body), `"id"`) != 1 {
		t.Errorf("alice has %s", list.body)
	}
}
