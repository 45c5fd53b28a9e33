package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

// What is not asked for is not sent: neither null nor empty, unless that is a value.
func TestRequestsOnTheWire(t *testing.T) {
	var sent string
	server := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = strings.TrimSpace(r.Method + " " + r.RequestURI + " " + string(body))
		if (len(body) > 0) != (r.Header.Get("Content-Type") == "application/json") {
			sent += " as " + r.Header.Get("Content-Type")
		}
	}))
	c := must(client.New(client.Config{BaseURL: server.URL, Token: token}))
	for line := range strings.Lines(string(must(os.ReadFile("testdata/wire.txt")))) {
		if line[0] == '#' {
			continue
		}
		is := is.New(t)
		request, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		is.True(strings.Contains(saysOf(t, c, request), `"Code": "internal"`)) // the server has nothing to say
		is.Equal(sent, want)
	}
}

func TestHeaders(t *testing.T) {
	is := is.New(t)
	var sent http.Header
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header
		w.WriteHeader(http.StatusNoContent)
	}))
	is.NoErr(must(client.New(client.Config{BaseURL: server.URL, Token: token})).Templates.Delete(t.Context(), "a"))
	is.Equal(sent, http.Header{
		"Authorization": {"Bearer " + token}, "User-Agent": {"extsvc-svc-client"}, "Accept-Encoding": {"gzip"},
		"Accept": {"application/json, application/problem+json"},
	})
	is.NoErr(must(client.New(client.Config{BaseURL: server.URL})).Templates.Delete(t.Context(), "a"))
	is.Equal(sent["Authorization"], nil)
}

// A client of a host with its own parameters gets what the Service answers, in the same order.
func TestOwnParameters(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	table := []parameter.Definition{
		{Name: "rows", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "llm_model", Type: parameter.TextList, Merge: parameter.All, Narrow: parameter.Append},
		{Name: "level", Type: parameter.Level, Levels: []string{"a", "b"}, Merge: parameter.Least, Narrow: parameter.Greater},
		{Name: "filters", Type: parameter.ObjectList, Merge: parameter.All, Narrow: parameter.Intersect},
		{Name: "unset", Type: parameter.Text, Merge: parameter.Closest, Narrow: parameter.Replace},
	}
	service := must(svc.New(svc.Config{Store: memstore.New(), Parameters: table}))
	defer service.Close()
	is.NoErr(service.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}],
		"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["a:*"], "banks": ["*"], "rows": 7, "llm_model": ["y", "x"], "level": "b", "filters": [{"k": "<v>"}]},
			{"effect": "allow", "actions": ["iam:*"], "banks": ["*"]}]}}],
		"bank_policies": [{"bank_id": "open", "document": {"version": "2026-03-24", "public_access": {"default": {"actions": ["a:b"], "rows": 1, "llm_model": []}}}}],
		"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "alice"}]}`)))))
	server := httptest.NewServer(httpapi.New(service, httpapi.Options{}))
	t.Cleanup(server.Close)
	issued := must(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
	c := must(client.New(client.Config{BaseURL: server.URL + "/ext/svc", Token: issued.Key}))

	q := svc.Question{UserID: "alice", Action: "a:b", Bank: "x"}
	want, got := must(service.Policies.Resolve(ctx, svc.Host, q)), must(c.Policies.Resolve(ctx, q))
	is.Equal(got.Parameters, want.Parameters)
	is.Equal(got.Trace[0].Sets.Values, want.Trace[0].Sets.Values[:4]) // those that are set
	rows, ok := got.Parameter("rows")
	is.True(ok && rows == int64(7))
	filters, _ := got.Parameter("filters")
	is.Equal(filters, []json.RawMessage{json.RawMessage(`{"k":"<v>"}`)})
	_, ok = got.Parameter("unset")
	is.True(!ok)

	asked := []svc.Question{q, {Sender: "x:y", Action: "a:b", Bank: "open"}, {Sender: "x:y", Action: "a:c", Bank: "open"}}
	is.Equal(must(c.Policies.Decide(ctx, asked...)), must(service.Policies.Decide(ctx, svc.Host, asked...)))
	can := must(c.Policies.WhatCanI(ctx))
	level, _ := can[0].Parameter("level")
	is.Equal(level, "b")

	_, err := c.Policies.Create(ctx, svc.Policy{ID: "q", Document: json.RawMessage(`{"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["a"], "banks": ["b"], "recall_budget": "low"}]}`)})
	is.Equal(refused(err).Field, "/document/statements/0/recall_budget")
	is.Equal(refused(err).Message, "is an unknown key: known are actions, banks, effect, filters, level, llm_model, rows, unset")
}

// A field of an argument is sent, or refused: a server that does not hear of it would do something else.
func TestEveryFieldIsSentOrRefused(t *testing.T) {
	set := []string{"Keys.List.Bare", "Access.Preview.DryRun", "Banks.Create.Manifest"} // by the method itself
	var sent string
	answer := func(r *http.Request) (*http.Response, error) {
		body := []byte{}
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
		sent = fmt.Sprint(r.Method, r.URL, r.Header, string(body))
		return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
	}
	c := must(client.New(client.Config{BaseURL: "http://svc.test", HTTPClient: &http.Client{Transport: roundTripper(answer)}}))
	call := func(method reflect.Value, args []reflect.Value) (request string, err error) {
		sent = ""
		results := method.Call(args)
		if last := results[len(results)-1]; last.Kind() == reflect.Func {
			for _, failed := range last.Seq2() {
				err = failed.Interface().(error)
			}
		} else {
			err, _ = last.Interface().(error)
		}
		return sent, err
	}
	for noun, value := range reflect.ValueOf(c).Elem().Fields() {
		for i := range value.NumMethod() {
			method, name, args := value.Method(i), noun.Name+"."+value.Type().Method(i).Name, []reflect.Value{reflect.ValueOf(t.Context())}
			for n := 1; n < method.Type().NumIn() && !(method.Type().IsVariadic() && n == method.Type().NumIn()-1); n++ {
				arg := reflect.New(method.Type().In(n)).Elem()
				if given(arg); arg.Kind() == reflect.Struct && arg.Type() != reflect.TypeFor[svc.Identity]() {
					arg.SetZero()
				}
				args = append(args, arg)
			}
			without, _ := call(method, args)
			for n, arg := range args[1:] {
				if arg.Kind() != reflect.Struct {
					continue
				}
				for _, field := range reflect.VisibleFields(arg.Type()) {
					if field.Anonymous || !field.IsExported() || slices.Contains(set, name+"."+field.Name) {
						continue
					}
					with := reflect.New(arg.Type()).Elem()
					given(with.FieldByIndex(field.Index))
					changed := append(append(append([]reflect.Value{}, args[:n+1]...), with), args[n+2:]...)
					if request, err := call(method, changed); request == without && svc.ErrorCode(err) != svc.CodeInvalid {
						t.Errorf("%s does not send %s.%s: %v", name, arg.Type(), field.Name, err)
					}
				}
			}
		}
	}
}

// given sets a value that is not zero, with all that it has.
func given(v reflect.Value) {
	switch to := v.Addr().Interface().(type) {
	case *context.Context, *any:
	case *time.Time:
		*to = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	case *time.Duration:
		*to = time.Hour
	case *json.RawMessage:
		*to = json.RawMessage(`{"version":"1"}`)
	case *svc.Kind:
		*to = svc.KindUser
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("v")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			given(v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			given(v.Index(0))
		case reflect.Struct:
			for _, field := range v.Fields() {
				if field.CanSet() {
					given(field)
				}
			}
		}
	}
}
