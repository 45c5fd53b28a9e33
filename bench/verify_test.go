package bench_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"runtime"
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

// verifier is a way to verify API keys, with valid ones.
type verifier struct {
	name   string
	keys   []string
	verify func(key string) error // one key; safe for concurrent use
}

// BenchmarkVerify compares each way to verify a key with the floor, which hashes its bytes once,
// and with ours, which caches it.
func BenchmarkVerify(b *testing.B) {
	for _, size := range []size{used, stored} {
		b.Run(fmt.Sprint(size.keys), func(b *testing.B) {
			s := siteOf(b, sqliteEngine, size)
			ours := s.verifier(b)
			b.Run("ours", func(b *testing.B) { compareVerifiers(b, floorOf(ours), ours) })
			if size != used {
				return
			}
			for _, p := range peers {
				b.Run(p.name, func(b *testing.B) { compareVerifiers(b, floorOf(ours), ours, p.verifier(b, size.keys)) })
			}
		})
	}
}

// compareVerifiers reports what a key costs with the last of them.
func compareVerifiers(b *testing.B, verifiers ...verifier) {
	b.Helper()
	var sides []measure.Side
	for _, v := range verifiers {
		sides = append(sides, measure.Side{Name: v.name, Call: v.inTurn(0)})
	}
	costs := measure.Alternate(b, sides, measure.Apart(b, sides))
	last := len(costs) - 1
	b.ReportMetric(costs[last], "ns/op")
	b.ReportMetric(costs[last]/costs[0], "x-floor")
	if last > 1 {
		b.ReportMetric(costs[last]/costs[1], "x-ours")
	}
	call := sides[last].Call
	b.ReportMetric(testing.AllocsPerRun(10, func() { _ = call() }), "allocs")
}

// inTurn returns a call that verifies one key after the other, starting at from.
func (v verifier) inTurn(from int) func() error {
	next := from % len(v.keys)
	return func() error {
		key := v.keys[next]
		if next++; next == len(v.keys) {
			next = 0
		}
		return v.verify(key)
	}
}

// verifier returns the Service as a verifier that has cached all keys.
func (s *site) verifier(b *testing.B) verifier {
	b.Helper()
	v := verifier{name: "ours", verify: func(key string) error {
		_, err := s.service.Authenticate(context.Background(), key)
		return err
	}}
	for _, key := range s.issued {
		v.keys = append(v.keys, string(key.Key))
	}
	verify := v.inTurn(0)
	for range 2 * len(v.keys) {
		if err := verify(); err != nil {
			b.Fatal(err)
		}
	}
	return v
}

// floorOf hashes the same keys once each and compares nothing.
func floorOf(v verifier) verifier {
	secret := make([]byte, sha256.Size)
	return verifier{name: "floor", keys: v.keys, verify: func(key string) error {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		mac.Sum(nil)
		return nil
	}}
}

const (
	cores      = 2
	volleySize = 1000 // keys verified in a row
)

// BenchmarkVerifyScales compares verifying keys one after the other with verifying on two cores at
// once. That would be twice as fast if the cores shared nothing. The floor shares only what the
// machine shares. On a busy machine two cores are not always free: the processor time of the keys
// then shows how it would scale.
func BenchmarkVerifyScales(b *testing.B) {
	if runtime.GOMAXPROCS(0) < cores {
		b.Skip("NOT MEASURED: there is one core")
	}
	for _, size := range []size{used, stored} {
		b.Run(fmt.Sprint(size.keys), func(b *testing.B) {
			ours := siteOf(b, sqliteEngine, size).verifier(b)
			sides := []measure.Side{floorOf(ours).volley(1), floorOf(ours).volley(cores), ours.volley(1), ours.volley(cores), ours.volley(1), ours.volley(cores)}
			sides[4].Clock, sides[5].Clock = measure.Processor, measure.Processor
			costs := measure.Alternate(b, sides, measure.Apart(b, sides))
			b.ReportMetric(costs[2]/volleySize, "ns-serial")
			b.ReportMetric(costs[3]/volleySize/cores, "ns-parallel")
			b.ReportMetric(cores*costs[2]/costs[3], "x-scales")
			b.ReportMetric(cores*costs[0]/costs[1], "x-floor-scales")
			b.ReportMetric(cores*cores*costs[4]/costs[5], "x-scales-by-processor")
		})
	}
}

// volley verifies as many keys in each of some goroutines.
func (v verifier) volley(goroutines int) measure.Side {
	var verify []func() error
	for i := range goroutines {
		verify = append(verify, v.inTurn(i*len(v.keys)/goroutines))
	}
	return measure.Side{Name: fmt.Sprint(v.name, " of ", goroutines), Call: func() error {
		return together(goroutines, func(i int) error {
			for range volleySize {
				if err := verify[i](); err != nil {
					return err
				}
			}
			return nil
		})
	}}
}
