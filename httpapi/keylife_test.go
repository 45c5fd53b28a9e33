package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// in an hour, on the clock of a site.
var later = begin.Add(time.Hour).UTC().Format(time.RFC3339Nano)

const laterText = "2026-01-02T04:04:05.678901Z"

func TestFullViewOfKeys(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		plain := by.post(path+"?view=full", "").is(201)
		id, key := plain.text("id"), plain.text("api_key")
		shape := `"id": %q, "api_key_prefix": %q, "description": %s, "created_at": %q, "expires_at": %s, "disabled": false, "last_used_at": null, "scoping_policy_id": null, "rate": null`
		first := fmt.Sprintf(shape, id, key[:21], "null", beginText, "null")
		plain.json(`{"api_key": "` + key + `", ` + first + `}`)
		tick := s.clock.tick()
		dated := by.post(path+"?view=full", `{"description": "d", "expires_at": "`+later+`"}`).is(201)
		second := fmt.Sprintf(shape, dated.text("id"), dated.text("api_key")[:21], `"d"`, tick, `"`+laterText+`"`)
		by.get(path + "?view=full").is(200).json(`[{` + second + `}, {` + first + `}]`)
		by.get(path + "?view=").is(200).json(fmt.Sprintf(`[{"id": %q, "api_key_prefix": %q, "description": "d"}, {"id": %q, "api_key_prefix": %q, "description": null}]`,
			dated.text("id"), dated.text("api_key")[:21], id, key[:21]))
		for _, view := range []string{"Full", "all", "full&view=full", "%00"} {
			by.get(path + "?view=" + view).refuses("view")
			by.post(path+"?view="+view, "").refuses("view")
			by.post(path+"/"+id+"/rotate?view="+view, "").refuses("view")
		}
		if have := by.get(path).is(200).texts("id"); len(have) != 2 {
			t.Errorf("a refused request left keys: %v", have)
		}
		by.delete(path).is(204)
		s.clock.now = begin
	}
}

func TestKeyUseIsShown(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	s.as(key).get("/me/api-keys").is(200)
	if err := s.service.Close(); err != nil { // writes what waits
		t.Fatal(err)
	}
	if answer := s.as(key).get("/me/api-keys?view=full"); !strings.Contains(string(answer.body), `"last_used_at":"2026-01-02T03:04:00.000000Z"`) {
		t.Errorf("%s", answer.body)
	}
}

func TestExpiresAt(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		id := by.post(path, `{"expires_at": null}`).is(201).text("id")
		issued := by.post(path, `{"expires_at": "`+later+`"}`).is(201)
		issued.json(fmt.Sprintf(`{"id": %q, "api_key": %q, "description": null}`, issued.text("id"), issued.text("api_key")))
		for _, bad := range []string{
			`""`, `"never"`, `"2030-01-01"`, `"2030-01-01T00:00:00"`, `"2030-01-01 00:00:00Z"`, `"2030-02-30T00:00:00Z"`, `"2030-01-01T1:00:00Z"`, `"2030-01-01T00:00:00+24:00"`, `"2030-01-01T00:00:00+23:60"`,
			`"2030-01-01T00:00:00,5Z"`, `"0001-01-01T00:00:00Z"`, `"` + beginText + `"`, `"2020-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-01:00"`, `1893456000`, `true`, `{}`,
		} {
			by.post(path, `{"expires_at": `+bad+`}`).refuses("/expires_at")
			by.patch(path+"/"+id, `{"expires_at": `+bad+`}`).refuses("/expires_at")
		}
		by.post(path, `{"expires_at": "2030-01-01T01:00:00.5+01:00"}`).is(201)
		by.delete(path).is(204)
	}
}

func TestPatchKey(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		issued := by.post(path, `{"description": "d"}`).is(201)
		id, key := issued.text("id"), issued.text("api_key")
		full := func(description, expires string, disabled bool) string {
			return fmt.Sprintf(`{"id": %q, "api_key_prefix": %q, "description": %s, "created_at": %q, "expires_at": %s, "disabled": %v, "last_used_at": null, "scoping_policy_id": null, "rate": null}`,
				id, key[:21], description, beginText, expires, disabled)
		}
		for _, c := range []struct{ body, want string }{
			{``, full(`"d"`, "null", false)},
			{`{}`, full(`"d"`, "null", false)},
			{`{"description": null}`, full("null", "null", false)},
			{`{"description": ""}`, full(`""`, "null", false)},
			{`{"expires_at": "` + later + `"}`, full(`""`, `"`+laterText+`"`, false)},
			{`{"disabled": true}`, full(`""`, `"`+laterText+`"`, true)},
			{`{"expires_at": null, "description": "x"}`, full(`"x"`, "null", true)},
		} {
			by.patch(path+"/"+id, c.body).is(200).json(c.want)
		}
		wrong := s.as("svcu_wrong").get("/me/api-keys").fails(401, "unauthenticated")
		disabled := s.as(key).get("/me/api-keys").fails(401, "unauthenticated")
		if string(wrong.body) != string(disabled.body) || wrong.header.Get("WWW-Authenticate") != disabled.header.Get("WWW-Authenticate") {
			t.Errorf("a disabled key is told from a wrong one: %s", disabled.body)
		}
		by.patch(path+"/"+id, `{"disabled": null}`).refuses("/disabled")
		by.patch(path+"/"+id, `{"disabled": "true"}`).refuses("/disabled")
		by.patch(path+"/"+id, `{"api_key": "x"}`).fails(400, "invalid_request")
		by.patch(path+"/0000000000000000", `{"disabled": true}`).fails(404, "not_found")
		by.patch(path+"/"+id, `{"disabled": false}`).is(200)
		s.as(key).get("/me/api-keys").is(200)
		by.delete(path + "/" + id).is(204)
		by.patch(path+"/"+id, `{"disabled": false}`).fails(404, "not_found")
	}
}

func TestExpiredKey(t *testing.T) {
	s := newSite(t)
	key := s.as("session-of-alice").post("/me/api-keys", `{"expires_at": "`+s.clock.now.Add(time.Second).UTC().Format(time.RFC3339Nano)+`"}`).is(201).text("api_key")
	s.as(key).get("/me/api-keys").is(200)
	s.clock.tick()
	wrong := s.as("svcu_wrong").get("/me/api-keys").fails(401, "unauthenticated")
	if expired := s.as(key).get("/me/api-keys").fails(401, "unauthenticated"); string(wrong.body) != string(expired.body) {
		t.Errorf("an expired key is told from a wrong one: %s", expired.body)
	}
}

func TestRotateKey(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		issued := by.post(path, `{"description": "d"}`).is(201)
		id, key := issued.text("id"), issued.text("api_key")
		next := by.post(path+"/"+id+"/rotate", `{"overlap_seconds": 3600}`).is(201)
		next.json(fmt.Sprintf(`{"id": %q, "api_key": %q, "description": "d"}`, next.text("id"), next.text("api_key")))
		s.as(key).get("/me/api-keys").is(200)
		s.as(next.text("api_key")).get("/me/api-keys").is(200)
		s.clock.mu.Lock()
		s.clock.now = s.clock.now.Add(time.Hour)
		s.clock.mu.Unlock()
		s.as(key).get("/me/api-keys").is(401)
		for _, body := range []string{``, `{}`, `{"overlap_seconds": 0}`, `{"overlap_seconds": null}`} {
			last := by.post(path+"/"+next.text("id")+"/rotate?view=full", body).is(201)
			if len(last.value()) != 10 || last.value()["expires_at"] != nil {
				t.Errorf("rotate?view=full: %s", last.body)
			}
			s.as(next.text("api_key")).get("/me/api-keys").is(401)
			by.post(path+"/"+next.text("id")+"/rotate", "").fails(404, "not_found")
			next = last
		}
		for _, bad := range []string{`-1`, `31536001`, `18446744074`, `9223372036854775807`, `-9223372036854775808`, `9223372036854775808`, `1.5`, `"1"`, `true`} {
			by.post(path+"/"+next.text("id")+"/rotate", `{"overlap_seconds": `+bad+`}`).refuses("/overlap_seconds")
		}
		by.post(path+"/0000000000000000/rotate", "").fails(404, "not_found")
		s.as(next.text("api_key")).get("/me/api-keys").is(200)
		by.delete(path).is(204)
	}
}

func TestRevokeAllKeys(t *testing.T) {
	s := newSite(t)
	others := s.key("plain")
	for path, by := range keysOf(s) {
		one, two := s.key("alice"), s.key("alice")
		s.as(one).get("/me/api-keys").is(200)
		by.delete(path).is(204)
		for _, key := range []string{one, two} {
			s.as(key).get("/me/api-keys").fails(401, "unauthenticated")
		}
		by.get(path).is(200).json(`[]`)
		by.delete(path).is(204) // none is as good as all
		s.as(others).get("/me/api-keys").is(200)
	}
}

// A caller that may not issue a key for a user may not change or revoke the user's keys.
func TestKeyChangesStayWithinTheCeiling(t *testing.T) {
	s := newSite(t)
	writer, robot, plain := s.as(s.key("writer")), s.as(s.accountKey("robot")), s.as("session-of-plain")
	key := s.key("admin")
	id := key[5:21]
	path := "/users/admin/api-keys"
	for _, by := range []caller{writer, plain, s.as(s.key("reader")), s.as(s.accountKey("narrow"))} {
		for _, id := range []string{id, "0000000000000000"} {
			by.patch(path+"/"+id, `{"disabled": true}`).fails(403, "forbidden")
			by.post(path+"/"+id+"/rotate", "").fails(403, "forbidden")
		}
		by.delete(path).fails(403, "forbidden")
	}
	robot.patch(path+"/"+id, `{"disabled": true}`).fails(403, "forbidden")
	robot.post(path+"/"+id+"/rotate", "").fails(403, "forbidden")
	for _, by := range []caller{robot, s.as("session-of-robot+sa")} {
		by.patch("/me/api-keys/"+id, `{}`).fails(403, "forbidden")
		by.post("/me/api-keys/"+id+"/rotate", "").fails(403, "forbidden")
		by.delete("/me/api-keys").fails(403, "forbidden")
	}
	alice := s.as("session-of-alice")
	alice.patch("/me/api-keys/"+id, `{"disabled": true}`).fails(404, "not_found")
	alice.post("/me/api-keys/"+id+"/rotate", "").fails(404, "not_found")
	s.as(key).get("/admin/templates").is(200)
	robot.delete(path).is(204) // as it may revoke each
	s.as(key).get("/admin/templates").is(401)
}

func TestKeyChangesOfAnUnknownUser(t *testing.T) {
	s := newSite(t, func(u *setup) {
		u.KnownUser = func(_ context.Context, id string) (bool, error) { return id == "admin", nil }
	})
	key, err := s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/users/alice/api-keys"
	s.admin().patch(path+"/"+key.ID, `{"disabled": true, "description": "of somebody who left"}`).is(200)
	s.admin().patch(path+"/"+key.ID, `{"disabled": false}`).fails(404, "not_found")
	s.admin().patch(path+"/"+key.ID, `{"expires_at": null}`).fails(404, "not_found")
	s.admin().post(path+"/"+key.ID+"/rotate", ``).fails(404, "not_found")
	alice := s.as("session-of-alice")
	alice.post("/me/api-keys", "").fails(403, "forbidden")
	alice.post("/me/api-keys/"+key.ID+"/rotate", "").fails(403, "forbidden")
	alice.patch("/me/api-keys/"+key.ID, `{"disabled": false}`).fails(403, "forbidden")
	alice.get("/me/api-keys").is(200)
	s.admin().delete(path).is(204)
	s.admin().delete(path+"/"+key.ID).fails(404, "not_found")
}

// A key that is issued with a scoping policy is within it on every route, and says so in the full view.
func TestNarrowedKey(t *testing.T) {
	s := newSite(t)
	path := "/users/admin/api-keys"
	issued := s.admin().post(path+"?view=full", `{"scoping_policy_id": "templates"}`).is(201)
	if got := issued.text("scoping_policy_id"); got != "templates" {
		t.Errorf("scoping_policy_id is %q", got)
	}
	narrowed := s.as(issued.text("api_key"))
	narrowed.get("/admin/templates").is(200)
	narrowed.get(path).fails(403, "forbidden")
	narrowed.get("/debug/resolve?user_id=alice&bank=support").fails(403, "forbidden")
	narrowed.get("/me/api-keys").fails(403, "forbidden")
	narrowed.post("/me/api-keys", `{"scoping_policy_id": "templates"}`).fails(403, "forbidden")
	successor := s.admin().post(path+"/"+issued.text("id")+"/rotate", "").is(201)
	s.as(successor.text("api_key")).get(path).fails(403, "forbidden")

	const why = "/debug/resolve?user_id=admin&bank=*&action=iam:users:read"
	if a := s.admin().get(why).is(200); a.text("decision") != "allow" {
		t.Errorf("%s", a.body)
	}
	if a := s.admin().get(why + "&scoping_policy_id=templates").is(200); a.text("decision") != "implicit_deny" {
		t.Errorf("%s", a.body)
	}
	s.admin().get("/debug/resolve?sender=telegram:1001&bank=*&scoping_policy_id=templates").refuses("scoping_policy_id")

	for body, field := range map[string]string{
		`{"scoping_policy_id": ""}`:     "/scoping_policy_id",
		`{"scoping_policy_id": "none"}`: "/scoping_policy_id",
		`{"scoping_policy_id": "a/b"}`:  "/scoping_policy_id",
		`{"scoping_policy_id": 1}`:      "/scoping_policy_id",
	} {
		s.admin().post(path, body).refuses(field)
	}
	s.admin().post(path, `{"scoping_policy_id": null, "rate": null}`).is(201)
	s.admin().patch(path+"/"+successor.text("id"), `{"scoping_policy_id": null, "rate": null}`).fails(400, "invalid_request") // it stays
}
