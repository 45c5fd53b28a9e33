// Command jwt is a host whose sessions are JSON Web Tokens (RFC 7519). A session token and an API
// key of svc open the same routes: the host's own and the interface. The program keeps everything
// in memory and prints requests to try.
//
//	go run ./examples/jwt
package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	// In production only the sign-in service has the private key.
	public, private, _ := ed25519.GenerateKey(nil)
	ada := newClaims("ada", true, time.Now().Add(time.Hour))
	session := must(jwt.NewWithClaims(jwt.SigningMethodEdDSA, ada).SignedString(private))
	address := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8082")
	fmt.Printf("JWT=%s\nURL=http://%s\n", session, address)
	for _, try := range []string{
		"$URL/recall/diary",
		"-X POST $URL/ext/svc/me/api-keys",
		"$URL/ext/svc/me/api-keys",
		"$URL/ext/svc/admin/templates",
	} {
		fmt.Printf("curl -sS -H \"Authorization: Bearer $JWT\" %s\n", try)
	}
	log.Fatal(httpapi.Server(address, newHost(public)).ListenAndServe())
}

// sessions accepts only tokens from this issuer, for this audience. It refuses a token that the
// same issuer made for another service.
const issuer, audience = "https://login.example.com", "https://memory.example.com"

type claims struct {
	Admin bool `json:"admin"`
	jwt.RegisteredClaims
}

func newClaims(user string, admin bool, until time.Time) claims {
	return claims{admin, jwt.RegisteredClaims{
		Issuer:    issuer,
		Audience:  jwt.ClaimStrings{audience},
		Subject:   user,
		ExpiresAt: jwt.NewNumericDate(until),
	}}
}

// sessions accepts tokens signed with the private half of key. The host fixes the algorithm; the
// token does not choose it. Otherwise anybody could make a token with "none" or with an HMAC of the
// public key.
func sessions(key ed25519.PublicKey) svc.AuthenticatorFunc {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithExpirationRequired())
	return func(_ context.Context, bearer string) (svc.Principal, error) {
		var said claims
		keyOf := func(*jwt.Token) (any, error) { return key, nil }
		_, err := parser.ParseWithClaims(bearer, &said, keyOf)
		if err != nil || said.Subject == "" {
			return svc.Principal{}, svc.ErrUnauthenticated
		}
		who := svc.Principal{Kind: svc.KindUser, ID: said.Subject}
		if said.Admin { // for this request only: a key issued with this token has no such actions
			who.Actions = []string{"iam:*", "template:*"}
		}
		return who, nil
	}
}

// access lists what the host's users may do. Call Access.Apply again after each change.
const access = `{"users": [{"id": "ada"}, {"id": "grace"}],
 "policies": [{"id": "diary", "document": {"version": "2026-03-24", "statements": [
   {"effect": "allow", "actions": ["bank:recall"], "banks": ["diary"]}]}}],
 "attachments": [{"policy_id": "diary", "principal_type": "user", "principal_id": "ada"}]}`

func newHost(key ed25519.PublicKey) http.Handler {
	// In production add peppers, and use a store with a database.
	config := svc.Config{
		Store:         memstore.New(),
		Authenticator: sessions(key),
		Logger:        slog.Default(),
	}
	service := must(svc.New(config))
	bundle := must(svc.ParseBundle([]byte(access)))
	if err := service.Access.Apply(context.Background(), svc.Host, bundle); err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Options{Limit: limit(5, 20), Logger: slog.Default()})
	mux := http.NewServeMux()
	recall := func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		fmt.Fprintf(w, "%s %s recalls\n", who.Kind, who.ID)
	}
	may := api.Require("bank:recall", func(r *http.Request) string { return r.PathValue("bank") })
	mux.Handle("GET /recall/{bank}", may(http.HandlerFunc(recall)))
	return api.Mount(mux)
}

// limit allows each principal `each` requests a second and a burst of `burst`. All bearers of a
// principal share its limit.
func limit(each rate.Limit, burst int) func(*http.Request, svc.Principal) time.Duration {
	var mu sync.Mutex
	of := map[svc.Identity]*rate.Limiter{}
	return func(_ *http.Request, by svc.Principal) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if len(of) >= 10_000 { // bounds the memory: all limits restart
			clear(of)
		}
		if of[by.Identity()] == nil {
			of[by.Identity()] = rate.NewLimiter(each, burst)
		}
		reservation := of[by.Identity()].Reserve()
		if reservation.Delay() > 0 {
			defer reservation.Cancel() // a refused request uses nothing of the limit
		}
		return reservation.Delay()
	}
}

func must[T any](made T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return made
}
