package tokens_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/ory/fosite"
	"github.com/ory/fosite/handler/oauth2"
	"github.com/ory/fosite/storage"
	"github.com/ory/fosite/token/hmac"
)

// newFosite verifies opaque access tokens with github.com/ory/fosite: their HMAC-SHA512/256, their
// record in memory, their expiry. There is no other process that could revoke one.
func newFosite(tb testing.TB) verifier {
	tb.Helper()
	ctx := tb.Context()
	secret := make([]byte, 32)
	rand.Read(secret)
	config := &fosite.Config{GlobalSecret: secret, DisableRefreshTokenValidation: true}
	records := storage.NewMemoryStore()
	strategy := oauth2.NewHMACSHAStrategy(&hmac.HMACStrategy{Config: config}, config)
	var v verifier
	for i := range stored {
		token, signature, err := strategy.GenerateAccessToken(ctx, nil)
		if err != nil {
			tb.Fatal(err)
		}
		request := fosite.NewRequest()
		request.Client = &fosite.DefaultClient{ID: userOf(i)}
		request.Session = &fosite.DefaultSession{Subject: userOf(i), ExpiresAt: map[fosite.TokenType]time.Time{
			fosite.AccessToken: time.Now().Add(24 * time.Hour),
		}}
		if err := records.CreateAccessTokenSession(ctx, signature, request); err != nil {
			tb.Fatal(err)
		}
		v.tokens = append(v.tokens, token)
	}
	tokens := &oauth2.CoreValidator{CoreStrategy: strategy, CoreStorage: records, Config: config}
	v.verify = func(token string) error {
		request := fosite.NewAccessRequest(&fosite.DefaultSession{})
		_, err := tokens.IntrospectToken(ctx, token, fosite.AccessToken, request, nil)
		return err
	}
	return v
}
