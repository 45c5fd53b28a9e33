package tokens_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/store/memstore"
)

const (
	stored        = 10_000 // tokens, all in use
	tokensPerUser = 10
)

// verifier is a way to verify tokens, with valid ones.
type verifier struct {
	tokens []string
	verify func(token string) error
}

// BenchmarkVerify compares fosite with the floor, which hashes a token once, and with ours.
func BenchmarkVerify(b *testing.B) {
	b.Run("fosite", func(b *testing.B) {
		ours, peer := newOurs(b), newFosite(b)
		sides := []measure.Side{floorOf(ours).side("floor"), ours.side("ours"), peer.side("fosite")}
		costs := measure.Alternate(b, sides, measure.Apart(b, sides))
		b.ReportMetric(costs[2], "ns/op")
		b.ReportMetric(costs[2]/costs[0], "x-floor")
		b.ReportMetric(costs[2]/costs[1], "x-ours")
	})
}

// TestVerifiers checks that each accepts its tokens and refuses others.
func TestVerifiers(t *testing.T) {
	for name, v := range map[string]verifier{"ours": newOurs(t), "fosite": newFosite(t)} {
		for i, token := range v.tokens[:3] {
			other := []byte(token)
			other[12] ^= 1
			if err := v.verify(token); err != nil {
				t.Errorf("%s refuses token %d: %v", name, i, err)
			}
			if err := v.verify(string(other)); err == nil {
				t.Errorf("%s accepts a token like %d", name, i)
			}
		}
	}
}

// side verifies one token after the other.
func (v verifier) side(name string) measure.Side {
	next := 0
	return measure.Side{Name: name, Call: func() error {
		next = (next + 1) % len(v.tokens)
		return v.verify(v.tokens[next])
	}}
}

// newOurs returns a Service that has cached all of its keys.
func newOurs(tb testing.TB) verifier {
	tb.Helper()
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Logger: slog.New(slog.DiscardHandler),
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("a pepper for benchmarks")}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := service.Close(); err != nil {
			tb.Error(err)
		}
	})
	v := verifier{verify: func(token string) error {
		_, err := service.Authenticate(context.Background(), token)
		return err
	}}
	for i := range stored {
		holder := svc.Identity{Kind: svc.KindUser, ID: userOf(i)}
		key, err := service.Keys.Issue(tb.Context(), svc.Host, holder, svc.NewAPIKey{})
		if err != nil {
			tb.Fatal(err)
		}
		v.tokens = append(v.tokens, string(key.Key))
	}
	for _, token := range append(v.tokens, v.tokens...) {
		if err := v.verify(token); err != nil {
			tb.Fatal(err)
		}
	}
	return v
}

// floorOf hashes the same tokens and compares nothing.
func floorOf(v verifier) verifier {
	secret := make([]byte, sha256.Size)
	v.verify = func(token string) error {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(token))
		mac.Sum(nil)
		return nil
	}
	return v
}

func userOf(i int) string { return fmt.Sprint("user-", i/tokensPerUser) }
