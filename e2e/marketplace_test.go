package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
)

// first and second are versions of a template that a source offers.
const (
	first  = `{"id": "chat", "name": "Chat", "description": "one", "category": "talk", "tags": ["t"], "manifest": {"version": "1", "n": 1.0}}`
	second = `{"id": "chat", "name": "Chat", "description": "two", "category": "talk", "tags": ["t"], "manifest": {"version": "2", "n": 1.0}}`
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
