package adminpage_test

import (
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"regexp"
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
		`aria-label="Statements"`, "3 of 4 apply", "Show 1 more", "overrides every allow")
	s.get("why?user_id=carol&bank=support").is(t, 200, ">Allowed<", `aria-label="Parameters"`, "recall_budget", `&#34;low&#34; (reads, statement 0)`)
	s.get("why?sa_id=robot&bank=support").is(t, 200, ">Allowed<", "service account")
	s.get("why?user_id=carol&bank=other").is(t, 200, ">Denied<", "Nearest: statement 0 of policy &#34;reads&#34;")
	s.get("why?user_id=nobody&bank=other").is(t, 200, ">Denied<")
	s.get("why?sender=nocolon&bank=support").is(t, 400, `role="alert"`, "sender", `value="nocolon"`)
	s.get("why?user_id=bob&bank=").is(t, 400, `role="alert"`, "bank")
	s.get("why?user_id=bob").is(t, 200, `value="bob"`, "", `role="alert"`, "Denied") // a question that is begun
}

func TestTryAChange(t *testing.T) {
	s := newSite(t, office()).signIn()
	asked := func(bundle string) answer {
		return s.post("why", form("kind", "user", "who", "bob", "bank", "support", "action", "bank:recall", "bundle", bundle))
	}
	asked(`{"policies":[{"id":"on-leave","document":{"version":"2026-03-24","statements":[]}}]}`).is(t, 200,
		">Denied<", "With this change: Allowed", `aria-label="Who gains or loses"`, "gains", "bob")
	asked(`{"bank_policies":[{"bank_id":"other","document":{"version":"2026-03-24","default_strategy":"swift"}}]}`).is(t, 200,
		`aria-label="Strategies"`, "→ swift")
	asked(`{}`).is(t, 200, "With this change: Denied", "Nobody gains or loses")
	asked(`{"users":[{"id":""}]}`).is(t, 400, `role="alert"`, "/users/0/id", ">Denied<", "{&#34;users")
	asked(`<script>`).is(t, 400, `role="alert"`, "&lt;script&gt;")
	if check := must(s.service.Audit.Verify(t.Context(), svc.Host)); check.Fault != nil {
		t.Error(check.Fault)
	}
	s.get("why?user_id=bob&bank=support").is(t, 200, ">Denied<") // nothing was written
}

// The sum counts a principal once for an action that it loses on several banks.
func TestSumOfAChange(t *testing.T) {
	s := newSite(t, clinic()).signIn()
	s.post("why", form("kind", "user", "who", "vera", "bank", "support", "action", "bank:recall",
		"bundle", `{"policies":[{"id":"works","document":{"version":"2026-03-24","statements":[]}}]}`)).is(t, 200,
		"Allowed → Denied.", "Changes what 4 principals may do: 4 lose bank:recall, 3 lose bank:retain.",
		"<summary>2 users, 2 service accounts</summary>", "bob, vera, bot (service account), limited (service account)")
}

func TestWhoCan(t *testing.T) {
	s := newSite(t, office()).signIn()
	s.get("who-can").is(t, 200, "<h1>Who can</h1>", "", "<table")
	s.get("who-can?action=bank:recall&bank=support").is(t, 200, `aria-label="Who can bank:recall on support"`,
		"carol", "robot", "service account", "why?action=bank%3Arecall&amp;bank=support&amp;user_id=carol", ">allowed<", ">denied<")
	s.get("who-can?action=bank:recall&bank=").is(t, 400, `role="alert"`, "bank")
	s = newSite(t, clinic()).signIn()
	s.get("who-can?action=bank:recall&bank=support").is(t, 200, `<th scope="row">unknown senders</th><td>allowed, except topic billing</td>`, "", "the public")
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
	key := first.newKey()
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
		`role="alert"`, "Expires must be a day", `value="tomorrow"`)
	s.post("keys", form("do", "dance")).is(t, 400, `role="alert"`)
	s.get("keys?cursor=zzz").is(t, 400, `role="alert"`, "", "No key matches")
	s.get("who-can?action=bank:recall&bank=suport").is(t, 200, "Nobody can. No policy allows any of this on this bank: check its name.")
	s.get("who-can?action=&bank=").is(t, 400, `role="alert"`, "", "Nobody can")
	s.get("keys?holder=robot").is(t, 200, "No key matches")
	s.get("keys?which=expiring").is(t, 200, "No key matches")
}

// Everybody has its own keys here. Who reads those of users alone is told that others are missing.
func TestOwnKeys(t *testing.T) {
	s := newSite(t, office())
	bob := svc.Identity{Kind: svc.KindUser, ID: "bob"}
	s.key = string(must(s.service.Keys.Issue(t.Context(), svc.Host, bob, svc.NewAPIKey{Description: new("old")})).Key)
	page := s.signIn().get("keys").is(t, 200, "old", "Issue a key", "", `id="kind"`, "Enter a holder")
	issue := form("do", "issue", "once", page.field(t, "once"), "kind", "user", "for", "bob", "policy", "works", "per_second", "0.5", "burst", "7")
	first := s.post("keys", issue).is(t, 200, "New key", "limited by <a href=", ">works</a>")
	issued := must(s.service.Keys.Find(t.Context(), svc.Host, first.newKey()))
	if issued.Rate != (svc.Rate{PerSecond: 0.5, Burst: 7}) || issued.ScopingPolicyID != "works" {
		t.Errorf("issued %+v", issued)
	}
	for field, value := range map[string]string{"per_second": "fast", "burst": "1.5", "policy": "nothing", "expires": "soon"} {
		wrong := form("do", "issue", "once", "x", "kind", "user", "for", "bob", "per_second", "1", field, value)
		s.post("keys", wrong).is(t, 400, `role="alert"`, `value="`+value+`"`)
	}
	key := page.field(t, "key")
	ask := s.get("keys?rotate="+key).is(t, 200, "Rotate svcu_"+key+"?", ">At once<", ">1 hour<", ">1 day<", "Rotate now")
	rotate := form("do", "rotate", "once", ask.field(t, "once"), "kind", "user", "for", "bob", "key", key, "overlap", "1h")
	next := s.post("keys", rotate).is(t, 200, "New key", "Rotated.", "expires soon")
	if _, err := s.service.Authenticate(t.Context(), next.newKey()); err != nil {
		t.Error(err)
	}
	s.post("keys", form("do", "rotate", "once", "y", "kind", "user", "for", "bob", "key", key, "overlap", "9h")).is(t, 400, "overlap")
	s.get("keys/"+key).is(t, 200, "<h1>Key svcu_"+key, "Successor", "old", "", "Events")

	clerk := svc.Bundle{
		Policies:    []svc.Policy{{ID: "clerks", Document: document(`{"effect":"allow","actions":["iam:users:read"],"banks":["*"]}`)}},
		Attachments: []svc.Attachment{{PolicyID: "clerks", Principal: svc.GrantedTo{Type: "user", ID: "bob"}}},
	}
	if err := s.service.Access.Apply(t.Context(), svc.Host, clerk); err != nil {
		t.Fatal(err)
	}
	s.get("keys").is(t, 200, "Enter a holder", "old")
	s.get("keys?holder=admin").is(t, 200, "svcu_", "", "Enter a holder", "Revoke svcu_")
}

// A key is found by its prefix and by the key itself, which no page and no address repeats.
func TestFindAKey(t *testing.T) {
	s := newSite(t, office()).signIn()
	holder := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	key := must(s.service.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{Rate: svc.Rate{PerSecond: 2, Burst: 3}}))
	for _, text := range []string{key.Prefix, string(key.Key), " " + key.ID + " "} {
		found := s.post("keys", form("do", "find", "find", text)).is(t, 200, "<h1>Key "+key.Prefix, "robot", "2 requests a second", "api_key.issued", "Revoke "+key.Prefix, "", string(key.Key))
		if address := found.Request.URL.String(); !strings.HasSuffix(address, "/keys/"+key.ID) {
			t.Error(address)
		}
	}
	wrong := strings.Replace(string(key.Key), key.ID, strings.ToUpper(key.ID[1:])+strings.ToLower(key.ID[:1]), 1)
	s.post("keys", form("do", "find", "find", wrong)).is(t, 404, `role="alert"`, "", wrong)
	must(0, s.service.Keys.Revoke(t.Context(), svc.Host, holder, key.ID))
	s.post("keys", form("do", "find", "find", string(key.Key))).is(t, 200, ">revoked<", "", "Revoke "+key.Prefix)
}

// Keys that have expired are apart from those that soon will.
func TestExpiredKeys(t *testing.T) {
	clock := time.Now()
	s := newSiteWith(t, svc.Config{Now: func() time.Time { return clock }}, office())
	bob := svc.Identity{Kind: svc.KindUser, ID: "bob"}
	clock = clock.Add(-time.Hour)
	for name, ends := range map[string]time.Duration{"past": time.Minute, "next": 48 * time.Hour, "later": 90 * 24 * time.Hour} {
		must(s.service.Keys.Issue(t.Context(), svc.Host, bob, svc.NewAPIKey{Description: new(name + "-key"), ExpiresAt: clock.Add(ends)}))
	}
	clock = time.Now()
	s.signIn()
	s.get("keys?which=expired").is(t, 200, "past-key", "", "next-key", "later-key")
	s.get("keys?which=expiring").is(t, 200, "next-key", "", "past-key", "later-key")
}

// newKey returns the new key of a page; "": it has none.
func (a answer) newKey() string {
	_, rest, _ := strings.Cut(a.body, `readonly data-copy>`)
	key, _, _ := strings.Cut(rest, "<")
	return key
}

func TestTemplates(t *testing.T) {
	s := newShop(t)
	s.get("templates").is(t, 200, `aria-label="Templates"`, `>Desk</a> <code>desk</code>`, "not checked", `href="sources/acme"`, "", "edited here")
	s.get("sources").is(t, 200, `aria-label="Sources"`, "not checked")
	s.post("templates", form("do", "check")).is(t, 200, "Checked all sources.", "up to date")
	s.edit("Mine.")
	s.publish(deskTwo)
	s.post("templates", form("do", "check")).is(t, 200, "update available", "edited here")
	s.get("templates?state=edited&search=DES").is(t, 200, "desk")
	s.get("templates?search=CKET").is(t, 200, "desk") // its category
	s.get("templates?state=hand").is(t, 200, "No template matches")
	page := s.get("templates?source=acme").is(t, 200, `aria-label="Offers"`, "Install desk")
	install := form("do", "install", "source", "acme", "template_id", "desk", "alias_id", "desk two", "once", page.field(t, "once"), "number", "0")
	s.post("templates", install).is(t, 200, "Installed.", "<h1>Templates: Desk</h1>", "desk two", "Up to date")
	s.post("templates", install).is(t, 200, "Installed.")
	install.Set("alias_id", "desk")
	install.Set("once", "another")
	s.post("templates", install).is(t, 409, `role="alert"`)
	s.get("templates?source=nothing").is(t, 404, `role="alert"`, "<h1>Sources</h1>")
	s.get("templates/nothing").is(t, 404, "<h1>Templates</h1>", `role="alert"`)
}

func TestReview(t *testing.T) {
	s := newShop(t)
	s.get("templates/desk").is(t, 200, "Up to date", "", ">Update<")
	s.publish(deskTwo)
	reviewed := s.get("templates/desk").is(t, 200, "Update available", "4 from the source", "/manifest/budget", ">Update<", "", "Discard")
	update := form("do", "update", "etag", reviewed.field(t, "etag"), "revision", reviewed.field(t, "revision"))
	s.edit("Mine.")
	s.post("templates/desk", update).is(t, 412, `role="alert"`, "with a conflict", "<dt>Base</dt>", "<dt>Yours</dt>", "<dt>Source</dt>", "", ">Update<")
	reviewed = s.get("templates/desk").is(t, 200, "Update and discard local edits")
	discard := form("do", "discard", "etag", reviewed.field(t, "etag"), "revision", reviewed.field(t, "revision"))
	s.publish(strings.ReplaceAll(deskTwo, "high", "higher"))
	s.post("templates/desk", discard).is(t, 412, `role="alert"`, "higher")
	reviewed = s.get("templates/desk")
	discard.Set("revision", reviewed.field(t, "revision"))
	s.post("templates/desk", discard).is(t, 200, "Updated.", "Up to date", "Go back to version 2")
	content := svc.Content{Name: "Made", Manifest: json.RawMessage(`{"version":"1"}`)}
	must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "made", Content: content}))
	s.get("templates/made").is(t, 200, `class="verdict new"`, "Made here", "no source to update from")
	s.publish(`{`)
	s.get("templates/desk").is(t, 200, "Could not compare with the source")
	s.publish(deskOne)
	back := form("do", "rollback", "version", "1", "etag", s.get("templates/desk").field(t, "etag"))
	s.post("templates/desk", back).is(t, 200, "Restored.")
	s.post("templates/desk", back).is(t, 412, `role="alert"`)
	s.post("templates/desk", form("do", "rollback", "version", "x")).is(t, 400, `role="alert"`)
	s.post("templates/desk", form("do", "update")).is(t, 400, "load the page again")
}

// A conflict is settled place by place, or by keeping all that was edited here. Nothing is chosen
// beforehand, and nothing is written for a place without a choice.
func TestSettle(t *testing.T) {
	for choice, want := range map[string][2]string{
		"yours": {"Mine.", "high"}, "source": {"Remembers what was asked.", "high"}, "keep": {"Mine.", "mid"},
	} {
		s := newShop(t)
		s.edit("Mine.")
		s.publish(deskTwo)
		page := s.get("templates/desk").is(t, 200, "with a conflict", `<legend>/description</legend>`, ">Settle<", ">Keep all yours<", "", " checked", ">Update<")
		settle := form("do", "settle", "etag", page.field(t, "etag"), "revision", page.field(t, "revision"))
		s.post("templates/desk", settle).is(t, 400, `role="alert"`, "/description", "choose Yours or Source", "with a conflict")
		settle.Set("place /description", "both")
		s.post("templates/desk", settle).is(t, 400, `role="alert"`)
		if choice == "keep" {
			settle.Set("do", "keep")
		} else {
			settle.Set("place /description", choice)
		}
		stale := maps.Clone(settle)
		stale.Set("etag", `"0"`)
		s.post("templates/desk", stale).is(t, 412, `role="alert"`)
		s.post("templates/desk", settle).is(t, 200, "Updated.", "", "conflict", "Update available")
		desk := must(s.service.Templates.Read(t.Context(), svc.Host, "desk"))
		var manifest struct{ Budget string }
		must(0, json.Unmarshal(desk.Manifest, &manifest))
		if got := [2]string{*desk.Description, manifest.Budget}; got != want {
			t.Errorf("%s: %q, want %q", choice, got, want)
		}
	}
}

// A place within the manifest is settled as the source has it, where the source has nothing as well. The manifest keeps its order.
func TestSettleWithin(t *testing.T) {
	with := func(manifest string) string { return strings.Replace(deskOne, `"budget":"mid"`, manifest, 1) }
	s := newShop(t)
	s.publish(with(`"in":{"a/b":1,"c~d":1.50,"e":1}`))
	s.post("templates/desk", form("do", "update", "etag", s.get("templates/desk").field(t, "etag"), "revision", s.get("templates/desk").field(t, "revision")))
	must(s.service.Templates.Patch(t.Context(), svc.Host, "desk", svc.TemplatePatch{Manifest: json.RawMessage(`{"version":"1","in":{"a/b":2,"c~d":1.50,"e":2,"mine":1}}`)}))
	s.publish(with(`"in":{"c~d":2.50,"new":"<&>"}`))
	page := s.get("templates/desk").is(t, 200, "<legend>/manifest/in/a~1b</legend>", "<legend>/manifest/in/e</legend>")
	s.post("templates/desk", form("do", "settle", "etag", page.field(t, "etag"), "revision", page.field(t, "revision"),
		"place /manifest/in/a~1b", "source", "place /manifest/in/e", "yours")).is(t, 200, "Updated.")
	if got := string(must(s.service.Templates.Read(t.Context(), svc.Host, "desk")).Manifest); got != `{"version":"1","in":{"c~d":2.5,"e":2,"mine":1,"new":"<&>"}}` {
		t.Error(got)
	}
}

// A template that its source has only renamed has an update, until it is made.
func TestRenamed(t *testing.T) {
	s := newShop(t)
	s.publish(strings.Replace(deskOne, `"id":"desk"`, `"id":"bureau"`, 1)[:len(deskOne)+1] + `,"renames":{"desk":"bureau"}}`)
	s.post("templates", form("do", "check")).is(t, 200, "update available", "", "up to date")
	page := s.get("templates/desk").is(t, 200, "Update available", "bureau", ">Update<", "", "Up to date")
	update := form("do", "update", "etag", page.field(t, "etag"), "revision", page.field(t, "revision"))
	s.post("templates/desk", update).is(t, 200, "Updated.", "Up to date", "as <code>bureau</code>", "", ">Update<")
	s.get("templates").is(t, 200, "not checked", "", "update available")
	s.post("templates", form("do", "check")).is(t, 200, "up to date", "", "update available")
}

// A template that a check could not compare is not up to date, and a personal source is no source of the server.
func TestNotCompared(t *testing.T) {
	s := newShop(t)
	ann := svc.Principal{Kind: svc.KindUser, ID: "admin"}
	must(s.service.MySources.Register(t.Context(), ann, svc.NewSource{URL: "fs://acme", Alias: new("acme")}))
	must(s.service.Templates.Install(t.Context(), ann, svc.Install{TemplateID: "desk", AliasID: new("mine"), SourceName: "acme", SourceScope: svc.ScopePersonal}))
	s.publish(strings.Replace(deskOne, `"name":"Desk",`, "", 1))
	s.post("templates", form("do", "check")).is(t, 200, "Checked all sources.", "not checked", "", "up to date")
	s.publish(`{"templates":[]}`)
	s.post("templates", form("do", "check")).is(t, 200, "Checked all sources.", "gone from its source", "", "up to date", "not checked")
	s.publish(deskOne)
	s.get("templates/mine").is(t, 200, "from acme as", "", `sources/acme"`)
	must(0, s.service.MySources.Remove(t.Context(), ann, "acme"))
	page := s.post("templates", form("do", "check")).is(t, 200, "Checked 1 of 2 sources.", "<p>acme: ", "up to date", "not checked")
	if n := strings.Count(page.body, `href="sources/acme"`); n != 1 {
		t.Errorf("%d links to the source of the server: %s", n, page.body)
	}
	s.get("sources").is(t, 200, `href="sources/acme"`, "", "no longer registered</span>")
}

// A page shows the content of a template, and what has changed since a former version.
func TestContent(t *testing.T) {
	s := newShop(t)
	s.edit("Mine.")
	s.get("templates/desk").is(t, 200, ">Content<", "&#34;budget&#34;: &#34;mid&#34;", ">slack</span>", `href="?compare=1"`, `href="../sources/acme"`, "", "Since version")
	s.get("templates/desk?compare=1").is(t, 200, "Since version 1", "<code>/description</code>", "<del>", "Mine.")
	s.get("templates/desk?compare=7").is(t, 404, `role="alert"`, "no such version", ">History<")
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
	s.read(s.client.PostForm(s.url+"sign-in", form("key", s.key))).is(t, 200, "<h1>Keys</h1>", "bob", "Sign out", "", `href="why"`, "carol")
	for _, address := range []string{"why", "why?user_id=bob&bank=support", "who-can", "who-can?bank=b&action=a", "templates", "templates/x", "audit", "keys?holder=carol", "keys/nothing"} {
		s.get(address).is(t, 403, `role="alert"`, "", `class="ask"`)
	}
	s.post("keys", form("do", "issue", "once", "x", "kind", "user", "for", "carol")).is(t, 403)
	narrow := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{ScopingPolicyID: "works"}))
	s.post("sign-out", nil)
	s.read(s.client.PostForm(s.url+"sign-in", form("key", string(narrow.Key)))).is(t, 403, `role="alert"`, "iam:users:read", "", "<nav")
	s.get("keys").is(t, 403, `role="alert"`, "", `class="ask"`)
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

// No link of a page leads to an error.
func TestLinksLead(t *testing.T) {
	links := regexp.MustCompile(`<a [^>]*href="([^"]*)"`)
	for _, s := range []*site{newShop(t).site, newSite(t, clinic()).signIn()} {
		seen, next := map[string]bool{}, []string{s.url}
		for len(next) > 0 {
			address := next[0]
			if next = next[1:]; seen[address] {
				continue
			}
			seen[address] = true
			a := s.read(s.client.Get(address))
			if a.StatusCode != 200 {
				t.Errorf("%s: %d", address, a.StatusCode)
			}
			for _, link := range links.FindAllStringSubmatch(a.body, -1) {
				to := must(a.Request.URL.Parse(html.UnescapeString(link[1])))
				to.Fragment = ""
				if strings.HasPrefix(to.String(), s.url) {
					next = append(next, to.String())
				}
			}
		}
		if len(seen) < 20 {
			t.Errorf("only %d addresses", len(seen))
		}
	}
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
