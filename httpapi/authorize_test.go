package httpapi_test

import (
	"testing"

	"github.com/extsvc/svc"
)

func TestVouchedActions(t *testing.T) {
	s := newSite(t)
	for bearer, status := range map[string]int{
		"session-of-plain":                         403,
		"session-of-plain+template:admin":          200,
		"session-of-plain+template:*":              200,
		"session-of-unseen@example.com+template:*": 200,
		"session-of-plain+iam:*":                   403,
		"session-of-plain+template":                403,
		"session-of-plain+template:admin:*":        403,
		"session-of-plain+iam:*+template:admin":    200,
		"session-of-barred+template:admin":         403, // a stored deny wins
		"session-of-barred+template:*+iam:*":       403,
		"session-of-ghost+template:*":              401,
		"session-of-admin":                         200,
		"session-of-robot+sa":                      200,
		"session-of-narrow+sa":                     403,
		"session-of-nobody+sa":                     403,
	} {
		s.as(bearer).get("/admin/templates").is(status)
	}
	s.as("session-of-barred+iam:*").get("/users/alice/api-keys").is(200)
}

func TestVouchedActionsAreForOneRequest(t *testing.T) {
	s := newSite(t)
	session := s.as("session-of-plain+iam:*+template:*")
	own := session.post("/me/api-keys", "").is(201).text("api_key")
	long := session.post("/users/plain/api-keys", "").is(201).text("api_key")
	for _, key := range []string{own, long, "session-of-plain"} {
		s.as(key).get("/me/api-keys").is(200)
		s.as(key).get("/admin/templates").fails(403, "forbidden")
		s.as(key).get("/users/plain/api-keys").fails(403, "forbidden")
	}
}

func TestVouchedActionsAndTheCeiling(t *testing.T) {
	s := newSite(t)
	all := s.as("session-of-plain+iam:*+template:*")
	all.post("/users/admin/api-keys", "").is(201)
	few := s.as("session-of-plain+iam:users:write+iam:banks:grant")
	few.post("/users/admin/api-keys", "").fails(403, "forbidden")
	few.post("/users/reader/api-keys", "").fails(403, "forbidden")
	few.post("/users/alice/api-keys", "").is(201)
	few.get("/users/alice/api-keys").fails(403, "forbidden")
	s.as("session-of-barred+iam:*+template:*").post("/users/templater/api-keys", "").fails(403, "forbidden")
}

func TestRightsAreJudgedAtEachRequest(t *testing.T) {
	s := newSite(t)
	plain, robot := s.as(s.key("plain")), s.as(s.accountKey("robot"))
	plain.get("/admin/templates").is(403)
	robot.get("/admin/templates").is(200)
	apply := func(bundle string) {
		t.Helper()
		if err := s.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(bundle)))); err != nil {
			t.Fatal(err)
		}
	}
	apply(`{"attachments": [{"policy_id": "templates", "principal_type": "user", "principal_id": "plain"}]}`)
	plain.get("/admin/templates").is(200)
	apply(`{"attachments": [{"policy_id": "no-templates", "principal_type": "user", "principal_id": "plain"}]}`)
	plain.get("/admin/templates").is(403)
	apply(`{"users": [{"id": "plain", "is_active": false}]}`)
	plain.get("/me/api-keys").is(401)
	apply(`{"users": [{"id": "plain"}]}`)
	plain.get("/me/api-keys").is(200)
	apply(`{"users": [{"id": "admin", "is_active": false}]}`)
	robot.get("/admin/templates").is(401)
	apply(`{"users": [{"id": "admin"}]}`)
	robot.get("/admin/templates").is(200)
	apply(`{"service_accounts": [{"id": "robot", "owner_user_id": "admin", "is_active": false}]}`)
	robot.get("/admin/templates").is(401)
}

// A refused request changes nothing, and the refusal reveals nothing about the target.
func TestForbiddenComesBeforeNotFound(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	before := s.everything(admin)
	plain := s.as("session-of-plain")
	for _, id := range []string{"chat", "nothing"} {
		plain.get("/admin/templates/"+id).fails(403, "forbidden")
		plain.patch("/admin/templates/"+id, `{"name": "x"}`).fails(403, "forbidden")
		plain.delete("/admin/templates/"+id).fails(403, "forbidden")
		plain.post("/admin/templates/"+id+"/install", `{"source_name": "acme"}`).fails(403, "forbidden")
		plain.post("/admin/templates/"+id+"/install", `{"source_name": "nobody"}`).fails(403, "forbidden")
		plain.post("/admin/templates/"+id+"/update?force=1", "").fails(403, "forbidden")
		plain.get("/admin/templates/"+id+"/check-update").fails(403, "forbidden")
		plain.get("/admin/templates/"+id+"/diff").fails(403, "forbidden")
		plain.get("/admin/templates/"+id+"/history").fails(403, "forbidden")
		plain.post("/admin/templates/"+id+"/rollback", `{"version": 1}`).fails(403, "forbidden")
		plain.post("/admin/templates", `{"id": "`+id+`", "name": "n", "manifest": {"version": "1"}}`).fails(403, "forbidden")
	}
	plain.delete("/admin/template-sources/acme").fails(403, "forbidden")
	plain.delete("/admin/template-sources/nobody").fails(403, "forbidden")
	plain.get("/admin/template-sources/acme/templates").fails(403, "forbidden")
	plain.get("/admin/template-sources/nobody/templates").fails(403, "forbidden")
	plain.post("/admin/template-sources/acme/rebind", "").fails(403, "forbidden")
	plain.post("/admin/template-sources/nobody/rebind", "").fails(403, "forbidden")
	plain.post("/admin/templates/check-updates", "").fails(403, "forbidden")
	plain.get("/admin/source-templates").fails(403, "forbidden")
	plain.get("/admin/events").fails(403, "forbidden")
	plain.post("/admin/template-sources", `{"url": "https://h/acme"}`).fails(403, "forbidden")
	plain.get("/admin/template-sources").fails(403, "forbidden")
	plain.get("/users/nobody/api-keys").fails(403, "forbidden")
	if after := s.everything(admin); after != before {
		t.Errorf("a 403 changed something:\nbefore %s\nafter %s", before, after)
	}
	if requests := s.market.requests(); len(requests) != 1 {
		t.Errorf("a source was asked for who is not allowed")
	}
}
