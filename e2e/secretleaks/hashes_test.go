//go:build unix

package secretleaks

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/token"
)

// stored tries the stored values of a key as credentials: a reader of the database must not get
// one.
func (s *site) stored(key string) {
	s.t.Helper()
	snapshot, err := s.store.Access(s.t.Context(), svc.AccessQuery{KeyID: key[5:21]})
	if err != nil || snapshot.Key == nil {
		s.t.Fatalf("the key is not stored: %v", err)
	}
	for _, form := range forms(*snapshot.Key) {
		if s.accepted(form) {
			s.t.Errorf("%q is accepted, made of what is stored", form)
		}
	}
	if !s.accepted(key) {
		s.t.Error("nothing is accepted")
	}
}

// forms returns the credentials that a reader could build from a row: the hash in every encoding,
// alone and as the secret of a well-formed key.
func forms(key svc.APIKey) []string {
	var forms []string
	for _, text := range []string{
		string(key.Hash), hex.EncodeToString(key.Hash), strings.ToUpper(hex.EncodeToString(key.Hash)), `\x` + hex.EncodeToString(key.Hash),
		base64.StdEncoding.EncodeToString(key.Hash), base64.RawStdEncoding.EncodeToString(key.Hash), base64.URLEncoding.EncodeToString(key.Hash), base64.RawURLEncoding.EncodeToString(key.Hash),
		"", key.ID, key.Prefix, key.Pepper,
	} {
		forms = append(forms, text)
		for _, prefix := range []string{"svcu_", "svcs_"} {
			forms = append(forms, prefix+text, prefix+key.ID+text, token.Token{Prefix: prefix, ID: key.ID, Secret: text}.String())
			for _, secret := range cuts(text) {
				forms = append(forms, token.Token{Prefix: prefix, ID: key.ID, Secret: secret}.String())
			}
		}
	}
	return forms
}

// cuts returns the pieces of a text that have the length of a secret, without characters that no
// key has.
func cuts(text string) (pieces []string) {
	text = strings.NewReplacer("+", "", "/", "", "-", "", "_", "", "=", "", `\`, "").Replace(text)
	for i := range max(0, len(text)-token.SecretLength+1) {
		pieces = append(pieces, text[i:i+token.SecretLength])
	}
	return pieces
}

// accepted reports whether the Service accepts a bearer, in Go or over HTTP.
func (s *site) accepted(bearer string) bool {
	_, err := s.service.Authenticate(s.t.Context(), bearer)
	if strings.ContainsFunc(bearer, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return err == nil
	}
	return err == nil || s.ask(0, bearer, "GET", "/me/api-keys", "").status != http.StatusUnauthorized
}
