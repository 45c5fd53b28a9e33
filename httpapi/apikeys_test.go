package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// keysOf are the two ways to alice's keys: an administrator's, and her own.
func keysOf(s *site) map[string]caller {
	return map[string]caller{"/users/alice/api-keys": s.admin(), "/me/api-keys": s.as("session-of-alice")}
}

func TestKeyIsShownOnce(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		by.get(path).is(200).json(`[]`)
		issued := by.post(path, `{"description": "laptop"}`).is(201)
		id, key := issued.text("id"), issued.text("api_key")
		issued.json(fmt.Sprintf(`{"id": %q, "api_key": %q, "description": "laptop"}`, id, key))
		s.as(key).get("/me/api-keys").is(200)

		listed := by.get(path).is(200)
		prefix := listed.texts("api_key_prefix")[0]
		listed.json(fmt.Sprintf(`[{"id": %q, "api_key_prefix": %q, "description": "laptop"}]`, id, prefix))
		if !strings.HasPrefix(key, prefix) || len(prefix) > 24 || !strings.HasPrefix(key, "svcu_") || len(key) != 59 {
			t.Errorf("key %q…, prefix %q, %d characters", key[:8], prefix, len(key))
		}
		by.delete(path + "/" + id).is(204)
		by.delete(path+"/"+id).fails(404, "not_found")
		by.get(path).is(200).json(`[]`)
		s.as(key).get("/me/api-keys").fails(401, "unauthenticated")
	}
}

func TestKeyDescription(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		for body, want := range map[string]any{
			``: nil, `{}`: nil, `{"description": null}`: nil, `{"description": ""}`: "", `{"description": "<&>ü"}`: "<&>ü",
		} {
			issued := by.post(path, body).is(201).value()
			if issued["description"] != want || len(issued) != 3 {
				t.Errorf("POST %s %s: description %v, want %v, of %d keys", path, body, issued["description"], want, len(issued))
			}
			listed := parse(t, by.get(path).is(200).body).([]any)
			if first := listed[0].(map[string]any); first["id"] == issued["id"] && (first["description"] != want || len(first) != 3) {
				t.Errorf("GET %s: %v", path, first)
			}
		}
	}
}

func TestKeysNewestFirst(t *testing.T) {
	s := newSite(t)
	for path, by := range keysOf(s) {
		var want []string
		for range 60 { // more than a chunk of a list
			s.clock.tick()
			want = append(want, by.post(path, "").is(201).text("id"))
		}
		slices.Reverse(want)
		if have := by.get(path).is(200).texts("id")[:60]; !slices.Equal(have, want) {
			t.Errorf("%s: listed %v, want %v", path, have, want)
		}
	}
}

func TestForeignKeyIsNotFound(t *testing.T) {
	s := newSite(t)
	admin, alice := s.admin(), s.as("session-of-alice")
	issued := s.as("session-of-plain").post("/me/api-keys", "").is(201)
	id, key := issued.text("id"), issued.text("api_key")
	robots := s.accountKey("robot")

	unknown := alice.delete("/me/api-keys/0000000000000000").fails(404, "not_found")
	foreign := alice.delete("/me/api-keys/"+id).fails(404, "not_found")
	if strings.ReplaceAll(foreign.text("detail"), id, "0000000000000000") != unknown.text("detail") {
		t.Errorf("a foreign key is told from an unknown one: %s %s", foreign.body, unknown.body)
	}
	admin.delete("/users/alice/api-keys/"+id).fails(404, "not_found")
	admin.delete("/me/api-keys/"+id).fails(404, "not_found")
	for _, path := range []string{"/users/robot/api-keys/", "/users/sa:robot/api-keys/", "/users/admin/api-keys/", "/me/api-keys/"} {
		admin.delete(path+strings.TrimPrefix(robots, "svcs_")[:16]).fails(404, "not_found")
	}
	s.as(key).get("/me/api-keys").is(200)
	s.as(robots).get("/admin/templates").is(200)
	admin.get("/users/robot/api-keys").is(200).json(`[]`)
	admin.delete("/users/plain/api-keys/" + id).is(204)
	s.as(key).get("/me/api-keys").is(401)
}

func TestOwnKeysByTheLongWayNeedTheAction(t *testing.T) {
	s := newSite(t)
	alice := s.as(s.key("alice"))
	alice.get("/users/alice/api-keys").fails(403, "forbidden")
	alice.post("/users/alice/api-keys", "").fails(403, "forbidden")
	alice.delete("/users/alice/api-keys/0000000000000000").fails(403, "forbidden")
	alice.get("/me/api-keys").is(200)
}

func TestKeysStayWithinTheCeiling(t *testing.T) {
	s := newSite(t)
	writer, robot := s.as(s.key("writer")), s.as(s.accountKey("robot"))
	adminKey := s.key("admin")
	adminKeyID := adminKey[5:21]
	for user, status := range map[string]int{
		"admin": 403, "templater": 403, "ghost": 403, // rights that writer lacks; ghost would have them when active
		"reader": 201, "writer": 201, "plain": 201, "nobody:has@a-row": 201, "barred": 201,
	} {
		writer.post("/users/"+user+"/api-keys", "").is(status)
		writer.get("/users/" + user + "/api-keys").is(200)
	}
	writer.delete("/users/admin/api-keys/"+adminKeyID).fails(403, "forbidden")
	writer.delete("/users/admin/api-keys/0000000000000000").fails(403, "forbidden")
	s.as(adminKey).get("/admin/templates").is(200)
	robot.post("/users/plain/api-keys", "").fails(403, "forbidden")
	robot.delete("/users/admin/api-keys/" + adminKeyID).is(204)
	s.as(adminKey).get("/admin/templates").is(401)
}

func TestServiceAccountHasNoKeysOfItsOwn(t *testing.T) {
	s := newSite(t)
	id := s.key("admin")[5:21]
	for _, bearer := range []string{s.accountKey("robot"), s.accountKey("narrow"), "session-of-robot+sa", "session-of-admin+sa+iam:*"} {
		by := s.as(bearer)
		by.get("/me/api-keys").fails(403, "forbidden")
		by.post("/me/api-keys", "").fails(403, "forbidden")
		by.post("/me/api-keys", `{"description": "d"}`).fails(403, "forbidden")
		by.delete("/me/api-keys/"+id).fails(403, "forbidden")
		by.sendWith("HEAD", "/me/api-keys", "", nil).is(403)
	}
}

func TestKnownUser(t *testing.T) {
	s := newSite(t, func(u *setup) {
		u.KnownUser = func(_ context.Context, id string) (bool, error) {
			if id == "broken" {
				return false, errors.New("the user database is on fire")
			}
			return id == "alice" || id == "admin", nil
		}
	})
	admin := s.admin()
	admin.get("/users/alice/api-keys").is(200)
	id := admin.post("/users/alice/api-keys", "").is(201).text("id")
	admin.delete("/users/alice/api-keys/" + id).is(204)

	if a := admin.get("/users/nobody/api-keys").is(200); strings.TrimSpace(string(a.body)) != "[]" {
		t.Errorf("keys of an unknown user: %s", a.body)
	}
	admin.delete("/users/nobody/api-keys").is(204)
	admin.post("/users/nobody/api-keys", "").fails(404, "not_found")
	admin.delete("/users/nobody/api-keys/0000000000000000").fails(404, "not_found")
	s.as("session-of-plain").get("/users/nobody/api-keys").fails(403, "forbidden")
	s.as("session-of-plain").post("/users/nobody/api-keys", `{"x": 1}`).fails(400, "invalid_request")
	if a := admin.post("/users/broken/api-keys", ""); a.status < 500 || strings.Contains(a.text("detail"), "fire") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
