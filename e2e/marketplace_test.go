package e2e_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// tagging makes a server answer conditional requests, and returns what it is asked: "path status".
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

// A restart costs a 304 for each file, and no more.
func TestRestartCostsA304(t *testing.T) {
	u := newUpstream(t, map[string]string{"f.json": `{"version": "1"}`})
	u.offer(first, `{"id": "file", "name": "File", "manifest_file": "f.json"}`)
	asked := u.tagging()
	s := newSite(t, trusting(u))
	admin := s.admin()
	admin.register(u)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	admin.post("/admin/templates/file/install", `{"source_name": "acme"}`).is(200)
	wantAsked(t, asked(), "templates.json 200", "templates.json 304", "f.json 200")
	for range 2 {
		s.restart()
		admin = s.admin()
		if admin.get("/admin/templates/file/check-update").is(200).value()["has_update"] != false {
			t.Error("an update of what has not changed")
		}
		wantAsked(t, asked(), "templates.json 304", "f.json 304")
	}
	u.put("f.json", `{"version": "2"}`)
	s.restart()
	admin = s.admin()
	admin.post("/admin/templates/file/update", "").is(200)
	wantAsked(t, asked(), "templates.json 304", "f.json 200")

	// Registered anew, it starts with nothing.
	admin.delete("/admin/template-sources/acme").is(204)
	admin.register(u)
	s.restart()
	s.admin().get("/admin/templates/chat/check-update").is(200)
	wantAsked(t, asked(), "templates.json 200")
}

// All that is installed is checked with one request, and what is told is what differs.
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
	s := newSite(t, trusting(u))
	admin := s.admin()
	admin.register(u)
	for i := range n {
		admin.post(fmt.Sprintf("/admin/templates/t%d/install", i), `{"source_name": "acme"}`).is(200)
	}
	asked()
	const same = `{"checked": 300, "templates": [], "sources": [{"source_name": "acme", "source_scope": "server", "checked": 300, "problem": null}]}`
	for range 3 {
		admin.post("/admin/templates/check-updates", "").is(200).json(same)
		wantAsked(t, asked(), "templates.json 304")
	}
	offer(7)
	a := admin.post("/admin/templates/check-updates", "{}").is(200).value()
	wantAsked(t, asked(), "templates.json 200")
	one := a["templates"].([]any)[0].(map[string]any)
	check := admin.get("/admin/templates/t7/check-update").is(200).value()
	if len(a["templates"].([]any)) != 1 || one["template_id"] != "t7" || one["has_update"] != true || one["latest_revision"] != check["latest_revision"] {
		t.Errorf("told %v, want the update of t7, %v", a["templates"], check)
	}
	admin.post("/admin/templates/t7/update", "").is(200)
	admin.post("/admin/templates/check-updates", "").is(200).json(same)
	u.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	admin.post("/admin/templates/check-updates", "").is(200).
		json(`{"checked": 0, "templates": [], "sources": [{"source_name": "acme", "source_scope": "server", "checked": 0, "problem": "source \"acme\": its catalogue answered 500"}]}`)
}

// Over 20 versions of a catalogue, told are just the templates that say something else than what is installed: not those that are only
// written otherwise, and none is missed.
func TestHistoryOfACatalogue(t *testing.T) {
	const n = 40
	random := rand.New(rand.NewPCG(20, 26))
	u := newUpstream(t, map[string]string{})
	u.tagging()
	s := newSite(t, trusting(u))
	admin := s.admin()
	admin.register(u)
	var meant, installed [n]map[string]any // what entries say
	offer := func() {
		var entries []string
		for _, entry := range meant {
			text, err := json.Marshal(entry)
			if err != nil {
				t.Fatal(err)
			}
			written := string(text)
			switch random.IntN(4) { // written otherwise
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
		admin.post(fmt.Sprintf("/admin/templates/t%d/install", i), `{"source_name": "acme"}`).is(200)
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
		for _, one := range admin.post("/admin/templates/check-updates", "").is(200).value()["templates"].([]any) {
			found[one.(map[string]any)["template_id"].(string)] = true
			told++
		}
		for i := range n {
			id := fmt.Sprint("t", i)
			differs := !reflect.DeepEqual(meant[i], installed[i])
			if compared++; found[id] != differs {
				t.Fatalf("version %d: %s told: %v, differs: %v", version, id, found[id], differs)
			}
			if differs && random.IntN(2) == 0 {
				if admin.post("/admin/templates/"+id+"/update", "").is(200).value()["updated"] != true {
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

// A signed catalogue is taken from whoever has the key alone, and never an older one again, also after a restart.
func TestSignedSource(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	u := newUpstream(t, map[string]string{})
	publish := func(serial int, version string) {
		text := fmt.Sprintf(`{"serial": %d, "templates": [{"id": "chat", "name": "Chat", "manifest": {"version": %q}}]}`, serial, version)
		u.put("templates.json", text)
		u.put("templates.json.sig", base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text))))
	}
	s := newSite(t, trusting(u))
	admin := s.admin()
	public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	for _, bad := range []string{`""`, `"AAAA"`, `"` + public[1:] + `"`, `"` + public + public + `"`, `7`} {
		admin.post("/admin/template-sources", `{"url": "`+u.URL+`/acme", "signing_key": `+bad+`}`).is(400)
	}
	admin.post("/admin/template-sources", `{"url": "`+u.URL+`/acme", "signing_key": "`+public+`"}`).is(201)
	install := func(status int) {
		t.Helper()
		admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(status)
	}
	u.offer(first)
	install(502)
	publish(5, "5")
	install(200)
	full := admin.get("/admin/template-sources?view=full").is(200)
	if text := string(full.body); !strings.Contains(text, `"signing_key":"`+public+`"`) || !strings.Contains(text, `"serial":5`) {
		t.Errorf("listed as %s", text)
	}
	if text := string(admin.get("/admin/template-sources").is(200).body); strings.Contains(text, "signing") {
		t.Errorf("the plain view is %s", text)
	}
	for range 2 {
		publish(4, "4") // signed, once
		a := admin.post("/admin/templates/chat/update", "").is(502)
		if !strings.Contains(string(a.body), "has the serial 4, and one with 5 was accepted before") {
			t.Errorf("refused with %s", a.body)
		}
		s.restart()
		admin = s.admin()
	}
	publish(6, "6")
	admin.post("/admin/templates/chat/update", "").is(200)
	u.put("templates.json", strings.Replace(u.files["templates.json"], "Chat", "Evil", 1))
	admin.post("/admin/templates/chat/update", "").is(502)
	if admin.get("/admin/templates/chat").is(200).value()["name"] != "Chat" {
		t.Error("what nobody signed was installed")
	}
}

func TestRebind(t *testing.T) {
	one, two := newUpstream(t, map[string]string{}), newUpstream(t, map[string]string{})
	one.offer(first)
	two.offer(strings.Replace(first, "Chat", "Elsewhere", 1))
	s := newSite(t, trusting(one, two))
	admin := s.admin()
	admin.register(one)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	admin.delete("/admin/template-sources/acme").is(204)
	admin.register(two)
	s.restart()
	admin = s.admin()
	for _, a := range []answer{
		admin.get("/admin/templates/chat/check-update"), admin.post("/admin/templates/chat/update", ""),
		admin.post("/admin/templates/chat/update?force=true", ""), admin.get("/admin/templates/chat/diff"),
	} {
		if a.is(409).value()["code"] != "source_moved" {
			t.Errorf("answered %s", a.body)
		}
	}
	admin.post("/admin/template-sources/acme/rebind", "").is(200).json(`{"template_ids": ["chat"]}`)
	admin.post("/admin/template-sources/acme/rebind", "{}").is(200).json(`{"template_ids": []}`)
	admin.post("/admin/template-sources/gone/rebind", "").is(404)
	s.restart()
	if update := s.admin().post("/admin/templates/chat/update", "").is(200).value(); update["updated"] != true {
		t.Errorf("updated: %v", update["updated"])
	}
}

func TestSearch(t *testing.T) {
	one, two := newUpstream(t, map[string]string{}), newUpstream(t, map[string]string{})
	one.offer(`{"id": "chat", "name": "Talk to Customers", "tags": ["t"], "manifest": {"version": "1"}}`, `{"id": "half"}`)
	two.offer(`{"id": "notes", "name": "Notes", "description": "what CUSTOMERS say", "category": "talk", "manifest": {"version": "1"}}`)
	admin := newSite(t, trusting(one, two)).admin()
	admin.get("/admin/source-templates").is(200).json(`{"sources": []}`)
	admin.register(one)
	admin.post("/admin/template-sources", `{"url": "`+two.URL+`/acme", "alias": "other"}`).is(201)
	admin.post("/admin/template-sources", `{"url": "`+one.URL+`/none", "alias": "broken"}`).is(201)
	for query, want := range map[string]string{
		"":                              "acme: chat; broken: !; other: notes; ",
		"?q=customers":                  "acme: chat; broken: !; other: notes; ",
		"?q=customers%20TALK":           "acme: chat; broken: !; other: ; ",
		"?q=notes":                      "acme: ; broken: !; other: notes; ",
		"?q=chat&tag=t":                 "acme: chat; broken: !; other: ; ",
		"?category=talk":                "acme: ; broken: !; other: notes; ",
		"?q=nothing":                    "acme: ; broken: !; other: ; ",
		"?q=customers&category=talk":    "acme: ; broken: !; other: notes; ",
		"?q=%20":                        "acme: chat; broken: !; other: notes; ",
		"?q=k%20to%20c&tag=t&category=": "acme: chat; broken: !; other: ; ",
	} {
		var b strings.Builder
		for _, one := range admin.get("/admin/source-templates" + query).is(200).value()["sources"].([]any) {
			one := one.(map[string]any)
			var ids []string
			for _, offered := range one["templates"].([]any) {
				ids = append(ids, fmt.Sprint(offered.(map[string]any)["id"]))
			}
			if one["problem"] != nil {
				ids = append(ids, "!")
			}
			fmt.Fprintf(&b, "%s: %s; ", one["source_name"], strings.Join(ids, " "))
		}
		if b.String() != want {
			t.Errorf("%s: %s, want %s", query, b.String(), want)
		}
	}
	admin.get("/admin/source-templates?q=a&q=b").is(400)
	admin.get("/admin/source-templates?q=" + strings.Repeat("a", 5000)).is(400)
	admin.get("/admin/template-sources/acme/templates?q=customers").is(200)
}
