package httpapi_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// A key of another system is as secret as one issued here, wherever it is pasted.
func TestImportedKeysAreMasked(t *testing.T) {
	const key = "sk-live-9f2Kq7Xz1Bv8Lm4Tn6Rw/3Yp0+=="
	s := newSite(t, func(u *setup) { u.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}} })
	hash := sha256.Sum256([]byte(key))
	holder := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	imported, err := s.service.Keys.Import(t.Context(), svc.Host, holder, svc.ImportedKey{Prefix: "sk-", Hash: hash[:]})
	if err != nil {
		t.Fatal(err)
	}
	s.keepSecret(key)
	s.keepSecret(key[:24])
	s.keepSecret("9f2Kq7Xz1B")
	s.keepSecret("w~13Yp0")

	alice, admin := s.as(key), s.admin()
	if listed := alice.get("/me/api-keys").is(200).texts("api_key_prefix"); len(listed) != 1 || listed[0] != imported.Prefix {
		t.Errorf("listed as %q", listed)
	}
	pasted := strings.ReplaceAll(key, "/", "")
	s.keepSecret(pasted)
	alice.delete("/me/api-keys/" + pasted).is(404)
	admin.get("/admin/templates/" + pasted).is(404)
	admin.post("/me/api-keys", `{"`+key+`": 1}`).refuses("/sk-***")
	admin.post("/me/api-keys", `{"`+strings.Repeat("long", 45)+" "+key+`": 1}`).is(400) // cut behind its beginning
	admin.post("/admin/templates", `{"id": "a", "name": "n", "manifest": {"version": "1", "a": {"`+key+`": 1, "`+key+`": 2}}}`).refuses("/manifest/a/sk-***")

	s.store.plant(func(string) error { return errors.New(`no row has the key "` + key + `" ` + pasted) })
	admin.delete("/me/api-keys/" + pasted).is(500)
	s.store.plant(func(string) error { panic("no row has the key " + key) })
	admin.delete("/me/api-keys/" + pasted).is(500)
	if n := strings.Count(s.said.String(), "sk-***"); n < 4 {
		t.Errorf("%d masked keys", n)
	}
}
