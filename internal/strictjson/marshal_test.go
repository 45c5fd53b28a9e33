package strictjson_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/strictjson"
)

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
