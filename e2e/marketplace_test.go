package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
)

// tagging makes a server answer conditional requests. asked returns its requests as "path status".
func (u *upstream) tagging() (asked func() []string) {
	var mu sync.Mutex
	var list []string
	u.answer(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		text, there := u.files[strings.TrimPrefix(r.URL.Path, "/acme/")]
		u.mu.Unlock()
		status, tag := http.StatusOK, fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))
		if !there {
			status = http.StatusNotFound
		} else if r.Header.Get("If-None-Match") == tag {
			status = http.StatusNotModified
		}
		mu.Lock()
		list = append(list, fmt.Sprint(strings.TrimPrefix(r.URL.Path, "/acme/"), " ", status))
		mu.Unlock()
		w.Header().Set("ETag", tag)
		w.WriteHeader(status)
		if status == http.StatusOK {
			_, _ = w.Write([]byte(text))
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := list
		list = nil
		return all
	}
}

func wantAsked(t *testing.T, have []string, want ...string) {
	t.Helper()
	if len(have)+len(want) > 0 && !reflect.DeepEqual(have, want) {
		t.Errorf("the source was asked %q, want %q", have, want)
	}
}

// A restart costs one 304 for each file, and nothing else.
func TestRestartCostsA304(t *testing.T) {
	u := newUpstream(t, map[string]string{"f.json": `{"version": "1"}`})
	u.offer(first, `{"id": "file", "name": "File", "manifest_file": "f.json"}`)
	asked := u.tagging()
	s, ctx := newSite(t, trusting(u)), t.Context()
	admin := s.admin()
	admin.register(u)
	fails(t, errors.Join(admin.install("chat"), admin.install("file")), "")
	wantAsked(t, asked(), "templates.json 200", "templates.json 304", "f.json 200")
	for range 2 {
		s.restart()
		admin = s.admin()
		if must(admin.Templates.CheckUpdate(ctx, "file")).HasUpdate {
			t.Error("an update of what has not changed")
		}
		wantAsked(t, asked(), "templates.json 304", "f.json 304")
	}
	u.put("f.json", `{"version": "2"}`)
	s.restart()
	admin = s.admin()
	fails(t, admin.update("file", false), "")
	wantAsked(t, asked(), "templates.json 304", "f.json 200")

	// A source registered again starts with an empty cache.
	fails(t, admin.Sources.Remove(ctx, "acme"), "")
	admin.register(u)
	s.restart()
	must(s.admin().Templates.CheckUpdate(ctx, "chat"))
	wantAsked(t, asked(), "templates.json 200")
}

// One request checks all installed templates and reports those that differ.
func TestCheckUpdatesAsksOnce(t *testing.T) {
	const n = 300
	u := newUpstream(t, map[string]string{})
	asked := u.tagging()
	offer := func(changed int) {
		var entries []string
		for i := range n {
			version := 1
			if i == changed {
				version = 2
			}
			entries = append(entries, fmt.Sprintf(`{"id": "t%d", "name": "T", "manifest": {"version": "%d"}}`, i, version))
		}
		u.offer(entries...)
	}
	offer(-1)
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
	admin.register(u)
	for i := range n {
		fails(t, admin.install(fmt.Sprint("t", i)), "")
	}
	asked()
	want := func(checked int, problem string) {
		t.Helper()
		from := svc.SourceReport{Source: svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}, Checked: checked, Problem: problem}
		want := svc.UpdateReport{Checked: checked, Templates: []svc.TemplateUpdate{}, Sources: []svc.SourceReport{from}}
		if have := must(admin.Templates.CheckUpdates(ctx)); !reflect.DeepEqual(have, want) {
			t.Errorf("have %+v\nwant %+v", have, want)
		}
	}
	for range 3 {
		want(n, "")
		wantAsked(t, asked(), "templates.json 304")
	}
	offer(7)
	told := must(admin.Templates.CheckUpdates(ctx)).Templates
	wantAsked(t, asked(), "templates.json 200")
	check := must(admin.Templates.CheckUpdate(ctx, "t7"))
	if len(told) != 1 || told[0].ID != "t7" || !told[0].HasUpdate() || *told[0].LatestRevision != *check.LatestRevision {
		t.Errorf("told %+v, want the update of t7, %+v", told, check)
	}
	fails(t, admin.update("t7", false), "")
	want(n, "")
	u.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	want(0, `source "acme": its catalogue answered 500`)
}

// Over 20 versions of a catalogue, the report names exactly the templates whose content differs
// from the installed one. A template that is only written differently is not in it.
func TestHistoryOfACatalogue(t *testing.T) {
	const n = 40
	random := rand.New(rand.NewPCG(20, 26))
	u := newUpstream(t, map[string]string{})
	u.tagging()
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
	admin.register(u)
	var meant, installed [n]map[string]any // the contents of entries
	offer := func() {
		var entries []string
		for _, entry := range meant {
			text, err := json.Marshal(entry)
			if err != nil {
				t.Fatal(err)
			}
			written := string(text)
			switch random.IntN(4) { // written differently
			case 0:
				written = strings.ReplaceAll(written, `,"`, ",\n  \"")
			case 1:
				written = strings.Replace(written, `"n":1,`, `"n":1.0,`, 1)
			case 2:
				written = strings.Replace(written, "{", fmt.Sprintf(`{"comment":%d,`, random.Int()), 1)
			}
			if entry != nil {
				entries = append(entries, written)
			}
		}
		u.offer(entries...)
	}
	for i := range n {
		meant[i] = map[string]any{"id": fmt.Sprint("t", i), "name": "T", "manifest": map[string]any{"version": "1", "n": 1, "list": []int{1}}}
	}
	offer()
	for i := range n {
		fails(t, admin.install(fmt.Sprint("t", i)), "")
		installed[i] = meant[i]
	}
	told, compared := 0, 0
	for version := 2; version <= 20; version++ {
		for i := range n {
			switch random.IntN(12) {
			case 0:
				meant[i] = map[string]any{"id": fmt.Sprint("t", i), "name": "T", "manifest": map[string]any{"version": fmt.Sprint(version), "n": 1, "list": []int{1}}}
			case 1:
				meant[i] = map[string]any{"id": fmt.Sprint("t", i), "name": "T", "description": "", "manifest": map[string]any{"version": "1", "n": 1, "list": []int{1}}}
			case 2:
				meant[i] = installed[i]
			}
		}
		offer()
		found := map[string]bool{}
		for _, one := range must(admin.Templates.CheckUpdates(ctx)).Templates {
			found[one.ID] = true
			told++
		}
		for i := range n {
			id := fmt.Sprint("t", i)
			differs := !reflect.DeepEqual(meant[i], installed[i])
			if compared++; found[id] != differs {
				t.Fatalf("version %d: %s told: %v, differs: %v", version, id, found[id], differs)
			}
			if differs && random.IntN(2) == 0 {
				if !must(admin.Templates.Update(ctx, id, svc.UpdateRequest{})).Updated {
					t.Fatalf("version %d: %s was not updated", version, id)
				}
				installed[i] = meant[i]
			}
		}
	}
	if told < 100 {
		t.Errorf("only %d updates of %d comparisons", told, compared)
	}
	t.Logf("%d comparisons over 20 versions, %d updates told, none falsely, none missed", compared, told)
}

// The client accepts a signed catalogue only from the holder of the key, and never an older one
// again, also after a restart.
func TestSignedSource(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	u := newUpstream(t, map[string]string{})
	publish := func(serial int, version string) {
		text := fmt.Sprintf(`{"serial": %d, "templates": [{"id": "chat", "name": "Chat", "manifest": {"version": %q}}]}`, serial, version)
		u.put("templates.json", text)
		u.put("templates.json.sig", base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text))))
	}
	s, ctx := newSite(t, trusting(u)), t.Context()
	admin := s.admin()
	public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	for _, bad := range []string{`""`, `"AAAA"`, `"` + public[1:] + `"`, `"` + public + public + `"`, `7`} {
		admin.send("POST", "/admin/template-sources", `{"url": "`+u.URL+`/acme", "signing_key": `+bad+`}`).is(400)
	}
	must(admin.Sources.Register(ctx, svc.NewSource{URL: u.URL + "/acme", SigningKey: key.Public().(ed25519.PublicKey)}))
	u.offer(first)
	fails(t, admin.install("chat"), svc.CodeSourceFailed)
	publish(5, "5")
	fails(t, admin.install("chat"), "")
	if listed := must(all(admin.Sources.List(ctx))); !bytes.Equal(listed[0].SigningKey, key.Public().(ed25519.PublicKey)) || listed[0].Serial != 5 {
		t.Errorf("listed as %+v", listed)
	}
	if text := string(admin.send("GET", "/admin/template-sources", "").is(200).body); strings.Contains(text, "signing") {
		t.Errorf("the plain view is %s", text)
	}
	for range 2 {
		publish(4, "4") // the signature of the earlier version
		err := admin.update("chat", false)
		fails(t, err, svc.CodeSourceFailed)
		if !strings.Contains(err.Error(), "has serial 4, but serial 5 was accepted before") {
			t.Errorf("refused with %v", err)
		}
		s.restart()
		admin = s.admin()
	}
	publish(6, "6")
	fails(t, admin.update("chat", false), "")
	u.put("templates.json", strings.Replace(u.files["templates.json"], "Chat", "Evil", 1))
	fails(t, admin.update("chat", false), svc.CodeSourceFailed)
	if must(admin.Templates.Read(ctx, "chat")).Name != "Chat" {
		t.Error("what nobody signed was installed")
	}
}

func TestRebind(t *testing.T) {
	one, two := newUpstream(t, map[string]string{}), newUpstream(t, map[string]string{})
	one.offer(first)
	two.offer(strings.Replace(first, "Chat", "Elsewhere", 1))
	s, ctx := newSite(t, trusting(one, two)), t.Context()
	admin := s.admin()
	admin.register(one)
	fails(t, admin.install("chat"), "")
	fails(t, admin.Sources.Remove(ctx, "acme"), "")
	admin.register(two)
	s.restart()
	admin = s.admin()
	_, check := admin.Templates.CheckUpdate(ctx, "chat")
	_, diff := admin.Templates.Diff(ctx, "chat")
	for _, err := range []error{check, diff, admin.update("chat", false), admin.update("chat", true)} {
		fails(t, err, svc.CodeSourceMoved)
	}
	if first, again := must(admin.Sources.Rebind(ctx, "acme")), must(admin.Sources.Rebind(ctx, "acme")); fmt.Sprint(first, again) != "[chat] []" {
		t.Errorf("rebound %v, then %v", first, again)
	}
	fails(t, failure(admin.Sources.Rebind(ctx, "gone")), svc.CodeNotFound)
	s.restart()
	if update := must(s.admin().Templates.Update(ctx, "chat", svc.UpdateRequest{})); !update.Updated {
		t.Errorf("%+v", update)
	}
}

func TestSearch(t *testing.T) {
	one, two := newUpstream(t, map[string]string{}), newUpstream(t, map[string]string{})
	one.offer(`{"id": "chat", "name": "Talk to Customers", "tags": ["t"], "manifest": {"version": "1"}}`, `{"id": "half"}`)
	two.offer(`{"id": "notes", "name": "Notes", "description": "what CUSTOMERS say", "category": "talk", "manifest": {"version": "1"}}`)
	admin, ctx := newSite(t, trusting(one, two)).admin(), t.Context()
	if none := must(admin.Sources.Search(ctx, svc.CatalogFilter{})); len(none) > 0 {
		t.Errorf("listed %v", none)
	}
	admin.register(one)
	must(admin.Sources.Register(ctx, svc.NewSource{URL: two.URL + "/acme", Alias: new("other")}))
	must(admin.Sources.Register(ctx, svc.NewSource{URL: one.URL + "/none", Alias: new("broken")}))
	for filter, want := range map[svc.CatalogFilter]string{
		{}:                                    "acme: chat; broken: !; other: notes; ",
		{Text: "customers"}:                   "acme: chat; broken: !; other: notes; ",
		{Text: "customers TALK"}:              "acme: chat; broken: !; other: ; ",
		{Text: "notes"}:                       "acme: ; broken: !; other: notes; ",
		{Text: "chat", Tag: "t"}:              "acme: chat; broken: !; other: ; ",
		{Category: "talk"}:                    "acme: ; broken: !; other: notes; ",
		{Text: "nothing"}:                     "acme: ; broken: !; other: ; ",
		{Text: "customers", Category: "talk"}: "acme: ; broken: !; other: notes; ",
		{Text: " "}:                           "acme: chat; broken: !; other: notes; ",
		{Text: "k to c", Tag: "t"}:            "acme: chat; broken: !; other: ; ",
	} {
		var b strings.Builder
		for _, one := range must(admin.Sources.Search(ctx, filter)) {
			var ids []string
			for _, offered := range one.Templates {
				ids = append(ids, offered.ID)
			}
			if one.Problem != "" {
				ids = append(ids, "!")
			}
			fmt.Fprintf(&b, "%s: %s; ", one.Source.Name, strings.Join(ids, " "))
		}
		if b.String() != want {
			t.Errorf("%+v: %s, want %s", filter, b.String(), want)
		}
	}
	admin.send("GET", "/admin/source-templates?q=a&q=b", "").is(400)
	admin.send("GET", "/admin/source-templates?q="+strings.Repeat("a", 5000), "").is(400)
	must(admin.Sources.Browse(ctx, "acme", svc.CatalogFilter{Text: "customers"}))
}
