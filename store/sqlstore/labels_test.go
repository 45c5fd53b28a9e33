package sqlstore

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"
)

func FuzzDecodeList(f *testing.F) {
	for _, seed := range []string{
		`[]`, `null`, `[""]`, `["a"]`, `["a","b"]`, `["",""]`, `["a,b","c"]`, `["a\"b"]`, `["\u003c"]`, `["é","🧠"]`,
		`["a"]["b"]`, `["a","b"`, `["a" ,"b"]`, `[1]`, ``, `["`, `["]`, `["a"x"b"]`, `["","`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, plain := cutList([]byte(text))
		if !plain || !utf8.ValidString(text) { // encodeList writes valid UTF-8
			return
		}
		var want []string
		if err := json.Unmarshal([]byte(text), &want); err == nil && !slices.Equal(list, want) {
			t.Errorf("%q is cut into %q, want %q", text, list, want)
		}
	})
}

func TestListsComeBack(t *testing.T) {
	for _, list := range [][]string{{}, {""}, {"a", "b"}, {`"`, `\`, "<", "a,b", "\n", "\u2028"}, {"é", "🧠", ""}} {
		back, err := decodeList([]byte(encodeList(list)))
		if err != nil || !slices.Equal(back, list) || back == nil {
			t.Errorf("%q comes back as %q: %v", list, back, err)
		}
	}
	if _, err := decodeList([]byte(`["a`)); err == nil {
		t.Error("half a list is no error")
	}
}
