package bench_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"runtime"
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

const (
	cores      = 2
	volleySize = 1000 // keys verified in a row
)

// verifying is a world of 10,000 keys whose Service has cached all of them.
func verifying(b *testing.B) *world {
	b.Helper()
	w := newWorld(b, sqliteEngine, size{keys: small.keys})
	verify := w.inTurn(0, w.verify)
	for range 2 * w.keys {
		check(verify())
	}
	return w
}

func (w *world) verify(key string) error {
	return failure(w.service.Authenticate(context.Background(), key))
}

// inTurn returns a call that uses one key after the other, starting at from.
func (w *world) inTurn(from int, use func(key string) error) func() error {
	next := from
	return func() error {
		next = (next + 1) % len(w.issued)
		return use(string(w.issued[next].Key))
	}
}

// hash is the floor: one HMAC-SHA256 of a key's bytes.
func hash(key string) error {
	mac := hmac.New(sha256.New, make([]byte, sha256.Size))
	mac.Write([]byte(key))
	mac.Sum(nil)
	return nil
}

// BenchmarkVerify compares verifying a cached key with hashing its bytes once.
func BenchmarkVerify(b *testing.B) {
	w := verifying(b)
	service := w.inTurn(0, w.verify)
	compare(b, measure.Side{Name: "floor", Call: w.inTurn(0, hash)}, measure.Side{Name: "service", Call: service})
	b.ReportMetric(testing.AllocsPerRun(10, func() { _ = service() }), "allocs")
}

// BenchmarkVerifyScales compares verifying keys one after the other with verifying on two cores at
// once. That would be twice as fast if the cores shared nothing. The floor shares only what the
// machine shares. On a busy machine two cores are not always free: the processor time of the keys
// then shows how it would scale.
func BenchmarkVerifyScales(b *testing.B) {
	if runtime.GOMAXPROCS(0) < cores {
		b.Skip("NOT MEASURED: there is one core")
	}
	w := verifying(b)
	sides := []measure.Side{
		w.volley(1, hash), w.volley(cores, hash), w.volley(1, w.verify), w.volley(cores, w.verify), w.volley(1, w.verify), w.volley(cores, w.verify),
	}
	sides[4].Clock, sides[5].Clock = measure.Processor, measure.Processor
	costs := measure.Alternate(b, sides, measure.Apart(b, sides))
	b.ReportMetric(cores*costs[2]/costs[3], "x-scales")
	b.ReportMetric(cores*costs[0]/costs[1], "x-floor-scales")
	b.ReportMetric(cores*cores*costs[4]/costs[5], "x-scales-by-processor")
}

// volley uses as many keys in each of some goroutines.
func (w *world) volley(goroutines int, use func(key string) error) measure.Side {
	var calls []func() error
	for i := range goroutines {
		calls = append(calls, w.inTurn(i*len(w.issued)/goroutines, use))
	}
	return measure.Side{Call: func() error {
		return together(goroutines, func(i int) error {
			for range volleySize {
				if err := calls[i](); err != nil {
					return err
				}
			}
			return nil
		})
	}}
}
