package jcs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
)

func canonical(t testing.TB, in string) string {
	t.Helper()
	out, err := jcs.Canonical([]byte(in))
	expect.Holds(t, err == nil, in, err)
	return string(out)
}

// The samples of RFC 8785, except 333333333.33333329, which the RFC rounds.
func TestRFCSamples(t *testing.T) {
	is := is.New(t)
	is.Equal(canonical(t, `{
		"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
		"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
		"literals": [null, true, false]
	}`), `{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],`+
		`"string":"€$\u000f\nA'B\"\\\\\"/"}`)

	is.Equal(canonical(t, `{
		"\u20ac": "Euro Sign",
		"\r": "Carriage Return",
		"\ufb33": "Hebrew Letter Dalet With Dagesh",
		"1": "One",
		"\ud83d\ude00": "Emoji: Grinning Face",
		"\u0080": "Control",
		"\u00f6": "Latin Small Letter O With Diaeresis"
	}`), `{"\r":"Carriage Return","1":"One","`+"\u0080"+`":"Control","ö":"Latin Small Letter O With Diaeresis",`+
		`"€":"Euro Sign","😀":"Emoji: Grinning Face","`+"\ufb33"+`":"Hebrew Letter Dalet With Dagesh"}`)
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{` null `, `null`},
		{`1.0`, `1`},
		{`"\u0061"`, `"a"`},
		{` [ ] `, `[]`},
		{` { } `, `{}`},
		{`[true,[false,{}],"x"]`, `[true,[false,{}],"x"]`},
		{`{"b":{"d":1,"c":2},"a":[{"z":1,"y":[1.0]}]}`, `{"a":[{"y":[1],"z":1}],"b":{"c":2,"d":1}}`},
		{`{"":1,"a":2,"aa":3,"A":4,"ab":5}`, `{"":1,"A":4,"a":2,"aa":3,"ab":5}`},
		{`{"b":1,"a":2,"\u0022":{"b":[],"a":{"d":0,"c":0}}}`, `{"\"":{"a":{"c":0,"d":0},"b":[]},"a":2,"b":1}`},
		{`{"\ue000":1,"\ud83d\ude00":2,"\ud7ff":3,"\ud83d\ude01":4}`, `{"` + "\ud7ff" + `":3,"😀":2,"😁":4,"` + "\ue000" + `":1}`},
		{`"\b\t\n\f\r\u000b\u001f\u007f\u2028\u003c"`, `"\b\t\n\f\r\u000b\u001f` + "\x7f\u2028" + `<"`},
	} {
		is.New(t).Equal(canonical(t, c.in), c.want)
	}
}

func TestRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                          "document: must not be empty",
		`{"a":1,"\u0061":1}`:        "/a: is a duplicate key",
		`["\ud800"]`:                "/0: must not have half a surrogate pair",
		strings.Repeat("[", 10_000): strings.Repeat("/0", 1000) + ": must not be nested deeper than 1000 levels",
	} {
		out, err := jcs.Append([]byte("before"), []byte(in))
		expect.Holds(t, errors.As(err, new(*strictjson.Error)) && err.Error() == want && string(out) == "before", in, out, err)
	}
}

func TestDeep(t *testing.T) {
	in := strings.Repeat(`{"b":1,"a":`, 1000) + "1.0" + strings.Repeat("}", 1000)
	want := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat(`,"b":1}`, 1000)
	is.New(t).True(canonical(t, in) == want)
}

func TestAppend(t *testing.T) {
	is := is.New(t)
	dst := append(make([]byte, 0, 64), "x="...)
	data := []byte(`{"b":1,"a":2}`)
	out, err := jcs.Append(dst, data)
	is.NoErr(err)
	is.Equal(string(out), `x={"a":2,"b":1}`)
	is.Equal(string(data), `{"b":1,"a":2}`)
	is.Equal(string(jcs.AppendString(dst, "a\x00\"")), `x="a\u0000\""`)
}

// Every code point is escaped as JSON.stringify does it, and reads back.
func TestAppendString(t *testing.T) {
	for r := range rune(utf8.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		lit := jcs.AppendString(nil, string(r))
		var back string
		expect.Holds(t, json.Unmarshal(lit, &back) == nil && back == string(r), r, lit, back)
		plain := r >= ' ' && r != '"' && r != '\\'
		expect.Holds(t, plain == (string(lit) == `"`+string(r)+`"`), r, lit)
	}
}

func TestAppendStrings(t *testing.T) {
	is := is.New(t)
	is.Equal(string(jcs.AppendStrings([]byte("x="), nil)), `x=[]`)
	is.Equal(string(jcs.AppendStrings(nil, []string{"b", "a", `"`})), `["b","a","\""]`)
}

// FuzzCanonical rewrites a document with other white space, key order and escapes.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"b":[1.0,-0,1e400,0.1],"a":{"\u20ac":"\n","😀":null,"\ufb33":true}}`, `"\ud83d\ude00\/"`, `[[],{}]`, `-0.0`,
		`123456789012345678901234567890`, `{"":{"":{"a":1,"A":2}}}`, `1e-7`, `[1E+2,100,1e2]`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		compact, err := strictjson.Compact(data, 1000)
		once, failed := jcs.Canonical(data)
		expect.Holds(t, (err == nil) == (failed == nil), err, failed)
		if err != nil {
			return
		}
		expect.Holds(t, canonical(t, string(once)) == string(once), once)
		decoder := json.NewDecoder(bytes.NewReader(compact))
		decoder.UseNumber()
		var value any
		_ = decoder.Decode(&value)
		disguised := disguise(rand.New(rand.NewPCG(seed, 0)), value)
		expect.Holds(t, canonical(t, disguised) == string(once), data, once, disguised)
	})
}

// disguise writes a value in another way with the same meaning.
func disguise(r *rand.Rand, value any) string {
	space := func() string { return []string{"", " ", "\n\t", "\r"}[r.IntN(4)] }
	var all []string
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v { // in the random order of the map
			all = append(all, space()+disguise(r, key)+":"+disguise(r, member))
		}
		return space() + "{" + strings.Join(all, ",") + "}"
	case []any:
		for _, element := range v {
			all = append(all, disguise(r, element))
		}
		return "[" + strings.Join(all, ",") + space() + "]"
	case string:
		for _, c := range v {
			all = append(all, strings.Trim(string(jcs.AppendString(nil, string(c))), `"`))
			switch {
			case r.IntN(3) == 0 && c < 0x10000 || c == '"':
				all[len(all)-1] = fmt.Sprintf(`\u%04X`, c)
			case c == '/':
				all[len(all)-1] = `\/`
			}
		}
		return `"` + strings.Join(all, "") + `"` + space()
	}
	literal, _ := json.Marshal(value)
	return string(literal) + space()
}

// A document over the bound is told by its length and digest, and so is one that has no canonical form.
func TestBounded(t *testing.T) {
	const most = 1000
	row := func(bytes int) string { return `{"id":"` + strings.Repeat("a", bytes-9) + `"}` }
	digest := func(text string) string {
		return fmt.Sprintf(`{"bytes":%d,"sha256":"%x"}`, len(text), sha256.Sum256([]byte(text)))
	}
	for in, want := range map[string]string{
		`{}`:                        `{}`,
		`{"id":"a<b>"}`:             `{"id":"a<b>"}`,
		`{"id":"a", "b":[1.0,1e2]}`: `{"b":[1,100],"id":"a"}`,
		`{"n":9007199254740993}`:    `{"n":9007199254740993}`, // no digit is lost
		row(most):                   row(most),
		row(most + 1):               digest(row(most + 1)),
		" " + row(most):             row(most),
		`{"a":1,"a":2}`:             digest(`{"a":1,"a":2}`), // it has no canonical form
	} {
		is.New(t).Equal(string(jcs.Bounded([]byte(in), most)), want)
	}
}

func TestEqual(t *testing.T) {
	for of, equal := range map[[2]string]bool{
		{`{"a":1}`, `{ "a" : 1.0 }`}: true, {"1", "2"}: false, {"{", "{"}: true, {"{", "["}: false, {"1", "{"}: false, {"{", "1"}: false,
	} {
		is.New(t).Equal(jcs.Equal([]byte(of[0]), []byte(of[1])), equal)
	}
}

func TestNumbers(t *testing.T) {
	zeros := strings.Repeat("0", 200_000)
	for _, c := range []struct{ in, want string }{
		{"0", "0"}, {"-0", "0"}, {"-0.0", "0"}, {"0e99999999999999999999999", "0"}, {"0.000E-5", "0"},
		{"1.0", "1"}, {"-1.50", "-1.5"}, {"4.50", "4.5"}, {"10", "10"}, {"100e-1", "10"}, {"1E2", "100"},
		{"1E30", "1e+30"}, {"2e-3", "0.002"}, {"0.1", "0.1"}, {"12.5", "12.5"}, {"0.000001", "0.000001"},
		{"0.0000001", "1e-7"}, {"0.00000012", "1.2e-7"}, {"1e-27", "1e-27"}, {"1e20", "100000000000000000000"},
		{"1e21", "1e+21"}, {"1.5e21", "1.5e+21"}, {"123456789012345680000", "123456789012345680000"},
		{"1234567890123456800000", "1.2345678901234568e+21"}, {"9007199254740992", "9007199254740992"},
		{"5e-324", "5e-324"}, {"50e-325", "5e-324"}, {"1.7976931348623157E308", "1.7976931348623157e+308"},
		// Long literals of short values.
		{"0." + zeros + "1e200001", "1"}, {"1" + zeros + "e-200000", "1"}, {"1." + zeros, "1"},
	} {
		is.New(t).Equal(canonical(t, c.in), c.want)
	}
}

func TestNumbersBeyondADoubleStand(t *testing.T) {
	for _, in := range []string{
		"9007199254740993", "-9007199254740993", "333333333.33333329", "0.1000000000000000055511151231257827",
		"1e400", "-1E+400", "1e-400", "4e-324", "1.7976931348623159e308", "1e1000000000", "1e-1000000000",
		"1e99999999999999999999999", "1e-99999999999999999999999", "123456789012345678901234567890", "0.10000000000000000001",
		"1e18446744073709551617", "1e-18446744073709551617", "18446744073709551615", "1" + strings.Repeat("0", 500), "9007199254740993.0e0",
	} {
		is.New(t).Equal(canonical(t, in), in)
	}
}

// encoding/json writes doubles as ECMAScript does, except for the sign of zero.
func TestDoublesAsECMAScript(t *testing.T) {
	r := rand.New(rand.NewPCG(8785, 0))
	for range 50_000 {
		f := math.Float64frombits(r.Uint64())
		if r.IntN(2) == 0 {
			f = (r.Float64() - 0.5) * math.Pow(10, float64(r.IntN(50)-25))
		}
		want, err := json.Marshal(f)
		if err != nil || f == 0 {
			continue // not a JSON number
		}
		is.New(t).Equal(canonical(t, strconv.FormatFloat(f, 'E', -1, 64)), string(want))
	}
}

// FuzzNumbers compares the canonical texts of two numbers with exact arithmetic.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1e2", "100", "0.1", "1E-7", "9007199254740993", "9007199254740992", "1e400", "10e399", "-1.50"} {
		f.Add(s, "1e2")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := exact(a), exact(b)
		if x == nil || y == nil {
			t.Skip()
		}
		ca, cb := canonical(t, a), canonical(t, b)
		expect.Holds(t, ca != cb || x.Cmp(y) == 0, a, b, ca)
		if c := exact(ca); c == nil || c.Cmp(x) != 0 {
			t.Fatalf("%s gives %s, another value", a, ca)
		}
		if near, _ := strconv.ParseFloat(a, 64); ca != a && exact(shortest(near)).Cmp(x) != 0 {
			t.Fatalf("%s does not survive as a double, but became %s", a, ca)
		}
		expect.Holds(t, x.Cmp(y) != 0 || ca == cb || ca == a && cb == b, a, b, ca)
	})
}

func shortest(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// exact returns the value of a JSON number, or nil when its exponent is too large to compute with.
func exact(lit string) *big.Rat {
	_, e, _ := strings.Cut(strings.ToLower(lit), "e")
	if len(e) > 4 || len(lit) > 100 || !json.Valid([]byte(lit)) || !strings.Contains("-0123456789", lit[:1]) {
		return nil
	}
	r, _ := new(big.Rat).SetString(lit)
	return r
}
