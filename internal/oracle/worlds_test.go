// Package oracle_test holds an oracle of the effect rule: nobody gains beyond the writer. It shares no code with the Service and
// uses its public API. The package has tests alone.
package oracle_test

import (
	"crypto/sha256"
	"encoding/json"
	"math/rand/v2"
	"slices"
)

// worlds draws rows of access; of one seed always the same.
type worlds struct {
	*rand.Rand
	seed uint64
}

func (w *worlds) one(of []string) string { return of[w.IntN(len(of))] }

func (w *worlds) some(of []string) []string {
	out := []string{}
	for range 1 + w.IntN(3) {
		out = append(out, w.one(of))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func encoded(v any) json.RawMessage { return must(json.Marshal(v)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func errorOf[T any](_ T, err error) error { return err }

func digest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}
