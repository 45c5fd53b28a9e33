package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/strictjson"
)

// refusals are lines of a file: TEXT => POINTER DETAIL.
func refusals(t *testing.T, file string) (all [][3]string) {
	t.Helper()
	lines, err := os.ReadFile(file)
	is.New(t).NoErr(err)
	plain := func(text string) string {
		if quoted, err := strconv.Unquote(text); err == nil && text[0] == '"' {
			return quoted
		}
		return text
	}
	for line := range strings.Lines(string(lines)) {
		in, why, found := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !found {
			continue
		}
		pointer, detail, _ := strings.Cut(why, " ")
		if pointer == "-" {
			pointer = ""
		}
		all = append(all, [3]string{plain(in), plain(pointer), detail})
	}
	return all
}

const (
	dup  = "is a duplicate key"
	half = "must not have half a surrogate pair"
	utf  = "must be valid UTF-8"
	deep = "must not be nested deeper than 4 levels"
)

func TestCompactRefuses(t *testing.T) {
	many := string(manyKeys(1000))
	for _, c := range append(refusals(t, "testdata/compact.txt"), [][3]string{
		{many[:len(many)-1] + `,"k7":0}`, "/k7", dup},
		{many[:len(many)-1] + `,"k999":0}`, "/k999", dup},
		{strings.Repeat("[", 10_000), "/0/0/0/0", deep},
		{strings.Repeat("[", 1_000_000), "/0/0/0/0", deep},
		{strings.Repeat(`{"":`, 1_000_000), "////", deep},
	}...) {
		out, err := strictjson.Compact([]byte(c[0]), 4)
		expect.Holds(t, out == nil, c[0])
		refused(t, c[0], err, c[1], c[2])
	}
}

func refused(t *testing.T, in string, err error, pointer, detail string) {
	t.Helper()
	var e *strictjson.Error
	if !errors.As(err, &e) {
		t.Errorf("%.80q: got %v, want %q at %q", in, err, detail, pointer)
	} else if e.Pointer != pointer || e.Detail != detail {
		t.Errorf("%.80q: got %q at %q, want %q at %q", in, e.Detail, e.Pointer, detail, pointer)
	}
}

func TestCompact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{" null\r\n", "null"},
		{"\t-0.50E+07 ", "-0.50E+07"},
		{` "a b\u0041\/" `, `"a b\u0041\/"`},
		{" [ ] ", "[]"},
		{"{ }", "{}"},
		{"[ 1 , 2 ,[ ] ]", "[1,2,[]]"},
		{"[ true , false ,[ ] ]", "[true,false,[]]"},
		{`{ "b" : 1 , "a" : { "b" : null } }`, `{"b":1,"a":{"b":null}}`},
		{`{"a":{"b":1},"b":2}`, `{"a":{"b":1},"b":2}`},
		{`[{"a":1},{"a":1}]`, `[{"a":1},{"a":1}]`},
		{`{"A":1,"a":2}`, `{"A":1,"a":2}`},
		{`["\ud83d\ude00\uDBFF\uDFFF😀` + "\u2028\x7f" + `"]`, `["\ud83d\ude00\uDBFF\uDFFF😀` + "\u2028\x7f" + `"]`},
		{`[1e400,-0,123456789012345678901234567890]`, `[1e400,-0,123456789012345678901234567890]`},
		{`[[[[]]]]`, `[[[[]]]]`},
		{`[[],[],[],[],[],{},{},{},{},{}]`, `[[],[],[],[],[],{},{},{},{},{}]`},
		{string(manyKeys(1000)), string(manyKeys(1000))},
	} {
		in := []byte(c.in)
		out, err := strictjson.Compact(in, 4)
		clear(in)
		expect.Holds(t, err == nil && string(out) == c.want, c.in, out, err)
	}
}

// A limit beyond that of encoding/json would accept documents that nothing can decode.
func TestCompactDepth(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	_, err := strictjson.Compact(nest(10_000), math.MaxInt)
	is := is.New(t)
	is.True(err == nil && json.Valid(nest(10_000)))
	_, err = strictjson.Compact(nest(10_001), math.MaxInt)
	is.True(strings.HasSuffix(fmt.Sprint(err), "/0: must not be nested deeper than 10000 levels"))
	_, err = strictjson.Compact(nest(1), -1)
	is.Equal(fmt.Sprint(err), "document: must not be nested deeper than 0 levels")
	_, err = strictjson.Compact([]byte("1"), 0)
	is.NoErr(err)
}

func FuzzCompact(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0.5e+3,true,null,"\ud83d\ude00é"],"b":{}}`, `{"a":1,"\u0061":2}`, `["\ud800","\udc00\ud800"]`,
		"[\"\xff\"]", ` [ [[[[[[1]]]]]] ] `, `{"a":{"b":1,"b":2}}`, `1 2`, `[1,]`, "\ufeff1", "\"\x01\"", `-`, `1e5`, `"\u00zz"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		out, err := strictjson.Compact(data, 4)
		expect.Holds(t, bytes.Equal(before, data), "input changed")
		if !json.Valid(data) {
			expect.Holds(t, err != nil, "accepted what is not JSON")
			return
		}
		why := reasons(data, 4)
		if err == nil {
			var want bytes.Buffer
			_ = json.Compact(&want, data)
			expect.Holds(t, len(why) == 0 && bytes.Equal(out, want.Bytes()), out, why)
			return
		}
		if e := new(strictjson.Error); !errors.As(err, &e) || !why[e.Detail] {
			t.Fatalf("refused: %v; there is only %v", err, why)
		}
	})
}

// The number of stored keys is bounded at any depth; keys of closed objects do not count.
func TestTooManyKeys(t *testing.T) {
	const most = 1 << 18
	most1, half := string(manyKeys(most-1)), string(manyKeys(most/2))
	for doc, pointer := range map[string]string{
		string(manyKeys(most)):                              "ok",
		string(manyKeys(most + 1)):                          "",
		`{"a":` + most1 + `}`:                               "ok",
		`{"a":` + string(manyKeys(most)) + `}`:              "/a",
		`[` + half + `,` + half + `,` + half + `]`:          "ok",
		`[` + half[:len(half)-1] + `,"in":[` + half + `]}]`: "/0/in/0",
	} {
		_, err := strictjson.Compact([]byte(doc), 64)
		bad, is := errors.AsType[*strictjson.Error](err)
		if pointer == "ok" && err != nil || pointer != "ok" && (!is || bad.Pointer != pointer || !strings.Contains(bad.Detail, "262144 keys")) {
			t.Errorf("%.20s… of %d bytes: %v, want %q", doc, len(doc), err, pointer)
		}
	}
}

func manyKeys(n int) []byte {
	b := []byte("{")
	for i := range n {
		b = fmt.Appendf(b, `"k%d":%d,`, i, i)
	}
	b[len(b)-1] = '}'
	return b
}

// reasons finds everything wrong with data by slow and obvious means. encoding/json must accept
// data.
func reasons(data []byte, maxDepth int) map[string]bool {
	found := map[string]bool{}
	if !utf8.Valid(data) {
		found[utf] = true
	}
	if halves(string(data)) {
		found[half] = true
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	walk(d, maxDepth, found)
	return found
}

var escapes = regexp.MustCompile(`(?s)\\(u....|.)`)

func halves(s string) bool {
	open := -1 // where a high half ended
	for _, at := range escapes.FindAllStringIndex(s, -1) {
		e := strings.ToLower(s[at[0]:at[1]])
		low := len(e) == 6 && e >= `\udc00` && e <= `\udfff`
		if low != (open == at[0]) || open >= 0 && !low {
			return true
		}
		open = -1
		if len(e) == 6 && e >= `\ud800` && e < `\udc00` {
			open = at[1]
		}
	}
	return open >= 0
}

func walk(d *json.Decoder, depth int, found map[string]bool) {
	token, err := d.Token()
	if err != nil {
		panic(err)
	}
	start, ok := token.(json.Delim)
	if !ok {
		return
	}
	if depth == 0 {
		found[deep] = true
	}
	keys := map[string]bool{}
	for d.More() {
		if start == '{' {
			token, _ := d.Token()
			key := token.(string)
			if keys[key] {
				found[dup] = true
			}
			keys[key] = true
		}
		walk(d, depth-1, found)
	}
	_, _ = d.Token()
}
