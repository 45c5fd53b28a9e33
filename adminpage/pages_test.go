package adminpage_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
)

func TestWhy(t *testing.T) {
	s := newSite(t, office()).signIn()
	s.get("why").is(t, 200, "<h1>Why</h1>", "Explain", "", "Statements")
	a := s.get("why?kind=user&who=bob&action=bank:recall&bank=support") // as the form asks
	if got := a.Request.URL.RawQuery; got != "action=bank%3Arecall&bank=support&user_id=bob" {
		t.Errorf("the address of the answer: %s", got)
	}
	a.is(t, 200, ">Denied<", `denied by statement 0 of policy &#34;on-leave&#34;`, "The way to this decision",
		`aria-label="Statements"`, "3 of 4 speak of this", "Show 1 more", "no allow helps")
	s.get("why?user_id=carol&bank=support").is(t, 200, ">Allowed<", `aria-label="Parameters"`, "recall_budget", "reads #0, to works#0")
	s.get("why?sa_id=robot&bank=support").is(t, 200, ">Allowed<", "service account")
	s.get("why?user_id=carol&bank=other").is(t, 200, ">Denied<", "Nearest: statement 0 of policy &#34;reads&#34;")
	s.get("why?user_id=nobody&bank=other").is(t, 200, ">Denied<")
	s.get("why?sender=nocolon&bank=support").is(t, 400, `role="alert"`, "sender", `value="nocolon"`)
	s.get("why?user_id=bob").is(t, 400, `role="alert"`, "bank")
}

func TestTryAChange(t *testing.T) {
	s := newSite(t, office()).signIn()
	asked := func(bundle string) answer {
		return s.post("why", form("kind", "user", "who", "bob", "bank", "support", "action", "bank:recall", "bundle", bundle))
	}
	asked(`{"policies":[{"id":"on-leave","document":{"version":"2026-03-24","statements":[]}}]}`).is(t, 200,
		">Denied<", "With this change: Allowed", `aria-label="Who gains or loses"`, "gains", "bob")
	asked(`{}`).is(t, 200, "With this change: Denied", "Nobody gains or loses")
	asked(`{"users":[{"id":""}]}`).is(t, 400, `role="alert"`, "/users/0/id", ">Denied<", "{&#34;users")
	asked(`<script>`).is(t, 400, `role="alert"`, "&lt;script&gt;")
	if check := must(s.service.Audit.Verify(t.Context(), svc.Host)); check.Fault != nil {
		t.Error(check.Fault)
	}
	s.get("why?user_id=bob&bank=support").is(t, 200, ">Denied<") // nothing was written
}

func TestWhoCan(t *testing.T) {
	s := newSite(t, office()).signIn()
	s.get("who-can").is(t, 200, "<h1>Who can</h1>", "", "<table")
	s.get("who-can?action=bank:recall&bank=support").is(t, 200, `aria-label="Who can bank:recall on support"`,
		"carol", "robot", "service account", "why?action=bank%3Arecall&amp;bank=support&amp;user_id=carol", ">allowed<", ">denied<")
	s.get("who-can?action=bank:recall&bank=").is(t, 400, `role="alert"`, "bank")
}

func TestWhoCanInPages(t *testing.T) {
	crowd := svc.Bundle{Policies: []svc.Policy{{ID: "all", Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["*"]}`)}}}
	for _, id := range crowdIDs {
		crowd.Users = append(crowd.Users, svc.User{ID: id})
		crowd.Attachments = append(crowd.Attachments, svc.Attachment{PolicyID: "all", Principal: svc.GrantedTo{Type: "user", ID: id}})
	}
	s := newSite(t, crowd).signIn()
	seen := map[string]int{}
	for address := "who-can?bank=b&action=bank:recall"; address != ""; {
		a := s.get(address).is(t, 200)
		for _, id := range crowdIDs {
			seen[id] += strings.Count(a.body, ">"+id+"<")
		}
		_, rest, more := strings.Cut(a.body, `<p><a href="who-can`)
		if address, _, _ = strings.Cut(rest, `"`); more {
			address = "who-can" + strings.ReplaceAll(address, "&amp;", "&")
		}
	}
	for _, id := range crowdIDs {
		if seen[id] != 1 {
			t.Errorf("%s is in the pages %d times", id, seen[id])
		}
	}
}

var crowdIDs = func() (ids []string) {
	for i := range 120 {
		ids = append(ids, "user-"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	return ids
}()

func TestKeys(t *testing.T) {
	s := newSite(t, office()).signIn()
	page := s.get("keys").is(t, 200, `aria-label="Keys"`, "admin", "Issue a key")
	issue := form("do", "issue", "once", page.field(t, "once"), "kind", "user", "for", "bob", "description", "laptop", "expires", "2199-12-31")
	first := s.post("keys", issue).is(t, 200, `role="status"`, "New key", "laptop", "2199-12-31")
	_, rest, _ := strings.Cut(first.body, `New key <input class="code" readonly value="`)
	key, _, _ := strings.Cut(rest, `"`)
	if _, err := s.service.Authenticate(t.Context(), key); err != nil {
		t.Errorf("the new key %q: %v", key, err)
	}
	s.post("keys", issue).is(t, 200, key) // sent twice
	list := s.get("keys?holder=bob").is(t, 200, "laptop", "", key)
	if n := strings.Count(list.body, `name="revoke"`); n != 1 {
		t.Errorf("a form that was sent twice has issued %d keys", n)
	}
	id := list.field(t, "key")
	at := func(do string) answer { return s.post("keys", form("do", do, "kind", "user", "for", "bob", "key", id)) }
	at("disable").is(t, 200, `role="status"`, "Disabled", "Enable svcu_"+id)
	at("enable").is(t, 200, "Enabled", "Disable svcu_"+id)
	s.get("keys?holder=bob&revoke="+id).is(t, 200, "Revoke now")
	at("revoke").is(t, 200, "Revoked")
	at("revoke").is(t, 404, `role="alert"`)
	if _, err := s.service.Authenticate(t.Context(), key); err == nil {
		t.Error("a revoked key is accepted")
	}
	s.post("keys", form("do", "issue", "once", "a", "kind", "user", "for", "bob", "expires", "tomorrow")).is(t, 400,
		`role="alert"`, "expires_at", `value="tomorrow"`)
	s.post("keys", form("do", "dance")).is(t, 400, `role="alert"`)
	s.get("keys?cursor=zzz").is(t, 400, `role="alert"`, "", "No key matches")
	s.get("who-can?action=&bank=").is(t, 400, `role="alert"`, "", "Nobody can")
	s.get("keys?holder=robot").is(t, 200, "No key matches")
	s.get("keys?which=expiring").is(t, 200, "No key matches")
}

func TestTemplates(t *testing.T) {
	s := newShop(t)
	s.get("templates").is(t, 200, `aria-label="Templates"`, `>Desk</a> <code>desk</code>`, "not checked", `aria-label="Sources"`, "", "edited here")
	s.post("templates", form("do", "check")).is(t, 200, "Checked all sources.", "up to date")
	s.edit("Mine.")
	s.publish(deskTwo)
	s.post("templates", form("do", "check")).is(t, 200, "update available", "edited here")
	s.get("templates?state=edited&search=DES").is(t, 200, "desk")
	s.get("templates?state=hand").is(t, 200, "No template matches")
	page := s.get("templates?source=acme").is(t, 200, `aria-label="Offers"`, "Install desk")
	install := form("do", "install", "source", "acme", "template_id", "desk", "alias_id", "desk two", "once", page.field(t, "once"), "number", "0")
	s.post("templates", install).is(t, 200, "Installed.", "<h1>Templates: Desk</h1>", "desk two", "Up to date")
	s.post("templates", install).is(t, 200, "Installed.")
	install.Set("alias_id", "desk")
	install.Set("once", "another")
	s.post("templates", install).is(t, 409, `role="alert"`)
	s.get("templates?source=nothing").is(t, 404, `role="alert"`, `aria-label="Templates"`)
	s.get("templates/nothing").is(t, 404, "<h1>Templates</h1>", `role="alert"`)
}

func TestReview(t *testing.T) {
	s := newShop(t)
	s.get("templates/desk").is(t, 200, "Up to date", "", ">Update<")
	s.publish(deskTwo)
	reviewed := s.get("templates/desk").is(t, 200, "Update available", "4 from the source", "/manifest/budget", ">Update<", "", "Discard")
	update := form("do", "update", "etag", reviewed.field(t, "etag"), "revision", reviewed.field(t, "revision"))
	s.edit("Mine.")
	s.post("templates/desk", update).is(t, 412, `role="alert"`, "with a conflict", "<dt>Installed</dt>", "<dt>Here</dt>", "<dt>Source</dt>", "", ">Update<")
	reviewed = s.get("templates/desk").is(t, 200, "Update and discard local edits")
	discard := form("do", "discard", "etag", reviewed.field(t, "etag"), "revision", reviewed.field(t, "revision"))
	s.publish(strings.ReplaceAll(deskTwo, "high", "higher"))
	s.post("templates/desk", discard).is(t, 412, `role="alert"`, "higher")
	reviewed = s.get("templates/desk")
	discard.Set("revision", reviewed.field(t, "revision"))
	s.post("templates/desk", discard).is(t, 200, "Updated.", "Up to date", "Go back to version 2")
	content := svc.Content{Name: "Made", Manifest: json.RawMessage(`{"version":"1"}`)}
	must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "made", Content: content}))
	s.get("templates/made").is(t, 200, `class="verdict new"`, "Made here", "came from no source")
	s.publish(`{`)
	s.get("templates/desk").is(t, 200, "Could not compare with the source")
	s.publish(deskOne)
	back := form("do", "rollback", "version", "1", "etag", s.get("templates/desk").field(t, "etag"))
	s.post("templates/desk", back).is(t, 200, "Went back")
	s.post("templates/desk", back).is(t, 412, `role="alert"`)
	s.post("templates/desk", form("do", "rollback", "version", "x")).is(t, 400, `role="alert"`)
	s.post("templates/desk", form("do", "update")).is(t, 400, "load the page again")
}

func TestAudit(t *testing.T) {
	s := newShop(t)
	s.get("audit").is(t, 200, `aria-label="Events"`, "template.installed", "What changed", "the host")
	s.get("audit?target=bob&actor=nobody").is(t, 200, "No event matches")
	s.get("audit?since=yesterday").is(t, 400, `role="alert"`, "since", `value="yesterday"`, "", "No event matches")
	now := time.Now().UTC()
	s.get("audit?since="+now.AddDate(0, 0, -1).Format(time.DateOnly)+"&until="+now.Format(time.DateOnly)).is(t, 200, `aria-label="Events"`)
	for range 60 {
		s.edit(strings.Repeat("x", 1+len(s.get("templates/desk").body)%7))
		s.edit("y")
	}
	a := s.get("audit").is(t, 200, ">Older<")
	for range 10 {
		_, rest, more := strings.Cut(a.body, `<p><a href="`)
		if !more {
			break
		}
		older, _, _ := strings.Cut(rest, `"`)
		a = s.get(strings.ReplaceAll(older, "&amp;", "&")).is(t, 200)
	}
	a.is(t, 200, `<th scope="row">1</th>`, "", ">Older<")
}

// A page never shows a text of a caller or of the database as markup.
func TestTextStaysText(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>"'`
	s := newShop(t)
	s.edit(evil)
	s.publish(strings.ReplaceAll(deskTwo, "Remembers", `<img src=x onerror=alert(2)>`))
	must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{Description: new(evil)}))
	escaped := strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", "'", "%27", " ", "+", "=", "%3D").Replace(evil)
	for _, address := range []string{
		"templates/desk", "templates?search=" + escaped, "templates?source=acme", "keys", "keys?holder=" + escaped, "keys?which=" + escaped,
		"why?user_id=" + escaped + "&bank=" + escaped + "&topic=" + escaped, "who-can?bank=" + escaped + "&action=" + escaped,
		"audit?actor=" + escaped + "&since=" + escaped, "templates?done=" + escaped, "nothing" + escaped,
	} {
		if a := s.get(address); strings.Contains(a.body, "<img") {
			t.Errorf("%s: %s", address, a.body)
		}
	}
}

func TestReadOnly(t *testing.T) {
	s := newShop(t, func(o *adminpage.Options) { o.ReadOnly = true })
	s.publish(deskTwo)
	for _, address := range []string{"keys", "templates/desk", "templates?source=acme"} {
		s.get(address).is(t, 200, "", "Revoke", "Issue key", `name="do" value="update"`, `name="do" value="install"`, "Go back")
	}
	s.post("keys", form("do", "issue", "once", "x", "kind", "user", "for", "bob")).is(t, 403, "read-only")
	s.post("templates", form("do", "install", "source", "acme", "template_id", "desk", "alias_id", "y")).is(t, 403, "read-only")
	s.post("templates/desk", form("do", "update")).is(t, 403, "read-only")
	s.post("templates", form("do", "check")).is(t, 200, "update available")
	s.post("why", form("kind", "user", "who", "bob", "bank", "support", "bundle", "{}")).is(t, 200, "With this change")
}

// A caller without rights finds nothing to press.
func TestRights(t *testing.T) {
	s := newSite(t, office())
	key := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{}))
	s.key = string(key.Key)
	s.read(s.client.PostForm(s.url+"sign-in", form("key", s.key))).is(t, 403, `role="alert"`, "bob", "Sign out", "", "<nav")
	for _, address := range []string{"why", "why?user_id=bob&bank=support", "who-can", "who-can?bank=b&action=a", "templates", "templates/x", "keys", "audit"} {
		s.get(address).is(t, 403, `role="alert"`, "", `class="ask"`, "<nav")
	}
	s.post("keys", form("do", "issue", "once", "x", "kind", "user", "for", "bob")).is(t, 403)
}

// Another site can make no browser change anything.
func TestOtherSites(t *testing.T) {
	s := newShop(t)
	for _, headers := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
	} {
		for _, path := range []string{"sign-in", "sign-out", "keys", "templates", "templates/desk", "why"} {
			request := must(http.NewRequest("POST", s.url+path, strings.NewReader("do=check")))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for name, value := range headers {
				request.Header.Set(name, value)
			}
			s.read(s.client.Do(request)).is(t, 403)
		}
	}
	s.get("keys").is(t, 200) // still signed in
}

// A revoked key ends the session with the next request.
func TestRevokedKeyEndsTheSession(t *testing.T) {
	s := newSite(t, office()).signIn()
	s.get("keys").is(t, 200)
	if _, err := s.service.Keys.RevokeAll(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}); err != nil {
		t.Fatal(err)
	}
	s.get("keys").is(t, 401, "API key")
}

// Any page, with all that it needs, is small.
func TestPagesAreSmall(t *testing.T) {
	s := newShop(t)
	for _, address := range []string{"why?user_id=bob&bank=support", "who-can?bank=support&action=bank:recall", "templates?source=acme", "templates/desk", "keys", "audit"} {
		page := s.get(address)
		size := 0
		for _, part := range append(assets(page.body), address) {
			request := must(http.NewRequest("GET", s.url+strings.TrimPrefix(part, "../"), nil))
			request.Header.Set("Accept-Encoding", "gzip")
			a := s.read(s.client.Do(request))
			size += len(a.body)
		}
		if size > 20_000 {
			t.Errorf("%s takes %d bytes on the wire", address, size)
		}
		t.Log(address, size)
	}
}

// assets returns the addresses of the style and the script of a page.
func assets(page string) (all []string) {
	for _, attribute := range []string{`stylesheet" href="`, `script src="`} {
		_, rest, _ := strings.Cut(page, attribute)
		address, _, _ := strings.Cut(rest, `"`)
		all = append(all, address)
	}
	return all
}
