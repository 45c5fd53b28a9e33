package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// remembered is the number of keys that a Service caches. They have a hundredth as many holders.
var remembered = flag.Int("remembered", 1<<16, "how many keys are remembered")

// BenchmarkRemembered compares a Service with a full cache of keys with an empty one: bytes in
// memory, and the processor time of one garbage collection.
func BenchmarkRemembered(b *testing.B) {
	ctx := b.Context()
	s := ownSite(b, sqliteEngine, "remembered") // its rows are outside Go's memory
	tokens, err := s.unusedKeys(ctx, *remembered)
	if err != nil {
		b.Fatal(err)
	}
	var m memorized
	for b.Loop() {
		if m, err = s.memorize(ctx, tokens); err != nil {
			b.Fatal(err)
		}
	}
	runtime.KeepAlive(tokens)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(m.keys), "keys")
	b.ReportMetric(m.bytes/float64(m.keys), "B/key")
	b.ReportMetric(float64(m.collection)/float64(m.keys), "ns-collection/key")
	b.ReportMetric(m.collection.Seconds()*1000, "ms-collection")
}

// memorized is the cost of a Service that caches keys, and their number.
type memorized struct {
	keys       int
	bytes      float64
	collection time.Duration
}

// memorize makes a Service cache all keys.
func (s *site) memorize(ctx context.Context, tokens []string) (m memorized, err error) {
	before, _ := measure.Heap()
	without, err := measure.Collection()
	if err != nil {
		return m, err
	}
	store := &gate{Store: s.store}
	remembering := config(store)
	remembering.Keys.Cached = *remembered
	service, err := svc.New(remembering)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	for _, token := range tokens {
		if _, err := service.Authenticate(ctx, token); err != nil {
			return m, err
		}
	}
	after, _ := measure.Heap()
	with, err := measure.Collection()
	m.bytes, m.collection = float64(after)-float64(before), with-without
	store.closed.Store(true) // from now on only cached keys are accepted
	for _, token := range tokens {
		if _, err := service.Authenticate(ctx, token); err == nil {
			m.keys++
		}
	}
	return m, err
}

// unusedKeys adds keys whose use is already recorded: otherwise the uses that wait to be written
// would count.
func (s *site) unusedKeys(ctx context.Context, n int) ([]string, error) {
	keys, err := makeKeys(ctx, n, func(i int) svc.Identity {
		return svc.Identity{Kind: svc.KindUser, ID: userID(1 + i%max(1, n/100))}
	})
	if err != nil {
		return nil, err
	}
	if err := s.insert(ctx, keys); err != nil {
		return nil, err
	}
	if _, err := s.bare.write.ExecContext(ctx, `UPDATE svc_api_keys SET last_used_at = $1`, time.Now().Add(time.Hour).UnixMicro()); err != nil {
		return nil, fmt.Errorf("note a use: %w", err)
	}
	tokens := make([]string, n)
	for i, key := range keys {
		tokens[i] = string(key.Key)
	}
	return tokens, nil
}
