package httpapi_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
)

func TestKeyUseIsShown(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	s.as(key).get("/me/api-keys").is(200)
	expect.Equal(t, "close", s.service.Close(), nil) // writes what waits
	expect.Equal(t, "used", s.as(key).get("/me/api-keys?view=full").texts("last_used_at"), []string{"2026-01-02T03:04:00.000000Z"})
}

// A key is masked wherever it is pasted, and where a store repeats it.
func TestKeysAreMasked(t *testing.T) {
	const foreign = "sk-live-9f2Kq7Xz1Bv8Lm4Tn6Rw/3Yp0+=="
	s := newSite(t, func(u *setup) { u.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}} })
	hash := sha256.Sum256([]byte(foreign))
	imported := must(s.service.Keys.Import(t.Context(), svc.Host, alice, svc.ImportedKey{Prefix: "sk-", Hash: hash[:]}))
	for _, part := range []string{foreign, foreign[:24], "9f2Kq7Xz1B", "w~13Yp0"} {
		s.keepSecret(part)
	}
	expect.Equal(t, "listed", s.as(foreign).get("/me/api-keys").is(200).texts("api_key_prefix"), []string{imported.Prefix})
	own, admin := s.key("alice"), s.admin()
	for key, masked := range map[string]string{foreign: "sk-***", own: own[:21] + "***"} {
		pasted, unseen := strings.ReplaceAll(key, "/", ""), s.as(s.key("alice"))
		s.keepSecret(pasted)
		s.as(key).delete("/me/api-keys/" + pasted).is(404)
		admin.get("/admin/templates/" + pasted).is(404)
		admin.post("/me/api-keys", `{"`+key+`": 1}`).refuses("/" + masked)
		admin.post("/me/api-keys", `{"`+strings.Repeat("long", 45)+" "+key+`": 1}`).is(400) // cut behind its beginning
		admin.post("/admin/templates", `{"id": "a", "name": "n", "manifest": {"version": "1", "a": {"`+key+`": 1, "`+key+`": 2}}}`).refuses("/manifest/a/" + masked)
		s.store.Plant(func(string) error { return errors.New(`no row has the key "` + key + `" ` + pasted) })
		admin.delete("/me/api-keys/" + pasted).is(500)
		s.store.Plant(func(string) error { panic("no row has the key " + key) })
		admin.delete("/me/api-keys/" + pasted).is(500)
		s.store.Plant(func(string) error { return svc.ErrUnavailable })
		unseen.send(own, "/me/api-keys", "").is(503)
		s.store.Plant(nil)
		expect.Equal(t, masked, strings.Count(s.log.String(), masked) >= 3, true)
	}
}

// Every site looks for secrets when it ends: that must be able to fail, and look at answers, logs and events.
func TestLeaksAreNoticed(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.post("/users/alice/api-keys", "").is(201)
	s.store.Plant(func(string) error { return errors.New("logged fault") })
	admin.get("/admin/templates").is(500)
	for _, kind := range []string{"api_key.issued", "logged fault", "application/problem+json"} {
		expect.Equal(t, kind, strings.Contains(s.said.String(), kind), true)
	}
	expect.Equal(t, "secrets, leaks", []int{len(s.secrets), len(s.leaks())}, []int{2, 0})
	fmt.Fprint(s.said, s.secrets[1])
	expect.Equal(t, "leaks", len(s.leaks()), 1)
	s.secrets = nil
}
