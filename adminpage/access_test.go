package adminpage_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
)

// Of many rows, a page counts some.
func TestAccessOfMany(t *testing.T) {
	crowd := office()
	group := svc.Group{ID: "all"}
	for i := range 10_300 {
		id := fmt.Sprintf("u%05d", i)
		crowd.Users, group.Members = append(crowd.Users, svc.User{ID: id}), append(group.Members, id)
	}
	crowd.Groups = append(crowd.Groups, group)
	s := newSite(t, crowd).signIn()
	s.get("access/users").is(t, 200, "1–50 of at least 10,050", ">Next<")
	s.get("access/users?from=200").is(t, 200, "201–250 of at least 10,250", ">Previous<", ">Next<")
	s.get("access/users?from=300").is(t, 200, "301–350 of 10,303", ">Next<")
	s.get("access/users?search=u0").is(t, 200, "1–50 of at least 10,000", ">Next<")
	s.get("access/users?search=u1029").is(t, 200, "1–10 of 10", "", ">Next<")
	s.get("access/groups/all").is(t, 200, "More than ", " more are not shown.")
}

func (a answer) draft(t *testing.T) url.Values {
	t.Helper()
	_, form, found := strings.Cut(a.body, `<form method="post" class="card">`)
	form, _, _ = strings.Cut(form, "</form>")
	if !found {
		t.Fatalf("no draft: %s", a.body)
	}
	fields := url.Values{}
	unescape := strings.NewReplacer("&#34;", `"`, "&amp;", "&", "&lt;", "<", "&gt;", ">", "&#39;", "'", "&#43;", "+")
	for _, part := range strings.Split(form, "<input type=\"hidden\" ")[1:] {
		_, name, _ := strings.Cut(part, `name="`)
		name, rest, _ := strings.Cut(name, `" value="`)
		value, _, _ := strings.Cut(rest, `"`)
		fields.Set(name, unescape.Replace(value))
	}
	if _, document, is := strings.Cut(form, `<textarea name="document" hidden>`); is {
		document, _, _ = strings.Cut(document, "</textarea>")
		fields.Set("document", unescape.Replace(document))
	}
	return fields
}

// Each act shows what it does before it is saved, and saves what it has shown.
func TestAccessActs(t *testing.T) {
	s := newSite(t, clinic(), func(*adminpage.Options) {}).signIn()
	group := svc.Bundle{Groups: []svc.Group{{ID: "team", Members: []string{}}}, Attachments: []svc.Attachment{{PolicyID: "works", Principal: svc.GrantedTo{Type: "group", ID: "team"}}}}
	must(0, s.service.Access.Apply(t.Context(), svc.Host, group))
	must(0, s.service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "new"}}}))
	exported := func() string { return string(must(must(s.service.Access.Export(t.Context(), svc.Host)).JSON())) }
	for _, act := range []struct {
		page  string
		form  url.Values
		shows []string // of the preview
		after string   // in the rows, once it is saved
	}{
		{"users/vera", form("do", "suspend"), []string{"Changes what 3 principals may do", "loses", "bank:recall"}, `"id":"vera","display_name":"vera","email":null,"is_active":false`},
		{"users/vera", form("do", "activate"), []string{"Changes what 3 principals may do", "gains"}, `"id":"vera","display_name":"vera","email":null,"is_active":true`},
		{"users/new", form("do", "join", "of", "team"), []string{"Changes what 1 principal may do: ", "gains", "<summary>1 user</summary>new"}, `"members":["new"]`},
		{"users/new", form("do", "leave", "of", "team"), []string{"loses"}, `"members":[]`},
		{"groups/team", form("do", "add", "who", "new"), []string{"gains"}, `"members":["new"]`},
		{"groups/team", form("do", "remove", "of", "new"), []string{"loses"}, `"members":[]`},
		{"policies/recalls", form("do", "attach", "kind", "user", "who", "new", "priority", "12"), []string{"gains", "bank:recall"}, `"policy_id":"recalls","principal_type":"user","principal_id":"new","priority":12`},
		{"policies/recalls", form("do", "document", "document", `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:reflect"],"banks":["a<b"]}]}`), []string{"gains", "loses", "a&lt;b"}, `bank:reflect`},
		{"accounts/bot", form("do", "suspend"), []string{"1 service account"}, `"id":"bot","display_name":"bot","owner_user_id":"vera","scoping_policy_id":null,"is_active":false`},
		{"banks/support", form("do", "document", "document", `{"version":"2026-03-24"}`), []string{"unknown senders"}, `"bank_id":"support","document":{"version":"2026-03-24"}`},
	} {
		before := exported()
		shown := s.post("access/"+act.page, act.form).is(t, 200, append([]string{"Who gains or loses", ">Save<", ">Preview<", "As JSON", ">Download<"}, act.shows...)...)
		if exported() != before {
			t.Fatalf("%s: a preview has written", act.page)
		}
		draft := shown.draft(t)
		draft.Set("then", "download")
		if a := s.post("access/"+act.page, draft); a.Header.Get("Content-Disposition") == "" || !json.Valid([]byte(a.body)) {
			t.Errorf("%s: downloaded %d %s", act.page, a.StatusCode, a.body)
		}
		draft.Set("then", "save")
		s.post("access/"+act.page, draft).is(t, 200, `role="status"`, "Saved.")
		if after := exported(); !strings.Contains(after, act.after) {
			t.Errorf("%s: %s is not in %s", act.page, act.after, after)
		}
		s.post("access/"+act.page, draft).is(t, 412, `role="alert"`, "Nothing was saved", "Changed meanwhile", "admin changed", ">Save<")
	}
	detach := form("do", "detach", "of", "recalls", "who", "user new")
	draft := s.post("access/policies/recalls", detach).is(t, 200, "loses", ">Save<", "", "Download").draft(t)
	draft.Set("then", "save")
	must(0, s.service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "meanwhile"}}}))
	again := s.post("access/policies/recalls", draft).is(t, 412, "Nothing was saved", "the host changed user meanwhile", "", "admin changed").draft(t)
	again.Set("then", "save")
	s.post("access/policies/recalls", again).is(t, 200, "Saved.", "", "Detach from new")
	s.post("access/policies/recalls", detach).is(t, 404, `role="alert"`)
}
