package merge3_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/merge3"
)

// work returns the bytes allocated while versions of a document, which differ in its first 0, are
// compared and merged.
func work(t testing.TB, doc string) uint64 {
	t.Helper()
	at := strings.IndexByte(doc, '0')
	base := json.RawMessage(doc)
	ours, theirs := json.RawMessage(doc[:at]+"1"+doc[at+1:]), json.RawMessage(doc[:at]+"2"+doc[at+1:])
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	changes, diffed := merge3.Diff(t.Context(), base, ours, theirs)
	_, clash, merged := merge3.Merge(t.Context(), base, ours, theirs)
	runtime.ReadMemStats(&after)
	if len(changes) != 1 || !clash || diffed != nil || merged != nil {
		t.Fatalf("%d changes, clash %v, %v, %v", len(changes), clash, diffed, merged)
	}
	return after.TotalAlloc - before.TotalAlloc
}

// Work grows with the length of the texts, not with its square, and not with their nesting.
func TestWorkIsLinear(t *testing.T) {
	longtest.Test(t, "that no shape takes more than linear work")
	for _, shape := range shapes {
		members := 50_000
		switch shape {
		case "long keys":
			members = 4_000
		case "elements":
			members = 40_000
		}
		const fixed = 1 << 16
		var last uint64
		for n := members / 16; n <= members; n *= 2 {
			doc := build(shape, n)
			w := work(t, doc)
			if perByte := w / uint64(len(doc)+fixed/100); perByte > 250 {
				t.Errorf("%s of %d: %d bytes of work for each of %d", shape, n, perByte, len(doc))
			}
			if last > 0 && w > last*5/2+fixed {
				t.Errorf("%s: %d bytes of work for %d, but %d for half of it", shape, w, n, last)
			}
			last = w
		}
	}
}

// The work for a document of one length does not depend on the depth of most of its content.
func FuzzSizes(f *testing.F) {
	f.Add(uint8(1), uint16(1000))
	f.Add(uint8(64), uint16(60_000))
	f.Fuzz(func(t *testing.T, depth uint8, size uint16) {
		n := max(int(size), 1<<14)
		shape := fmt.Sprint("deep ", max(depth, 1))
		if once, twice := work(t, build(shape, n)), work(t, build(shape, 2*n)); twice > once*5/2+1<<16 {
			t.Errorf("%s: %d bytes of work for %d, %d for twice as much", shape, once, n, twice)
		}
		if flat, deep := work(t, build("deep 1", n)), work(t, build(shape, n)); deep > 2*flat+uint64(depth)<<13 {
			t.Errorf("%d bytes of work for %d, but %d for what is %d deep", flat, n, deep, depth)
		}
	})
}
