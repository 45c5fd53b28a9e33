package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/strictjson"
)

type user struct {
	ID   string  `json:"id"`
	Kids []*user `json:"kids"`
}

type all struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`
	N      int64  `json:"n"`
	Small  int8
	U      uint16            `json:"u,omitempty"`
	F      float32           `json:"f"`
	Num    json.Number       `json:"num"`
	Tags   []string          `json:"tags"`
	Users  []user            `json:"users"`
	Ptr    *user             `json:"ptr"`
	Grid   [][]int           `json:"grid"`
	Raw    json.RawMessage   `json:"raw"`
	Raws   []json.RawMessage `json:"raws"`
	Any    any               `json:"any"`
	Map    map[string]user   `json:"map"`
	At     time.Time         `json:"at"`
	Until  *time.Time        `json:"until"`
	Addr   netip.Addr        `json:"addr"`
	Odd    odd               `json:"odd"`
	Skip   string            `json:"-"`
	hidden string

	Opt     strictjson.Optional[string]          `json:"opt"`
	OptRaw  strictjson.Optional[json.RawMessage] `json:"opt_raw"`
	OptTags strictjson.Optional[[]string]        `json:"opt_tags"`
	OptUser strictjson.Optional[*user]           `json:"opt_user"`
	OptAt   strictjson.Optional[time.Time]       `json:"opt_at"`
}

// odd gives null a meaning of its own.
type odd struct{ got string }

func (o *odd) UnmarshalJSON(b []byte) error {
	if string(b) == "13" {
		return errors.New("must not be 13")
	}
	o.got = string(b)
	return nil
}

func TestUnmarshalRefuses(t *testing.T) {
	for _, c := range refusals(t, "testdata/unmarshal.txt") {
		v := all{Name: "before"}
		err := strictjson.Unmarshal([]byte(c[0]), 4, &v)
		refused(t, c[0], err, c[1], c[2])
		expect.Holds(t, v.Name == "before" && v.hidden == "", c[0])
	}
}

func TestUnmarshal(t *testing.T) {
	is := is.New(t)
	data := []byte(` { "name" : "a\u0062", "on":true, "n":-9223372036854775808, "Small":127, "u":65535, "f":1.5e0, "num":1e999,
		"tags":[ "x" , "y" ], "users":[{"id":"1","kids":[null,{"id":"2"}]}], "ptr":{"id":"3"}, "grid":[[1],[],[2,3]],
		"raw": { "b" : 1, "a" : [ 1e400, null ] }, "raws":[ null, { } ], "any":{"A":[1]}, "map":{"Any KEY":{"id":"4"}},
		"at":"2026-01-02T03:04:05Z", "addr":"::1", "odd": null, "opt": "", "opt_raw": [ 1 ], "opt_tags":[] } `)
	var v all
	is.NoErr(strictjson.Unmarshal(data, 64, &v))
	clear(data)

	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	is.Equal(v, all{
		Name: "ab", On: true, N: -9223372036854775808, Small: 127, U: 65535, F: 1.5, Num: "1e999",
		Tags: []string{"x", "y"}, Users: []user{{ID: "1", Kids: []*user{nil, {ID: "2"}}}}, Ptr: &user{ID: "3"},
		Grid: [][]int{{1}, {}, {2, 3}},
		Raw:  json.RawMessage(`{"b":1,"a":[1e400,null]}`), Raws: []json.RawMessage{json.RawMessage("null"), json.RawMessage("{}")},
		Any: map[string]any{"A": []any{1.0}}, Map: map[string]user{"Any KEY": {ID: "4"}},
		At: at, Addr: netip.IPv6Loopback(), Odd: odd{"null"},
		Opt:     strictjson.Optional[string]{Set: true},
		OptRaw:  strictjson.Optional[json.RawMessage]{Set: true, Value: json.RawMessage("[1]")},
		OptTags: strictjson.Optional[[]string]{Set: true, Value: []string{}},
	})
}

// An integer may be written with a fraction or an exponent. In a raw value, it stays as it is.
func TestUnmarshalIntegers(t *testing.T) {
	is := is.New(t)
	digits := strings.Repeat("0", 100_000)
	for lit, want := range map[string]int64{
		"1.0": 1, "1e1": 10, "1E+1": 10, "10e-1": 1, "-0.0": 0, "-1.50e1": -15, "-2e2": -200, "0e999999999999": 0,
		"0.0e-999999999999": 0, "100.00": 100, "0.001e5": 100, "1.25e2": 125, "1e00000000000000000002": 100,
		"9223372036854775807.0": 9223372036854775807, "-9.223372036854775808e18": -9223372036854775808,
		"1" + digits + "e-100000": 1, "0." + digits + "1e100001": 1, "2." + digits: 2,
	} {
		var got struct {
			A, N int64
			Opt  strictjson.Optional[*int64]
			Raw  json.RawMessage
			L    []int64
			Z    bool
		}
		data := `{ "A":` + lit + ` , "Raw":[ 1.0, ` + lit + `],"Opt": ` + lit + `,"L":[` + lit + `, 3, ` + lit + `],"N":` + lit + `,"Z":true}`
		is.NoErr(strictjson.Unmarshal([]byte(data), 64, &got))
		is.Equal([]int64{got.A, got.N, *got.Opt.Value}, []int64{want, want, want})
		is.Equal(got.L, []int64{want, 3, want})
		is.Equal(string(got.Raw), `[1.0,`+lit+`]`)
		is.True(got.Z)
	}
}

func TestNullIsAbsent(t *testing.T) {
	is := is.New(t)
	for in, want := range map[string]all{
		`{"name":null}`: {}, `{"name":null,"on":null}`: {}, `{ "name" : null , "raw" : null , "ptr" : null }`: {},
		`{"n":null,"tags":null,"users":null,"map":null,"any":null,"until":null,"addr":null,"f":null,"grid":null}`: {},
		`{"name":"a","raw":null}`: {Name: "a"}, `{"raw":null,"name":"a"}`: {Name: "a"}, `{"on":null,"name":"a","raw":null}`: {Name: "a"},
		`{"on":null, "raw":null ,"name" : "a"}`: {Name: "a"}, `{"name":"a","raw":null,"on":null,"ptr":null}`: {Name: "a"},
	} {
		var v all
		is.NoErr(strictjson.Unmarshal([]byte(in), 64, &v))
		is.Equal(v, want) // Raw is nil, not the text null
	}
	v := all{Name: "kept"}
	is.NoErr(strictjson.Unmarshal([]byte(`{"name":null}`), 64, &v))
	is.Equal(v.Name, "kept")
}

// Raw members of the outermost struct, and only those, are kept out of the copy.
func TestRawMembers(t *testing.T) {
	type node struct {
		Raw    json.RawMessage                      `json:"raw"`
		Name   string                               `json:"name"`
		OptRaw strictjson.Optional[json.RawMessage] `json:"opt_raw"`
		In     *node                                `json:"in"`
	}
	is := is.New(t)
	raw, set := json.RawMessage(`{"x":[1,2]}`), strictjson.Optional[json.RawMessage]{Set: true, Value: json.RawMessage(`"y"`)}
	for in, want := range map[string]node{
		`{"raw":{"x":[1,2]}}`:                                               {Raw: raw},
		`{ "raw" : { "x" : [ 1, 2 ] } , "name" : "a" }`:                     {Raw: raw, Name: "a"},
		`{"name":"a", "raw": {"x":[1,2]} }`:                                 {Raw: raw, Name: "a"},
		`{"opt_raw":"y","name":"a","raw":{"x":[1,2]},"in":null}`:            {Raw: raw, Name: "a", OptRaw: set},
		`{"name":null,"raw":{"x":[1,2]},"opt_raw":"y"}`:                     {Raw: raw, OptRaw: set},
		`{"raw":null,"opt_raw":null,"name":"a"}`:                            {Name: "a", OptRaw: strictjson.Optional[json.RawMessage]{Set: true, Null: true}},
		`{"in":{"raw":{"x":[1,2]},"opt_raw":"y","name":"b"},"opt_raw":"y"}`: {OptRaw: set, In: &node{Raw: raw, Name: "b", OptRaw: set}},
	} {
		data := []byte(in)
		var v node
		is.NoErr(strictjson.Unmarshal(data, 64, &v))
		var p *node // the fields behind a pointer or an Optional are not fields of the outermost struct
		is.NoErr(strictjson.Unmarshal(data, 64, &p))
		var o strictjson.Optional[node]
		is.NoErr(strictjson.Unmarshal(data, 64, &o))
		clear(data)
		is.Equal(v, want)
		is.Equal(*p, want)
		is.Equal(o.Value, want)
	}
}

func TestOptionalNull(t *testing.T) {
	is := is.New(t)
	var v all
	in := `{"opt":null,"opt_raw":null,"opt_tags":null,"opt_user":null,"opt_at":null}`
	is.NoErr(strictjson.Unmarshal([]byte(in), 64, &v))
	is.Equal(v, all{
		Opt:     strictjson.Optional[string]{Set: true, Null: true},
		OptRaw:  strictjson.Optional[json.RawMessage]{Set: true, Null: true},
		OptTags: strictjson.Optional[[]string]{Set: true, Null: true},
		OptUser: strictjson.Optional[*user]{Set: true, Null: true},
		OptAt:   strictjson.Optional[time.Time]{Set: true, Null: true},
	})
}

func TestUnmarshalIntoOtherTypes(t *testing.T) {
	is := is.New(t)
	var tags []string
	is.NoErr(strictjson.Unmarshal([]byte(`["a"]`), 64, &tags))
	is.Equal(tags, []string{"a"})
	var raw json.RawMessage
	is.NoErr(strictjson.Unmarshal([]byte(` null `), 64, &raw))
	is.Equal(string(raw), "null")
	refused(t, "null", strictjson.Unmarshal([]byte(`null`), 64, &tags), "", "must be an array")
}

func TestUnmarshalNeedsUsableTarget(t *testing.T) {
	for want, v := range map[string]any{
		"int: not a non-nil pointer":          1,
		"*int: not a non-nil pointer":         (*int)(nil),
		"<nil>: not a non-nil pointer":        nil,
		"type chan int is not supported":      new(chan int),
		"type []uint8 is not supported":       new([]byte),
		"type map[int]bool is not supported":  new(map[int]bool),
		"type map[netip.Addr]bool is not sup": new(map[netip.Addr]bool),
		"type [2]int is not supported":        new([][2]int),
		".user is not supported":              new(struct{ user }),
		".N is not supported": new(struct {
			N int `json:",string"`
		}),
		".B is not supported": new(struct {
			A int `json:"B"`
			B int
		}),
		".A: type func() is not supported": new(struct{ A *func() }),
	} {
		err := strictjson.Unmarshal([]byte(`{}`), 64, v)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), want) && !errors.As(err, new(*strictjson.Error)), fmt.Sprintf("%T: got %v, want %q", v, err, want))
	}
}

// fickle gives one answer to the check and another to the decoding.
type fickle struct{}

var calls int

func (fickle) UnmarshalJSON([]byte) error {
	if calls++; calls > 1 {
		return errors.New("no more")
	}
	return nil
}

func TestUnmarshalReportsFickleTypes(t *testing.T) {
	err := strictjson.Unmarshal([]byte(`{"F":1}`), 64, &struct{ F fickle }{})
	is.New(t).True(strings.HasSuffix(fmt.Sprint(err), "no more"))
}

func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{
		`{"name":"a","on":true,"n":1,"Small":1,"u":1,"f":1.5,"num":1e9,"tags":["x"],"users":[{"id":"1","kids":[null]}]}`,
		`{"raw":{"a": 1},"raws":[null],"any":[1],"map":{"a":{}},"at":"2026-01-02T03:04:05Z","addr":"::1","odd":null}`,
		`{"opt":null,"opt_raw":[1],"opt_tags":[],"opt_user":{"id":"x"},"opt_at":null,"until":null,"ptr":null,"grid":[[1]]}`,
		`{"name":null,"on":null,"raw":null}`, `{"NAME":"x"}`, `{"tags":[null]}`, `null`, `{"n":1e3}`, `{"odd":13}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want all
		err := strictjson.Unmarshal(data, 64, &got)
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		lax := d.Decode(&want)
		if err == nil {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if wrong, ok := errors.AsType[*json.UnmarshalTypeError](lax); ok && strings.ContainsAny(strings.TrimPrefix(wrong.Value, "number "), ".eE") {
				return // an integer with a fraction or an exponent
			}
			expect.Holds(t, lax == nil && bytes.Equal(a, b), a, b, lax)
			return
		}
		e := new(strictjson.Error)
		expect.Holds(t, errors.As(err, &e), err)
		_, invalid := strictjson.Compact(data, 64)
		if invalid == nil && lax == nil && !strings.HasPrefix(e.Detail, "is an unknown key") && !bytes.Contains(data, []byte("null")) {
			t.Fatalf("refused without a reason: %v", err)
		}
	})
}

type patch struct {
	Name  strictjson.Optional[string]          `json:"name,omitzero"`
	Tags  strictjson.Optional[[]string]        `json:"tags,omitzero"`
	Raw   strictjson.Optional[json.RawMessage] `json:"raw,omitzero"`
	Bare  *string                              `json:"bare,omitempty"`
	Kids  []kid                                `json:"kids,omitzero"`
	Plain json.RawMessage                      `json:"plain,omitempty"`
	At    *time.Time                           `json:",omitempty"`
	Not   string                               `json:"-"`
}

type kid struct {
	ID string `json:"a/b"`
}

func TestMarshal(t *testing.T) {
	is := is.New(t)
	raw := json.RawMessage(`{"n": 1.50, "s": "<&>  \u003c"}`)
	for _, c := range []struct {
		v    any
		want string
	}{
		{patch{}, `{}`},
		{patch{Not: "\xff"}, `{}`},
		{patch{Name: strictjson.Optional[string]{Set: true}}, `{"name":""}`},
		{patch{Name: strictjson.Optional[string]{Set: true, Null: true}}, `{"name":null}`},
		{patch{Name: strictjson.Optional[string]{Set: true, Value: "<&> \ufffd"}}, "{\"name\":\"<&> \ufffd\"}"},
		{&patch{Tags: strictjson.Optional[[]string]{Set: true, Value: []string{}}}, `{"tags":[]}`},
		{patch{Raw: strictjson.Optional[json.RawMessage]{Set: true, Value: raw}}, `{"raw":{"n":1.50,"s":"<&>  \u003c"}}`},
		{patch{Plain: raw, Kids: []kid{}}, `{"kids":[],"plain":{"n":1.50,"s":"<&>  \u003c"}}`},
		{struct{ R json.RawMessage }{}, `{"R":null}`},
		{patch{At: &time.Time{}}, `{"At":"0001-01-01T00:00:00Z"}`},
	} {
		got, err := strictjson.Marshal(c.v)
		is.NoErr(err)
		is.Equal(string(got), c.want)
	}
}

func TestMarshalRefuses(t *testing.T) {
	bad := "a\xff"
	for pointer, v := range map[string]any{
		"/name":        patch{Name: strictjson.Optional[string]{Set: true, Value: bad}},
		"/tags/1":      patch{Tags: strictjson.Optional[[]string]{Set: true, Value: []string{"a", bad}}},
		"/bare":        patch{Bare: &bad},
		"/kids/0/a~1b": &patch{Kids: []kid{{bad}}},
		"/raw/x/0":     patch{Raw: strictjson.Optional[json.RawMessage]{Set: true, Value: json.RawMessage("{\"x\":[\"\xff\"]}")}},
		"/plain/c":     patch{Plain: json.RawMessage("{\"c\":\"\xff\"}")},
		"/R/0/deep/~0": struct{ R []json.RawMessage }{[]json.RawMessage{json.RawMessage("{\"deep\":{\"~\":\"\xff\"}}")}},
	} {
		_, err := strictjson.Marshal(v)
		refused(t, pointer, err, pointer, utf)
	}
	_, err := strictjson.Marshal(patch{Plain: json.RawMessage(`{"a":1,"a":2}`)})
	refused(t, "twice", err, "/plain/a", dup)
	if _, err = strictjson.Marshal(make(chan int)); err == nil {
		t.Error("a channel was written")
	}
}
