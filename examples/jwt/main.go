// Command jwt is a host whose own sessions are JSON Web Tokens (RFC 7519), beside the API keys of svc: both open the host's own
// route and the interface. It keeps everything in memory, and prints what to try.
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
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

func main() {
	public, private, _ := ed25519.GenerateKey(nil) // in earnest the private one is where people sign in, and only there
	session := must(jwt.NewWithClaims(jwt.SigningMethodEdDSA, newClaims("ada", true, time.Now().Add(time.Hour))).SignedString(private))
	address := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8082")
	fmt.Printf("JWT=%s\nURL=http://%s\n", session, address)
	for _, try := range []string{"$URL/recall/diary", "-X POST $URL/ext/svc/me/api-keys", "$URL/ext/svc/me/api-keys", "$URL/ext/svc/admin/templates"} {
		fmt.Printf("curl -sS -H \"Authorization: Bearer $JWT\" %s\n", try)
	}
	log.Fatal(http.ListenAndServe(address, newHost(public)))
}

// Whose tokens are accepted, and those for whom: one for another service of the same issuer is none here.
const issuer, audience = "https://login.example.com", "https://memory.example.com"

type claims struct {
	Admin bool `json:"admin"`
	jwt.RegisteredClaims
}

func newClaims(user string, admin bool, until time.Time) claims {
	return claims{admin, jwt.RegisteredClaims{Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: user, ExpiresAt: jwt.NewNumericDate(until)}}
}

// sessions accepts what is signed with the other half of key. Which algorithm that is says the host, never the token: with "none", or
// an HMAC of the public key, anybody could make one.
func sessions(key ed25519.PublicKey) svc.AuthenticatorFunc {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithExpirationRequired())
	return func(_ context.Context, bearer string) (svc.Principal, error) {
		var said claims
		if _, err := parser.ParseWithClaims(bearer, &said, func(*jwt.Token) (any, error) { return key, nil }); err != nil || said.Subject == "" {
			return svc.Principal{}, svc.ErrUnauthenticated
		}
		who := svc.Principal{Kind: svc.KindUser, ID: said.Subject}
		if said.Admin { // in this request: a key that is issued with the token has nothing of it
			who.Actions = []string{"iam:*", "template:*"}
		}
		return who, nil
	}
}

// access is what the host's users may do: Service.Apply again whenever that changes.
const access = `{"users": [{"id": "ada"}, {"id": "grace"}],
 "policies": [{"id": "diary", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["diary"]}]}}],
 "attachments": [{"policy_id": "diary", "principal_type": "user", "principal_id": "ada"}]}`

func newHost(key ed25519.PublicKey) http.Handler {
	config := svc.Config{Store: memstore.New(), Authenticator: sessions(key), Logger: slog.Default()} // add peppers, and a store that stays
	service := must(svc.New(config))
	if err := service.Apply(context.Background(), svc.Host, must(svc.ParseBundle([]byte(access)))); err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Options{Limit: limit(5, 20), Logger: slog.Default()})
	mux := http.NewServeMux()
	mux.Handle("GET /recall/{bank}", api.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context()) // Protect has found out who it is; now, may they?
		decision, err := service.Decide(r.Context(), who, "bank:recall", r.PathValue("bank"), svc.Context{})
		switch {
		case err != nil: // never an allow
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !decision.Allowed():
			http.Error(w, "forbidden", http.StatusForbidden)
		default:
			fmt.Fprintf(w, "%s %s recalls\n", who.Kind, who.ID)
		}
	})))
	return api.Ahead(mux)
}

// limit lets each principal make so many requests a second, and a burst at once, whichever of its bearers it uses.
func limit(each rate.Limit, burst int) func(*http.Request, svc.Principal) time.Duration {
	var mu sync.Mutex
	of := map[svc.Identity]*rate.Limiter{}
	return func(_ *http.Request, by svc.Principal) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if len(of) >= 10_000 { // bounded: then all start anew
			clear(of)
		}
		if of[by.Identity()] == nil {
			of[by.Identity()] = rate.NewLimiter(each, burst)
		}
		reservation := of[by.Identity()].Reserve()
		if reservation.Delay() > 0 {
			defer reservation.Cancel() // who is refused has used nothing
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
