package merge3_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/merge3"
	"github.com/extsvc/svc/internal/strictjson"
)

func text(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

func TestMerge(t *testing.T) {
	for _, c := range []struct{ rule, base, ours, theirs, want string }{
		{"nobody changed it", `1`, `1.0`, `1`, `1.0`},
		{"ours changed", `1`, `2`, `1`, `2`},
		{"theirs changed", `1`, `1`, `2`, `2`},
		{"both alike: as theirs writes it", `1`, `2`, `2.0`, `2.0`},
		{"both, and not alike", `1`, `2`, `3`, ``},
		{"key by key", `{"v":1}`, `{"v":1,"b":1.0}`, `{"v":1,"a":1e400}`, `{"v":1,"b":1.0,"a":1e400}`},
		{"ours in its order, then theirs in its order", `{"v":1,"z":1}`, `{"z":2,"v":1,"y":1}`, `{"m":1,"z":1,"c":1,"v":1,"b":1}`, `{"z":2,"v":1,"y":1,"m":1,"c":1,"b":1}`},
		{"the order of ours, nested, where both changed", `{"o":{"x":1,"y":1}}`, `{"o":{"y":1,"x":2}}`, `{"o":{"k":1,"x":1,"y":3}}`, `{"o":{"y":3,"x":2,"k":1}}`},
		{"the order of ours, nested, where theirs changed", `{"v":1,"o":{"y":1,"x":{"d":1,"c":1}}}`, `{"v":2,"o":{"y":1,"x":{"d":1,"c":1}}}`, `{"v":1,"o":{"k":1,"x":{"c":2.0,"d":1},"y":1}}`, `{"v":2,"o":{"y":1,"x":{"d":1,"c":2.0},"k":1}}`},
		{"the order of ours, where both added alike", `{}`, `{"o":{"y":1,"x":1}}`, `{"o":{"x":1.0,"y":1},"p":1}`, `{"o":{"y":1,"x":1.0},"p":1}`},
		{"an object in place of another value", `{"o":1,"v":1}`, `{"o":1,"v":2}`, `{"o":{"b":1,"a":1},"v":1}`, `{"o":{"b":1,"a":1},"v":2}`},
		{"lists keep the order in them", `{"l":[{"b":1,"a":1}],"v":1}`, `{"l":[{"b":1,"a":1}],"v":2}`, `{"l":[{"a":1,"b":1},0],"v":1}`, `{"l":[{"a":1,"b":1},0],"v":2}`},
		{"removed there, the rest stays in order", `{"c":1,"b":1,"a":1}`, `{"c":1,"b":1,"a":2}`, `{"a":1,"c":1}`, `{"c":1,"a":2}`},
		{"within objects", `{"o":{"x":1,"y":1}}`, `{"o":{"x":2,"y":1}}`, `{"o":{"x":1,"y":2}}`, `{"o":{"x":2,"y":2}}`},
		{"both removed some", `{"a":1,"b":1}`, `{"b":1}`, `{"a":1}`, `{}`},
		{"removed and changed", `{"a":1}`, `{}`, `{"a":2}`, ``},
		{"lists are whole", `[1]`, `[1,2]`, `[0,1]`, ``},
		{"a list is no object", `{}`, `[]`, `{"a":1}`, ``},
		{"an object that both added", `{}`, `{"o":{"a":1}}`, `{"o":{"b":1}}`, ``},
		{"keys as they are spelled", `{"\u0061":1}`, `{"a":1,"b":"\u0022"}`, `{"a":1.0,"\n":1}`, `{"a":1,"b":"\u0022","\n":1}`},
		{"white space", ` { "a" : [ 1 ] } `, `{"a":[1]}`, `{"a":[1],"b":2}`, `{"a":[1],"b":2}`},
		{"no value", ``, ``, `1`, `1`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			is := is.New(t)
			merged, clash, err := merge3.Merge(t.Context(), text(c.base), text(c.ours), text(c.theirs))
			is.NoErr(err)
			is.Equal(string(merged), c.want)
			is.Equal(clash, c.want == "")
		})
	}
	is := is.New(t)
	merged, clash, err := merge3.Merge(t.Context(), text(`1`), nil, text(`1`))
	is.NoErr(err)
	is.Equal(clash, false)
	is.Equal(merged, nil) // ours removed it
}

func TestDiff(t *testing.T) {
	is := is.New(t)
	changes, err := merge3.Diff(t.Context(), text(`{"a":1,"b":{"c":[1],"d/~":1},"e":1}`), text(`{"a":1.0,"b":{"c":[1,2],"d/~":1}}`),
		text(`{"a":1,"b":{"c":[1],"d/~":2},"e":1,"f":null}`))
	is.NoErr(err)
	is.Equal(changes, []merge3.Change{
		{"/b/c", text(`[1]`), text(`[1,2]`), text(`[1]`)},
		{"/b/d~1~0", text(`1`), text(`1`), text(`2`)},
		{"/e", text(`1`), nil, text(`1`)},
		{"/f", nil, nil, text(`null`)},
	})
	changes, err = merge3.Diff(t.Context(), text(`{"a":1}`), text(`[]`), nil)
	is.NoErr(err)
	is.Equal(changes, []merge3.Change{{"", text(`{"a":1}`), text(`[]`), nil}})
	for _, same := range [][3]string{{`{"a":1e2}`, `{"\u0061":100}`, `{"a":100.0}`}, {`[0]`, `[0.0]`, `[0e1]`}} {
		changes, err = merge3.Diff(t.Context(), text(same[0]), text(same[1]), text(same[2]))
		is.NoErr(err)
		is.Equal(changes, nil)
	}
}

func TestDiffIsBounded(t *testing.T) {
	deep := func(depth int, v string) string {
		return strings.Repeat(`{"a":`, depth) + v + strings.Repeat("}", depth)
	}
	wide := func(n int, v string) string { return strings.ReplaceAll(build("wide", n), "0", v) }
	long := strings.Repeat("k", merge3.MaxPrefix)
	for _, c := range []struct {
		rule, one, other string
		changes          int
		path             string // of the first
	}{
		{"as many as may be", wide(1000, "1"), wide(1000, "2"), 1000, "/a"},
		{"one more", wide(1001, "1"), wide(1001, "2"), 1, ""},
		{"many below few", `{"x":` + wide(600, "1") + `,"y":` + wide(600, "1") + `}`, `{"x":` + wide(600, "2") + `,"y":` + wide(600, "2") + `}`, 2, "/x"},
		{"as deep as may be", deep(16, "1"), deep(16, "2"), 1, strings.Repeat("/a", 16)},
		{"deeper", deep(17, "1"), deep(17, "2"), 1, strings.Repeat("/a", 16)},
		{"long path", `{"` + long + `":{"a":1}}`, `{"` + long + `":{"a":2}}`, 1, "/" + long},
		{"as long as may be", `{"` + long[1:] + `":{"a":1}}`, `{"` + long[1:] + `":{"a":2}}`, 1, "/" + long[1:] + "/a"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			is := is.New(t)
			changes, err := merge3.Diff(t.Context(), text(c.one), text(c.one), text(c.other))
			is.NoErr(err)
			is.Equal(len(changes), c.changes)
			is.True(strings.HasPrefix(changes[0].Path, c.path))
			is.True(c.rule != "long path" || changes[0].Path == c.path)
		})
	}
}

func TestRefuses(t *testing.T) {
	for _, bad := range []string{`{`, `{"a":1,"\u0061":2}`, strings.Repeat("[", 1001) + strings.Repeat("]", 1001)} {
		_, clash, merge := merge3.Merge(t.Context(), text(`1`), text(`1`), text(bad))
		_, diff := merge3.Diff(t.Context(), text(`1`), text(bad), text(`1`))
		for _, err := range []error{merge, diff} {
			if _, is := errors.AsType[*strictjson.Error](err); !is || clash {
				t.Errorf("%.20s: %v", bad, err)
			}
		}
	}
}

// When ctx has ended, the reader stops, wherever it is in the text.
func TestEndsWithItsContext(t *testing.T) {
	for _, shape := range shapes {
		doc := text(build(shape, 20_000))
		whole, _, err := merge3.Merge(t.Context(), doc, doc, doc)
		ctx, end := context.WithCancel(t.Context())
		end()
		_, _, merge := merge3.Merge(ctx, doc, doc, doc)
		_, diff := merge3.Diff(ctx, doc, doc, doc)
		if values := strings.Count(string(doc), ",") + 1; err != nil || string(whole) != string(doc) || values > 5000 && (!errors.Is(merge, context.Canceled) || !errors.Is(diff, context.Canceled)) {
			t.Errorf("%s: %v, %v", shape, merge, diff)
		}
	}
}

// build returns a document of about n bytes, or n members.
func build(shape string, n int) string {
	var b strings.Builder
	list := func(open, end string, item func(i int) string) string {
		b.Reset()
		b.WriteString(open)
		for i := 0; i < n; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String() + end
	}
	letters := func(i int) string { // without digits
		return strings.Map(func(r rune) rune { return 'a' + r - '0' }, fmt.Sprint(i))
	}
	switch shape {
	case "wide":
		return list("{", "}", func(i int) string { return `"` + letters(i) + `":0` })
	case "equal elements":
		return list("[", "]", func(int) string { return "0" })
	case "elements":
		return list("[", "]", func(i int) string { return fmt.Sprintf(`{"k":%d.50}`, i) })
	case "spines": // objects in objects, and a list at the end of each
		return nested(64, n/64, func(width int) string { return "[0" + strings.Repeat(",0", width) + "]" })
	case "lists":
		return strings.Repeat("[", 900) + "0" + strings.Repeat(strings.Repeat(",0", n/900)+"]", 900)
	case "long keys":
		return list("{", "}", func(i int) string { return `"` + strings.Repeat("k", 200) + letters(i) + `":0` })
	case "one long key":
		return `{"` + strings.Repeat(`\n`, n) + `":{"a":0}}`
	}
	return nested(deepness(shape), n, func(width int) string { return `{"z":"` + strings.Repeat("z", width) + `","v":0}` })
}

func deepness(shape string) (depth int) {
	if _, err := fmt.Sscanf(shape, "deep %d", &depth); err != nil {
		panic(shape)
	}
	return depth
}

// nested returns depth objects in each other with unsorted keys; leaf stands in the innermost one.
func nested(depth, n int, leaf func(int) string) string {
	return strings.Repeat(`{"b":`, depth) + leaf(n) + strings.Repeat(`,"a":0}`, depth)
}

var shapes = []string{"wide", "equal elements", "elements", "spines", "lists", "long keys", "one long key", "deep 1", "deep 8", "deep 32", "deep 64"}

// work returns the bytes allocated while versions of a document, which differ in its first 0, are compared and merged.
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
			perByte := w / uint64(len(doc)+fixed/100)
			expect.Holds(t, perByte <= 250, shape, ": work for each byte: ", n, perByte)
			expect.Holds(t, last == 0 || w <= last*5/2+fixed, shape, ": work, and for half of it: ", n, w, last)
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
