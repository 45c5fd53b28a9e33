package httpapi_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// rowsOfAccess are those that the matrix reads and changes. Nobody gains or loses a right by that.
const rowsOfAccess = `{
  "users": [{"id": "bob", "display_name": "Bob", "email": "bob@example.com", "channels": [{"provider": "slack", "sender_id": "T1/U7"}]}],
  "groups": [{"id": "crew", "display_name": "Crew", "members": ["bob"]}],
  "policies": [
    {"id": "spare", "display_name": "Spare", "document": {"version": "2026-03-24", "statements": []}},
    {"id": "loose", "document": {"version": "2026-03-24", "statements": []}},
    {"id": "held", "document": {"version": "2026-03-24", "statements": []}}],
  "attachments": [{"policy_id": "recalls", "principal_type": "user", "principal_id": "bob"}, {"policy_id": "held", "principal_type": "user", "principal_id": "bob", "priority": -7}],
  "service_accounts": [
    {"id": "bot", "display_name": "Bot", "owner_user_id": "bob", "scoping_policy_id": "spare"},
    {"id": "of-plain", "owner_user_id": "plain"}, {"id": "of-admin", "owner_user_id": "admin"}],
  "bank_policies": [{"bank_id": "team/a", "document": {"version": "2026-03-24"}}]
}`

// withRows is a site with these rows.
func withRows(t *testing.T, changes ...func(*setup)) *site {
	t.Helper()
	s := newSite(t, append([]func(*setup){func(u *setup) { u.Banks = banks{} }}, changes...)...)
	s.apply(rowsOfAccess)
	return s
}

// banks makes all banks but one, which is there already, and one that it does not like.
type banks struct{}

func (banks) MakeBank(_ context.Context, by svc.Principal, bank svc.NewBank) (svc.MadeBank, error) {
	switch bank.ID {
	case "there":
		return svc.MadeBank{}, nil
	case "taken":
		return svc.MadeBank{}, &svc.Error{Code: svc.CodeExists, Message: "a bank with this id already exists"}
	}
	result := must(marshal(map[string]any{"bank_id": bank.ID, "name": bank.Name, "by": by.ID, "manifest": bank.Manifest}))
	return svc.MadeBank{Created: true, ImportResult: result}, nil
}

func (s *site) apply(bundle string) {
	s.t.Helper()
	if err := s.service.Access.Apply(s.t.Context(), svc.Host, must(svc.ParseBundle([]byte(bundle)))); err != nil {
		s.t.Fatal(err)
	}
}

// matrixRow is a request of the matrix. In it, {mine} is an account of the caller's, {key} a key of the account.
type matrixRow struct {
	target, body string
	action       string // what the caller needs
	status       int    // for who has it
	makesKeys    bool   // service accounts may not
}

const (
	usersRead, usersWrite   = svc.ActionUsersRead, svc.ActionUsersWrite
	groupsRead, groupsWrite = svc.ActionGroupsRead, svc.ActionGroupsWrite
	policiesRead            = svc.ActionPoliciesRead
	policiesWrite           = svc.ActionPoliciesWrite
	attachmentsWrite        = svc.ActionAttachmentsWrite
	manage                  = svc.ActionAccountsManage
	mineRead, mineWrite     = svc.ActionAccountsRead, svc.ActionAccountsWrite
	mineKeys                = svc.ActionAccountKeysWrite
	banksRead, banksWrite   = svc.ActionBanksRead, svc.ActionBanksWrite
)

const emptyDocument = `{"version": "2026-03-24", "statements": []}`

var accessMatrix = map[string]matrixRow{
	"GET /users":                     {"/users", "", usersRead, 200, false},
	"POST /users":                    {"/users", `{"id": "new"}`, usersWrite, 201, false},
	"GET /users/{user_id}":           {"/users/bob", "", usersRead, 200, false},
	"PUT /users/{user_id}":           {"/users/bob", `{"display_name": "B"}`, usersWrite, 200, false},
	"DELETE /users/{user_id}":        {"/users/bob", "", usersWrite, 204, false},
	"GET /users/{user_id}/channels":  {"/users/bob/channels", "", usersRead, 200, false},
	"POST /users/{user_id}/channels": {"/users/bob/channels", `{"provider": "p", "sender_id": "s"}`, usersWrite, 201, false},
	"DELETE /users/{user_id}/channels/{provider}/{sender_id}": {"/users/bob/channels/slack/T1%2FU7", "", usersWrite, 204, false},

	"GET /groups":                                 {"/groups", "", groupsRead, 200, false},
	"POST /groups":                                {"/groups", `{"id": "new"}`, groupsWrite, 201, false},
	"GET /groups/{group_id}":                      {"/groups/crew", "", groupsRead, 200, false},
	"PUT /groups/{group_id}":                      {"/groups/crew", `{"display_name": "C"}`, groupsWrite, 200, false},
	"DELETE /groups/{group_id}":                   {"/groups/crew", "", groupsWrite, 204, false},
	"GET /groups/{group_id}/members":              {"/groups/crew/members", "", groupsRead, 200, false},
	"POST /groups/{group_id}/members":             {"/groups/crew/members", `{"user_id": "plain"}`, groupsWrite, 201, false},
	"DELETE /groups/{group_id}/members/{user_id}": {"/groups/crew/members/bob", "", groupsWrite, 204, false},

	"GET /policies":                {"/policies", "", policiesRead, 200, false},
	"POST /policies":               {"/policies", `{"id": "new", "document": ` + emptyDocument + `}`, policiesWrite, 201, false},
	"GET /policies/{policy_id}":    {"/policies/spare", "", policiesRead, 200, false},
	"PUT /policies/{policy_id}":    {"/policies/held", `{"display_name": "H"}`, policiesWrite, 200, false},
	"DELETE /policies/{policy_id}": {"/policies/loose", "", policiesWrite, 204, false},
	"GET /policy-attachments":      {"/policy-attachments", "", policiesRead, 200, false},
	"PUT /policy-attachments":      {"/policy-attachments", `{"policy_id": "spare", "principal_type": "group", "principal_id": "crew"}`, attachmentsWrite, 200, false},
	"DELETE /policy-attachments/{policy_id}/{principal_type}/{principal_id}": {"/policy-attachments/held/user/bob", "", attachmentsWrite, 204, false},

	"GET /service-accounts":                               {"/service-accounts", "", manage, 200, false},
	"POST /service-accounts":                              {"/service-accounts", `{"id": "new", "owner_user_id": "bob", "scoping_policy_id": "spare"}`, manage, 201, false},
	"GET /service-accounts/{sa_id}":                       {"/service-accounts/bot", "", manage, 200, false},
	"PUT /service-accounts/{sa_id}":                       {"/service-accounts/bot", `{"is_active": false}`, manage, 200, false},
	"DELETE /service-accounts/{sa_id}":                    {"/service-accounts/bot", "", manage, 204, false},
	"GET /service-accounts/{sa_id}/keys":                  {"/service-accounts/bot/keys", "", manage, 200, false},
	"POST /service-accounts/{sa_id}/keys":                 {"/service-accounts/bot/keys", `{}`, manage, 201, true},
	"DELETE /service-accounts/{sa_id}/keys":               {"/service-accounts/bot/keys", "", manage, 204, false},
	"PATCH /service-accounts/{sa_id}/keys/{key_id}":       {"/service-accounts/bot/keys/{key}", `{"disabled": true}`, manage, 200, true},
	"DELETE /service-accounts/{sa_id}/keys/{key_id}":      {"/service-accounts/bot/keys/{key}", "", manage, 204, false},
	"POST /service-accounts/{sa_id}/keys/{key_id}/rotate": {"/service-accounts/bot/keys/{key}/rotate", `{}`, manage, 201, true},

	"POST /banks":                    {"/banks", `{"bank_id": "b", "template": "server/none"}`, "template:list", 403, false}, // bank:create as well
	"GET /banks/{bank_id}/policy":    {"/banks/team%2Fa/policy", "", banksRead, 200, false},
	"PUT /banks/{bank_id}/policy":    {"/banks/team%2Fa/policy", `{"document": {"version": "2026-03-24", "default_strategy": "brief"}}`, banksWrite, 200, false},
	"DELETE /banks/{bank_id}/policy": {"/banks/team%2Fa/policy", "", banksWrite, 204, false},

	"GET /me":                                                {"/me", "", "", 200, false},
	"GET /me/service-accounts":                               {"/me/service-accounts", "", mineRead, 200, false},
	"POST /me/service-accounts":                              {"/me/service-accounts", `{"id": "new"}`, mineWrite, 201, false},
	"GET /me/service-accounts/{sa_id}":                       {"/me/service-accounts/{mine}", "", mineRead, 200, false},
	"PUT /me/service-accounts/{sa_id}":                       {"/me/service-accounts/{mine}", `{"display_name": "M"}`, mineWrite, 200, false},
	"DELETE /me/service-accounts/{sa_id}":                    {"/me/service-accounts/{mine}", "", mineWrite, 204, false},
	"GET /me/service-accounts/{sa_id}/keys":                  {"/me/service-accounts/{mine}/keys", "", mineRead, 200, false},
	"POST /me/service-accounts/{sa_id}/keys":                 {"/me/service-accounts/{mine}/keys", `{}`, mineKeys, 201, true},
	"DELETE /me/service-accounts/{sa_id}/keys":               {"/me/service-accounts/{mine}/keys", "", mineKeys, 204, false},
	"PATCH /me/service-accounts/{sa_id}/keys/{key_id}":       {"/me/service-accounts/{mine}/keys/{key}", `{"disabled": true}`, mineKeys, 200, true},
	"DELETE /me/service-accounts/{sa_id}/keys/{key_id}":      {"/me/service-accounts/{mine}/keys/{key}", "", mineKeys, 204, false},
	"POST /me/service-accounts/{sa_id}/keys/{key_id}/rotate": {"/me/service-accounts/{mine}/keys/{key}/rotate", `{}`, mineKeys, 201, true},
}

// allActions are the control-plane actions but one, for a session.
func allActions(but string) string {
	all := []string{
		usersRead, usersWrite, groupsRead, groupsWrite, policiesRead, policiesWrite, attachmentsWrite, manage, mineRead, mineWrite, mineKeys,
		banksRead, banksWrite, svc.ActionBanksGrant, svc.ActionAuditRead, "iam:api_keys:read", "iam:api_keys:write", "template:list", "template:admin",
	}
	all = slices.DeleteFunc(all, func(action string) bool { return action == but })
	return "+" + strings.Join(all, "+")
}

// Each operation of access administration, by each kind of caller.
func TestAccessMatrix(t *testing.T) {
	names := slices.DeleteFunc(strings.Split(strings.TrimSpace(accessPaths), "\n"), func(name string) bool {
		return strings.HasSuffix(name, bundlePath) // bundles need several actions: they have tests of their own
	})
	for _, name := range names {
		row, there := accessMatrix[name]
		if !there {
			t.Errorf("%s is not in the matrix", name)
			continue
		}
		for _, by := range []struct {
			who, bearer string
			status      func(matrixRow) int
		}{
			{"nobody", "", func(matrixRow) int { return 401 }},
			{"a plain user", "session-of-plain", func(r matrixRow) int { return r.only("") }},
			{"who has exactly the action", strings.TrimSuffix("session-of-plain+"+row.action, "+"), func(r matrixRow) int { return r.status }},
			{"who has all but the action", "session-of-plain" + allActions(row.action), func(r matrixRow) int { return r.only("") }},
			{"a barred user", "session-of-ghost" + allActions(""), func(matrixRow) int { return 401 }},
			{"a service account", "session-of-robot+sa", matrixRow.byAccount},
			{"a narrow service account", "session-of-narrow+sa", func(r matrixRow) int {
				if r.action == "" {
					return 403
				}
				return r.only(usersRead)
			}},
			{"a narrowed key", "narrowed", func(r matrixRow) int { return r.only(usersRead) }},
		} {
			t.Run(name+"/"+by.who, func(t *testing.T) {
				s := withRows(t)
				bearer := by.bearer
				if bearer == "narrowed" {
					bearer = string(must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}, svc.NewAPIKey{ScopingPolicyID: "reads-users"})).Key)
					s.keepSecret(bearer)
				}
				mine, account := "of-admin", "bot"
				if strings.HasPrefix(bearer, "session-of-plain") {
					mine = "of-plain"
				}
				if strings.Contains(row.target, "{mine}") {
					account = mine
				}
				key := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindServiceAccount, ID: account}, svc.NewAPIKey{}))
				s.keepSecret(string(key.Key))
				target := strings.NewReplacer("{mine}", mine, "{key}", key.ID).Replace(row.target)
				method, _, _ := strings.Cut(name, " ")
				before := s.state()
				s.as(bearer).send(method, target, row.body).is(by.status(row))
				if by.status(row) > 204 && s.state() != before {
					t.Error("a refused request changed something")
				}
			})
		}
	}
	if len(accessMatrix) != len(names) {
		t.Errorf("the matrix has %d rows", len(accessMatrix))
	}
}

// only is the status for a caller that has no action but one.
func (r matrixRow) only(action string) int {
	if r.action == action || r.action == "" {
		return r.status
	}
	return 403
}

// byAccount is the status for a service account that may do everything.
func (r matrixRow) byAccount() int {
	if r.makesKeys || r.action == "" {
		return 403
	}
	return r.status
}

// state is all rows of access and the ids of the keys of service accounts.
func (s *site) state() string {
	s.t.Helper()
	var b strings.Builder
	if _, err := s.store.ReadAccess(context.Background(), svc.AccessRead{}, func(part svc.Bundle) error {
		b.Write(must(part.JSON()))
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	for _, id := range []string{"bot", "of-plain", "of-admin"} {
		for _, key := range must(s.store.APIKeys(context.Background(), svc.APIKeyPage{Holder: svc.Identity{Kind: svc.KindServiceAccount, ID: id}, KeyQuery: svc.KeyQuery{Limit: 100}})) {
			b.WriteString(key.ID)
		}
	}
	return b.String()
}

// A host that owns identity leaves all of it out, but its own templates.
func TestHideAccess(t *testing.T) {
	s := withRows(t, func(u *setup) { u.HideAccess = true })
	admin := s.admin()
	for name, row := range accessMatrix {
		method, _, _ := strings.Cut(name, " ")
		admin.send(method, row.target, row.body).fails(404, "not_found")
	}
	admin.get("/users").json(`{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no such path.", "code": "not_found"}`)
	admin.get(bundlePath).fails(404, "not_found")
	admin.send("BREW", "/me", "").fails(404, "not_found")
	s.as("").get("/users").is(401)
	admin.get("/me/templates").is(200)
	admin.get("/me/template-sources").is(200)
	admin.get("/users/alice/api-keys").is(200)
	for path := range documents {
		wantHidden(t, string(s.as("").get(path).is(200).body))
	}
}

// wantHidden checks that a document has nothing of the administration of access, and all else.
func wantHidden(t *testing.T, document string) {
	t.Helper()
	for name := range accessMatrix {
		if _, path, _ := strings.Cut(name, " "); strings.Contains(document, `"`+path+`"`) {
			t.Errorf("the document has %s", path)
		}
	}
	for _, route := range httpapi.Routes() {
		if hidden := accessMatrix[route.Method+" "+route.Path].status != 0 || route.Path == bundlePath; !hidden && !strings.Contains(document, `"`+route.Path+`"`) {
			t.Errorf("the document lacks %s", route.Path)
		}
	}
	for _, name := range []string{`"Users"`, `"PatchUser"`, `"GroupID"`, `"RowETag"`, `"PolicyKept"`} {
		if strings.Contains(document, name) {
			t.Errorf("the document has %s, which nothing uses", name)
		}
	}
}
