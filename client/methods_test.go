package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// step is a call of a method of a noun, with what follows the context and the caller.
type step struct {
	by   string // "": an administrator
	call string
	args []any
}

func with(args ...any) []any { return args }

// current stands for the entity tag that the row has now, and newest for the id of the newest key of the holder.
type current struct{}
type newest struct{}

// twins are two servers with the same rows. Each step is done to one by its client, and to the other by its Service.
type twins struct {
	here, there *site
	keys        map[*site]*[]svc.Secret // all that were issued
}

func newTwins(here, there *site) twins {
	return twins{here, there, map[*site]*[]svc.Secret{here: {}, there: {}}}
}

// do returns what both say, as JSON.
func (w twins) do(t *testing.T, s step) (have, want string) {
	t.Helper()
	if s.by == "" {
		s.by = token
	}
	noun, method, _ := strings.Cut(s.call, ".")
	by := must(sessions(t.Context(), s.by))
	remote := reflect.ValueOf(w.here.client.As(svc.Secret(s.by))).Elem().FieldByName(noun).MethodByName(method)
	local := reflect.ValueOf(w.there.Service).Elem().FieldByName(noun)
	args, sent := append([]any{by}, s.args...), slices.Clone(s.args)
	for i, arg := range s.args {
		switch arg.(type) {
		case current:
			row := local.MethodByName("Read").Call(values(t.Context(), by, s.args[0]))[0]
			args[i+1] = row.MethodByName("ETag").Call(nil)[0].String()
			sent[i] = args[i+1]
		case newest:
			args[i+1], sent[i] = w.there.newestKey(by, s.args[0]), w.here.newestKey(by, s.args[0])
		}
	}
	call := local.MethodByName(method)
	have = said(w.here.seen(w.keys, remote.Call(values(append([]any{t.Context()}, sent...)...))))
	switch s.call {
	case "Templates.CheckUpdates", "MyTemplates.CheckUpdates":
		args = append(args, (func(int, int))(nil))
	case "Policies.WhatCanI":
		call, args = local.MethodByName("WhatCan"), append(args, svc.Me)
	case "Groups.AddMember", "Groups.RemoveMember":
		call = local.MethodByName(method + "s")
	}
	results := call.Call(values(append([]any{t.Context()}, args...)...))
	if s.call == "Keys.RevokeAll" {
		results = results[1:] // the interface does not say how many
	}
	want = said(w.there.seen(w.keys, results))
	if slices.Contains(s.args, any(svc.Me)) { // who that is
		have, want = holderOf.ReplaceAllString(have, ""), holderOf.ReplaceAllString(want, "")
	}
	return have + w.here.good(w.keys), want + w.there.good(w.keys)
}

var holderOf = regexp.MustCompile(`"Holder": \{[^}]*\},`)

func (s *site) newestKey(by svc.Principal, holder any) string {
	for key := range s.Keys.List(s.t.Context(), by, holder.(svc.Identity), svc.KeyQuery{}) {
		return key.ID
	}
	return "none"
}

func (s *site) seen(keys map[*site]*[]svc.Secret, results []reflect.Value) []reflect.Value {
	if issued, is := results[0].Interface().(svc.IssuedKey); is && issued.Key != "" {
		*keys[s] = append(*keys[s], issued.Key)
	}
	return results
}

// good says which of the keys that were issued are accepted.
func (s *site) good(keys map[*site]*[]svc.Secret) (text string) {
	for i, key := range *keys[s] {
		text += fmt.Sprintf("\nkey %d is good: %v", i, s.accepts(key))
	}
	return text
}

func (s *site) accepts(key svc.Secret) bool {
	_, err := s.Authenticate(s.t.Context(), string(key))
	return err == nil
}

func values(all ...any) (out []reflect.Value) {
	for _, v := range all {
		out = append(out, reflect.ValueOf(v))
	}
	return out
}

// said is what a method returned: its value, or its errors. A list is read to its end.
func said(results []reflect.Value) string {
	var all []any
	add := func(value, err reflect.Value) {
		if err.IsNil() {
			all = append(all, plain(value.Interface()))
		} else {
			all = append(all, plain(err.Interface()))
		}
	}
	switch {
	case len(results) == 2:
		add(results[0], results[1])
	case results[0].Kind() == reflect.Func:
		for row, err := range results[0].Seq2() {
			add(row, err)
		}
	default:
		all = append(all, plain(results[0].Interface()))
	}
	return string(must(json.MarshalIndent(all, "", " ")))
}

// saysOf is what a client says to a call, which is a line of steps.
func saysOf(t *testing.T, c *client.Client, line string) string {
	t.Helper()
	s := stepOf(t, line)
	noun, method, _ := strings.Cut(s.call, ".")
	of := reflect.ValueOf(c).Elem().FieldByName(noun).MethodByName(method)
	return said(of.Call(values(append([]any{t.Context()}, s.args...)...)))
}

// plain is a value of the Service as the interface tells it.
func plain(value any) any {
	switch v := value.(type) {
	case error:
		errors := refusals(v)
		for i := range errors {
			if errors[i].Code != svc.CodeInvalid {
				errors[i].Field = ""
			}
		}
		return errors
	case svc.APIKey:
		v.ID, v.Prefix, v.SuccessorID, v.LastUsedAt = "", "", "", time.Time{}
		v.Hash, v.Pepper, v.Seal = nil, "", nil
		return v
	case svc.IssuedKey:
		return svc.IssuedKey{APIKey: plain(v.APIKey).(svc.APIKey)}
	case svc.Template:
		return told(v)
	case svc.Update:
		v.Template = told(v.Template)
		return v
	case svc.UpdateCheck:
		if v.Source != nil {
			v.Source = &svc.SourceKey{Scope: v.Source.Scope, Name: v.Source.Name}
		}
		return v
	case svc.User:
		v.Channels = append([]svc.Channel{}, v.Channels...)
		return v
	case svc.Group:
		v.Members = append([]string{}, v.Members...)
		return v
	case svc.Source:
		return shown(v)
	case svc.SourceTemplates:
		return offered(v)
	case []svc.SourceListing:
		for i := range v {
			v[i].SourceTemplates, v[i].Source.Owner = offered(v[i].SourceTemplates), ""
		}
	case svc.UpdateReport: // of whom the sources are is known from the half
		for i := range v.Sources {
			v.Sources[i].Source.Owner = ""
		}
		for i := range v.Templates {
			v.Templates[i].Source.Owner = ""
		}
	}
	return value
}

// offered is what a source offers, but for what the interface leaves out, and the time of the fetch.
func offered(s svc.SourceTemplates) svc.SourceTemplates {
	templates := []svc.SourceTemplate{}
	for _, entry := range s.Templates {
		entry.Index, entry.ManifestFile, entry.Content.Manifest = 0, "", nil
		templates = append(templates, entry)
	}
	s.Templates, s.Bad = templates, append([]svc.CatalogProblem{}, s.Bad...)
	if !s.FetchedAt.IsZero() {
		s.FetchedAt = time.Unix(0, 0)
	}
	return s
}

// told is what the interface tells of a template of the Service.
func told(t svc.Template) svc.Template {
	t.Version = 0
	if t.Origin != nil {
		t.Origin = &svc.Origin{Source: t.Origin.Source, Revision: t.Origin.Revision}
	}
	return t
}

// shown is what the interface shows of a source of the Service.
func shown(s svc.Source) client.Source {
	return client.Source{
		SourceKey: s.SourceKey, URL: s.URL, Description: s.Description, HasAuth: s.HasAuth(),
		SigningKey: s.SigningKey, Serial: s.Serial, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

// banks makes every bank.
type banks struct{}

func (banks) MakeBank(_ context.Context, _ svc.Principal, bank svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: bank.Name == "New", ImportResult: bank.Manifest}, nil
}

// kept is a template as the server has it now.
func (s *site) kept(id string) svc.Template {
	s.t.Helper()
	return told(must(s.Templates.Read(s.t.Context(), svc.Host, id)))
}
