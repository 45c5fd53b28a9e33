package svc_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// documentOf draws a document with values of any parameters of the table.
func documentOf(d *rand.Rand, table []svc.Parameter) svc.Document {
	words := []string{"a", "ä<&>", "\u2028\"\\", "b\n"}
	document := svc.Document{Statements: make([]svc.Statement, d.IntN(4))}
	for i := range document.Statements {
		st := svc.Statement{Effect: svc.EffectAllow, Actions: []string{"flag:*", "a"}, Banks: []string{"${group}::*", "b::${user}"}}
		if d.IntN(4) == 0 {
			st.Effect = svc.EffectDeny
		}
		for _, p := range table {
			if st.Effect == svc.EffectDeny || d.IntN(2) == 0 {
				continue
			}
			if st.Set == nil {
				st.Set = map[string]any{}
			}
			switch p.Type {
			case svc.ParameterInteger:
				st.Set[p.Name] = d.Int64()
			case svc.ParameterText:
				st.Set[p.Name] = words[d.IntN(len(words))]
			case svc.ParameterLevel:
				st.Set[p.Name] = p.Levels[d.IntN(len(p.Levels))]
			case svc.ParameterTextList:
				st.Set[p.Name] = words[:d.IntN(len(words))]
			case svc.ParameterObjectList:
				st.Set[p.Name] = []json.RawMessage{json.RawMessage(`{"b":[1.0,1e3],"a":"<>"}`)}
			}
		}
		document.Statements[i] = st
	}
	return document
}

// A Service keeps a typed document as it is, whatever its table, and gives it back.
func TestDocumentsKeepAll(t *testing.T) {
	is := is.New(t)
	for seed := range uint64(50) {
		d := rand.New(rand.NewPCG(seed, 3))
		table := []svc.Parameter{}
		for i := range d.IntN(8) {
			p := svc.Parameter{Name: fmt.Sprint("p_", i), Type: svc.ParameterType(1 + i%5), Merge: svc.MergeClosest, Narrow: svc.NarrowReplace}
			if p.Type == svc.ParameterLevel {
				p.Levels = []string{"low", "high"}
			}
			table = append(table, p)
		}
		service, err := svc.New(svc.Config{Store: memstore.New(), Parameters: table})
		is.NoErr(err)
		document := documentOf(d, table)
		kept, err := service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: document.JSON()})
		is.NoErr(err)
		is.Equal(string(kept.Document), string(document.JSON()))
		got, err := svc.ParseDocument(kept.Document)
		is.NoErr(err)
		is.Equal(got, document)
		is.NoErr(service.Close())
	}
}

// What has no JSON, or stands under a wrong name, gives no right: a Service refuses the document.
func TestDocumentsThatAreRefused(t *testing.T) {
	is := is.New(t)
	service, err := svc.New(svc.Config{Store: memstore.New(), Parameters: flags})
	is.NoErr(err)
	defer service.Close()
	allow := svc.Statement{Effect: svc.EffectAllow, Actions: []string{"a"}, Banks: []string{"b"}}
	with := func(change func(*svc.Statement)) svc.Document {
		st := allow
		change(&st)
		return svc.Document{Statements: []svc.Statement{allow, st}}
	}
	set := func(name string, v any) svc.Document {
		return with(func(st *svc.Statement) { st.Set = map[string]any{name: v} })
	}
	for _, tc := range []struct {
		document  svc.Document
		at, field string // of ParseDocument, and of Create
	}{
		{set("row_limit", 5), "", ""},
		{set("row_limit", uint8(5)), "", ""},
		{set("row_limit", 5.0), "", ""},
		{set("row_limit", nil), "", ""},
		{set("row_limit", "5"), "", "row_limit"},
		{set("rows", 5), "", "rows"},
		{set("row_limit", func() {}), "row_limit", "row_limit"},
		{set("environments", []string{"\xff"}), "environments", "environments"},
		{set("banks", []string{"*"}), "banks", "banks"},
		{set("row limit", 1), "row limit", "row limit"},
		{with(func(st *svc.Statement) { st.Banks = []string{"\xff"} }), "banks", "banks"},
		{with(func(st *svc.Statement) { st.Banks = nil }), "banks", "banks"},
		{with(func(st *svc.Statement) { st.Effect = "" }), "effect", "effect"},
		{with(func(st *svc.Statement) { st.Effect, st.Set = svc.EffectDeny, map[string]any{"row_limit": 1} }), "row_limit", "row_limit"},
	} {
		check := func(err error, name, at string) {
			t.Helper()
			if want := at + "/statements/1/" + name; name == "" && err != nil || name != "" && (svc.ErrorCode(err) != svc.CodeInvalid || svc.Errors(err)[0].Field != want) {
				t.Errorf("%+v: %v, want %q", tc.document, err, want)
			}
		}
		_, err := svc.ParseDocument(tc.document.JSON())
		check(err, tc.at, "")
		_, err = service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: tc.document.JSON()})
		check(err, tc.field, "/document")
		if err == nil {
			is.NoErr(service.Policies.Delete(t.Context(), svc.Host, "p"))
		}
	}
	_, err = svc.ParseDocument(nil)
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	_, err = service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: set("\xff", 1).JSON()})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
}
