package merge3_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/merge3"
	"github.com/extsvc/svc/internal/strictjson"
)

// The slow, obvious way: each level reads all below it, and values are compared by their canonical forms.

func same(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	canonicalA, _ := jcs.Canonical(a)
	canonicalB, _ := jcs.Canonical(b)
	return bytes.Equal(canonicalA, canonicalB)
}

func objects(three [3]json.RawMessage) (of [3]map[string]json.RawMessage, keys []string, all bool) {
	union := map[string]bool{}
	for i, value := range three {
		if len(value) == 0 || value[0] != '{' || json.Unmarshal(value, &of[i]) != nil {
			return of, nil, false
		}
		for key := range of[i] {
			union[key] = true
		}
	}
	return of, slices.Sorted(maps.Keys(union)), true
}

func keysOf(object json.RawMessage) (keys []string) {
	d := json.NewDecoder(bytes.NewReader(object))
	_, _ = d.Token()
	for d.More() {
		key, _ := d.Token()
		keys = append(keys, key.(string))
		var value json.RawMessage
		_ = d.Decode(&value)
	}
	return keys
}

func slowMerge(base, ours, theirs json.RawMessage) (json.RawMessage, bool) {
	if same(base, theirs) {
		return ours, false
	}
	alike := same(base, ours) || same(ours, theirs)
	of, _, all := objects([3]json.RawMessage{base, ours, theirs})
	if alike && !all {
		of, _, all = objects([3]json.RawMessage{json.RawMessage("{}"), ours, theirs})
		if !all {
			return theirs, false
		}
	} else if !all {
		return nil, true
	}
	keys := keysOf(ours)
	for _, key := range keysOf(theirs) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	b := []byte("{")
	for _, key := range keys {
		value, clash := slowMerge(of[0][key], of[1][key], of[2][key])
		if clash {
			return nil, true
		}
		if value == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jcs.AppendString(b, key), ':'), value...)
	}
	return append(b, '}'), false
}

func slowDiff(base, ours, theirs json.RawMessage) []merge3.Change {
	for depth := merge3.MaxDepth; ; depth-- {
		if changes := slowCompare(nil, "", [3]json.RawMessage{base, ours, theirs}, depth); len(changes) <= merge3.MaxChanges {
			return changes
		}
	}
}

func slowCompare(changes []merge3.Change, path string, three [3]json.RawMessage, depth int) []merge3.Change {
	if same(three[0], three[1]) && same(three[1], three[2]) {
		return changes
	}
	of, keys, all := objects(three)
	if !all || depth == 0 || len(path) > merge3.MaxPrefix {
		return append(changes, merge3.Change{Path: path, Base: three[0], Ours: three[1], Theirs: three[2]})
	}
	for _, key := range keys {
		changes = slowCompare(changes, path+"/"+strictjson.Token(key), [3]json.RawMessage{of[0][key], of[1][key], of[2][key]}, depth-1)
	}
	return changes
}

// some returns a JSON text of few kinds, so that three of them have much in common.
func some(random *rand.Rand, depth, width int) string {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch random.IntN(kinds) {
	case 0:
		return pick(random, `null`, `true`, `""`, `{}`, `[]`)
	case 1, 2, 3:
		return pick(random, `0`, `-0.0`, `9`, `9.0`, `10e-1`, `1`, `1e400`, `10e399`)
	case 4, 5:
		return pick(random, `"a"`, `"\u0061"`, `"/~"`, `"{\"a\":1}"`, `"😀"`, `"\ud83d\ude00"`)
	case 6:
		b := []byte("[")
		for i := range random.IntN(3) {
			b = append(append(b, ","[:min(i, 1)]...), some(random, depth-1, width)...)
		}
		return string(append(b, ']'))
	}
	return someObject(random, depth, width)
}

func someObject(random *rand.Rand, depth, width int) string {
	keys := []string{`a`, `\u0062`, `~/`, `\"`, `ü`, ``}
	for i := range width {
		keys = append(keys, fmt.Sprint("k", i))
	}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	b, between := []byte("{"), ""
	for _, key := range keys {
		if random.IntN(4) > 0 {
			b = fmt.Appendf(b, `%s"%s":%s`, between, key, some(random, max(depth-1, 0), width))
			between = ","
		}
	}
	return string(append(b, '}'))
}

func pick(random *rand.Rand, list ...string) string { return list[random.IntN(len(list))] }

// The results equal those of the slow way, byte by byte.
func TestAgreesWithTheSlowWay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	merges, many := 0, 0
	for i := range 3000 {
		depth, width := 4, 0
		if i%100 == 0 {
			depth, width = 2, 60
		}
		three := [3]json.RawMessage{}
		for v := range three {
			if three[v] = json.RawMessage(someObject(random, depth, width)); v > 0 && random.IntN(8) == 0 {
				three[v] = three[v-1]
			} else if random.IntN(20) == 0 {
				three[v] = nil
			}
		}
		want, conflict := slowMerge(three[0], three[1], three[2])
		merged, clash, err := merge3.Merge(t.Context(), three[0], three[1], three[2])
		if err != nil || clash != conflict || string(merged) != string(want) || (merged == nil) != (want == nil) {
			t.Fatalf("%s: %s, %v, %v; want %s, %v", three, merged, clash, err, want, conflict)
		}
		changes, err := merge3.Diff(t.Context(), three[0], three[1], three[2])
		if slow := slowDiff(three[0], three[1], three[2]); err != nil || fmt.Sprintf("%+s", changes) != fmt.Sprintf("%+s", slow) {
			t.Fatalf("%s:\n%s, %v; want\n%s", three, changes, err, slow)
		}
		if !clash {
			merges++
		}
		if len(changes) > 50 {
			many++
		}
	}
	if merges < 150 || many < 10 {
		t.Errorf("%d merges, %d diffs of many places", merges, many)
	}
}
