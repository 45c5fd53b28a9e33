package bench_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
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

// BenchmarkListMemory measures the peak of reachable memory during a list of all templates over
// HTTP, beyond what was reachable before. It looks each time that a piece is sent. The driver's
// memory outside Go's heap does not count.
func BenchmarkListMemory(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		for _, size := range []size{small, large} {
			b.Run(size.name, func(b *testing.B) {
				w := newWorld(b, e, size)
				most, pieces, every := uint64(0), 0, max(1, w.templates/1000) // a look costs a collection
				for b.Loop() {
					before, _ := measure.Heap()
					check(listOverHTTP(b.Context(), w, "", &discard{between: func() {
						if pieces++; pieces%every == 0 {
							now, _ := measure.Heap()
							most = max(most, now-min(now, before))
						}
					}}))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(most)/1024, "KiB-peak")
			})
		}
	})
}

// cachedKeys is the number of keys that a Service caches. They have a hundredth as many holders.
var cachedKeys = flag.Int("cached", 1<<16, "how many keys BenchmarkCachedKeys caches")

// BenchmarkCachedKeys compares a Service that has cached keys with the process before: bytes in
// memory, and the processor time of one garbage collection.
func BenchmarkCachedKeys(b *testing.B) {
	w := newWorld(b, sqliteEngine, size{keys: *cachedKeys, perUser: 100}) // its rows are outside Go's memory
	var bytes float64
	var collection time.Duration
	for b.Loop() {
		before, _ := measure.Heap()
		without := get(measure.Collection())
		caching := config(w.store)
		caching.Memory.Keys = *cachedKeys
		service := get(svc.New(caching))
		for _, key := range w.issued {
			get(service.Authenticate(b.Context(), string(key.Key)))
		}
		after, _ := measure.Heap()
		bytes, collection = float64(after)-float64(before), get(measure.Collection())-without
		check(service.Close())
	}
	runtime.KeepAlive(w)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bytes/float64(*cachedKeys), "B/key")
	b.ReportMetric(collection.Seconds()*1000, "ms-collection")
}

// deciders is how many users have a policy in BenchmarkParameters.
const deciders = 1000

// BenchmarkParameters compares a decision of a host with parameters of its own, whose one policy names
// the user by a variable, with one that has the parameters of memory and a policy for each user.
func BenchmarkParameters(b *testing.B) {
	ten := deciding(b, nil, func(id string) svc.Document {
		return allowing(id+"::*", map[string]any{"recall_budget": "mid", "recall_max_tokens": 100, "llm_model": "m"})
	})
	own := deciding(b, []parameter.Definition{
		{Name: "review", Type: parameter.Level, Levels: []string{"none", "peer", "owner"}, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "row_limit", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "model", Type: parameter.Text, Merge: parameter.Closest, Narrow: parameter.Replace},
	}, func(string) svc.Document {
		return allowing("${user}::*", map[string]any{"review": "peer", "row_limit": 100, "model": "m"})
	})
	compare(b, measure.Side{Name: "ten", Call: ten}, measure.Side{Name: "own", Call: own})
}

func allowing(bank string, set map[string]any) svc.Document {
	return svc.Document{Statements: []svc.Statement{
		{Effect: svc.EffectAllow, Actions: []string{"bank:recall"}, Banks: []string{bank}, Set: set},
	}}
}

// deciding returns a call that decides about the next user's own bank.
func deciding(b *testing.B, parameters []parameter.Definition, document func(id string) svc.Document) func() error {
	service := get(svc.New(svc.Config{Store: memstore.New(), Parameters: parameters}))
	b.Cleanup(func() { _ = service.Close() })
	var bundle svc.Bundle
	policies := map[string]json.RawMessage{}
	for i := range deciders {
		id := userID(i)
		document := document(id).JSON()
		policy := "of-" + id
		if i > 0 && string(document) == string(policies["of-"+userID(0)]) {
			policy = "of-" + userID(0)
		} else {
			policies[policy] = document
			bundle.Policies = append(bundle.Policies, svc.Policy{ID: policy, Document: document})
		}
		bundle.Users = append(bundle.Users, svc.User{ID: id})
		bundle.Attachments = append(bundle.Attachments, svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}})
	}
	check(service.Access.Apply(b.Context(), svc.Host, bundle))
	next := 0
	return func() error {
		id := userID(next % deciders)
		next++
		d, err := service.Decide(b.Context(), svc.Principal{Kind: svc.KindUser, ID: id}, "bank:recall", id+"::notes", svc.Context{})
		if err == nil && !d.Allowed() {
			err = fmt.Errorf("%s may not recall its own bank", id)
		}
		return err
	}
}
