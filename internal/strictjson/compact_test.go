package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/strictjson"
)

const (
	dup  = "is a duplicate key"
	half = "must not have half a surrogate pair"
	utf  = "must be valid UTF-8"
	deep = "must not be nested deeper than 4 levels"
	bad  = "must be valid JSON: "
)

func TestCompactRefuses(t *testing.T) {
	many := string(manyKeys(1000))
	for _, c := range []struct{ in, pointer, detail string }{
		{"", "", "must not be empty"},
		{" \n", "", "must not be empty"},
		{"\ufeff{}", "", "must not begin with a byte order mark"},
		{`{"a":1} {}`, "", bad + "something follows its end at offset 8"},
		{`01`, "", bad + "something follows its end at offset 1"},
		{`{"a":`, "", bad + "it ends too early"},
		{`{"a"`, "", bad + "it ends too early"},
		{`["abc`, "", bad + "it ends too early"},
		{`["abc\`, "", bad + "it ends too early"},
		{`[1`, "", bad + "it ends too early"},
		{`[1,]`, "", bad + `unexpected ']' at offset 3`},
		{`{"a":1,}`, "", bad + `unexpected '}' at offset 7`},
		{`{"a" 1}`, "", bad + `unexpected '1' at offset 5`},
		{`{"a":1 "b":2}`, "", bad + `unexpected '"' at offset 7`},
		{`{a:1}`, "", bad + `unexpected 'a' at offset 1`},
		{`{"\x":1}`, "", bad + `unexpected 'x' at offset 3`},
		{`['a']`, "", bad + `unexpected '\'' at offset 1`},
		{`[tru]`, "", bad + `unexpected 't' at offset 1`},
		{`[falsy]`, "", bad + `unexpected 'f' at offset 1`},
		{`[nul`, "", bad + `unexpected 'n' at offset 1`},
		{`[NaN]`, "", bad + `unexpected 'N' at offset 1`},
		{`[+1]`, "", bad + `unexpected '+' at offset 1`},
		{`[-]`, "", bad + `unexpected ']' at offset 2`},
		{`[1.]`, "", bad + `unexpected ']' at offset 3`},
		{`[.5]`, "", bad + `unexpected '.' at offset 1`},
		{`[1e]`, "", bad + `unexpected ']' at offset 3`},
		{`[1e+]`, "", bad + `unexpected ']' at offset 4`},
		{"[\v1]", "", bad + `unexpected '\v' at offset 1`},
		{"[\u00a01]", "", bad + `unexpected byte 0xc2 at offset 1`},
		{"[\"a\nb\"]", "", bad + `control character '\n' at offset 3 must be escaped`},
		{"[\"a\x00b\"]", "", bad + `control character '\x00' at offset 3 must be escaped`},
		{`["\x41"]`, "", bad + `unexpected 'x' at offset 3`},
		{`["\u12"]`, "", bad + `\u without four hexadecimal digits at offset 2`},
		{`["\u12g4"]`, "", bad + `\u without four hexadecimal digits at offset 2`},
		{`["\u1`, "", bad + `\u without four hexadecimal digits at offset 2`},
		{"{\"a\":[\"b\",\"\xff\"]}", "/a/1", utf},
		{"[\"\xed\xa0\x80\"]", "/0", utf},
		{"[\"\xc3", "/0", utf},
		{"{\"a\":{\"\xff\":1}}", "/a", utf},
		{`{"a":"\ud800"}`, "/a", half},
		{`{"a":"\udc00"}`, "/a", half},
		{`{"a":"\ud800\ud800"}`, "/a", half},
		{`{"a":"\ud800x"}`, "/a", half},
		{`{"a":"\ud800\n12345"}`, "/a", half},
		{`{"a":"\udc00\ud800"}`, "/a", half},
		{`{"a":{"\ud83d":1}}`, "/a", half},
		{`{"a":1,"b":2,"a":3}`, "/a", dup},
		{`{"a":1,"\u0061":3}`, "/a", dup},
		{`{"\ud83d\ude00":1,"😀":3}`, "/😀", dup},
		{`{"\/\n\b\f\r\t\"\\":1,"\u002F\u000a\u0008\u000C\u000d\u0009\u0022\u005c":1}`, "/~1\n\b\f\r\t\"\\", dup},
		{`{"x\ty":1,"\u0078\u0009y":3}`, "/x\ty", dup},
		{`{"":1,"":3}`, "/", dup},
		{`{"a~b/c":[{"x":{"y":1,"y":1}}]}`, "/a~0b~1c/0/x/y", dup},
		{`{"a":1,"o":{"b":1},"a":1}`, "/a", dup},
		{many[:len(many)-1] + `,"k7":0}`, "/k7", dup},
		{many[:len(many)-1] + `,"k999":0}`, "/k999", dup},
		{`[[[[[]]]]]`, "/0/0/0/0", deep},
		{`{"a":{"b":{"c":{"d":{}}}}}`, "/a/b/c/d", deep},
		{strings.Repeat("[", 10_000), "/0/0/0/0", deep},
		{strings.Repeat("[", 1_000_000), "/0/0/0/0", deep},
		{strings.Repeat(`{"":`, 1_000_000), "////", deep},
	} {
		out, err := strictjson.Compact([]byte(c.in), 4)
		if out != nil {
			t.Errorf("%.40q: an output beside the error", c.in)
		}
		refused(t, c.in, err, c.pointer, c.detail)
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
		if err != nil || string(out) != c.want {
			t.Errorf("%.40q: got %.40q, %v", c.in, out, err)
		}
	}
}

// A limit beyond that of encoding/json would accept documents that nothing can decode.
func TestCompactDepth(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, err := strictjson.Compact(nest(10_000), math.MaxInt); err != nil || !json.Valid(nest(10_000)) {
		t.Errorf("10,000 levels: %.60v", err)
	}
	_, err := strictjson.Compact(nest(10_001), math.MaxInt)
	if err == nil || !strings.HasSuffix(err.Error(), "/0: must not be nested deeper than 10000 levels") {
		t.Errorf("10,001 levels: %.60v", err)
	}
	_, err = strictjson.Compact(nest(1), -1)
	refused(t, "[]", err, "", "must not be nested deeper than 0 levels")
	if _, err := strictjson.Compact([]byte("1"), 0); err != nil {
		t.Error(err)
	}
}

func TestErrorText(t *testing.T) {
	for want, e := range map[string]strictjson.Error{
		"document: must not be empty": {Detail: "must not be empty"},
		"/a/0: must be a string":      {Pointer: "/a/0", Detail: "must be a string"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
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
		if !bytes.Equal(before, data) {
			t.Fatal("input changed")
		}
		if !json.Valid(data) {
			if err == nil {
				t.Fatal("accepted what is not JSON")
			}
			return
		}
		why := reasons(data, 4)
		if err == nil {
			var want bytes.Buffer
			_ = json.Compact(&want, data)
			if len(why) > 0 || !bytes.Equal(out, want.Bytes()) {
				t.Fatalf("accepted as %q in spite of %v", out, why)
			}
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
