package svc_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func TestRevision(t *testing.T) {
	is := is.New(t)
	// echo -n '{"category":null,"description":"d","integrations":[],"manifest":{"a":1,"version":"1"},"name":"n","tags":["t"]}' | sha256sum
	const want = "sha256:d09a7a7fee647053cb5ff648e4dfb974be00b10ab8fcd3c149853794555f6e67"
	spellings := []string{`{"version":"1","a":1}`, `{"a":1.0,"version":"1"}`, ` { "a" : 1e0 , "version" : "\u0031" } `}
	for _, spelling := range spellings {
		c := svc.Content{Name: "n", Description: ptr("d"), Tags: []string{"t"}, Manifest: manifest(spelling)}
		is.Equal(revision(t, c), want)
	}
}

func TestRevisionTellsContentsApart(t *testing.T) {
	contents := []svc.Content{
		{Name: "n", Manifest: manifest(`{}`)},
		{Name: "N", Manifest: manifest(`{}`)},
		{Name: "n", Description: ptr(""), Manifest: manifest(`{}`)},
		{Name: "n", Category: ptr(""), Manifest: manifest(`{}`)},
		{Name: "n", Tags: []string{""}, Manifest: manifest(`{}`)},
		{Name: "n", Tags: []string{"a", "b"}, Manifest: manifest(`{}`)},
		{Name: "n", Tags: []string{"b", "a"}, Manifest: manifest(`{}`)},
		{Name: "n", Integrations: []string{"a"}, Manifest: manifest(`{}`)},
		{Name: "n", Manifest: manifest(`{"a":9007199254740993}`)},
		{Name: "n", Manifest: manifest(`{"a":9007199254740992}`)},
	}
	seen := map[string]int{}
	for i, c := range contents {
		r := revision(t, c)
		if j, twice := seen[r]; twice {
			t.Errorf("contents %d and %d have one revision", i, j)
		}
		seen[r] = i
	}
	if _, err := (svc.Content{Manifest: manifest(`{`)}).Revision(); err == nil {
		t.Error("what is no JSON has a revision")
	}
}
