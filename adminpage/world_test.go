package adminpage_test

import (
	"encoding/json"
	"io/fs"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/marketplace"
)

const (
	deskOne = `{"templates":[{"id":"desk","name":"Desk","description":"Remembers what was promised.",` +
		`"integrations":["slack"],"tags":[],"manifest":{"version":"1","budget":"mid"}}]}`
	deskTwo = `{"templates":[{"id":"desk","name":"Desk","description":"Remembers what was asked.",` +
		`"integrations":["slack","mail"],"tags":[],"manifest":{"version":"2","budget":"high"}}]}`
)

// document is an access policy with some statements.
func document(statements string) json.RawMessage {
	return json.RawMessage(`{"version":"2026-03-24","statements":[` + statements + `]}`)
}

// office has bob, whom a policy of his own forbids what two groups allow, and a service account.
func office() svc.Bundle {
	to := func(kind, policy, id string) svc.Attachment {
		return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: id}}
	}
	return svc.Bundle{
		Users:           []svc.User{{ID: "bob"}, {ID: "carol"}},
		Groups:          []svc.Group{{ID: "desk", Members: []string{"bob", "carol"}}, {ID: "staff", Members: []string{"bob"}}},
		ServiceAccounts: []svc.ServiceAccount{{ID: "robot", OwnerUserID: "carol"}},
		Policies: []svc.Policy{
			{ID: "on-leave", Document: document(`{"effect":"deny","actions":["bank:*"],"banks":["*"]}`)},
			{ID: "works", Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["support"],"recall_budget":"high"},` +
				`{"effect":"deny","actions":["bank:forget"],"banks":["*"]}`)},
			{ID: "reads", Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["support"],"recall_budget":"low"}`)},
		},
		Attachments: []svc.Attachment{
			to("user", "on-leave", "bob"), to("group", "works", "desk"), to("group", "reads", "staff"), to("user", "reads", "carol"),
		},
	}
}

// shop is a site with a template that was installed from a source.
type shop struct {
	*site
	files fstest.MapFS
}

func newShop(t *testing.T, set ...func(*adminpage.Options)) *shop {
	t.Helper()
	files := fstest.MapFS{"templates.json": {Data: []byte(deskOne)}}
	market := must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"acme": files}}))
	s := &shop{newSiteWith(t, svc.Config{Marketplace: market}, office(), set...), files}
	must(s.service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://acme", Alias: new("acme")}))
	must(s.service.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "desk", SourceName: "acme"}))
	s.signIn()
	return s
}

// publish changes what the source offers.
func (s *shop) publish(catalogue string) {
	s.files["templates.json"] = &fstest.MapFile{Data: []byte(catalogue)}
}

// edit changes the description of the template here.
func (s *shop) edit(description string) {
	s.t.Helper()
	must(s.service.Templates.Patch(s.t.Context(), svc.Host, "desk",
		svc.TemplatePatch{Description: &svc.TextPatch{Value: &description}}))
}

// is expects a status, texts in the page, and after "" texts that are not in it.
func (a answer) is(t *testing.T, status int, texts ...string) answer {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: answered %d, want %d: %s", a.Request.URL, a.StatusCode, status, a.body)
	}
	want := true
	for _, text := range texts {
		if text == "" {
			want = false
		} else if strings.Contains(a.body, text) != want {
			t.Errorf("%s: %q in the page is %v, want %v: %s", a.Request.URL, text, !want, want, a.body)
		}
	}
	return a
}

// field returns the value of the first field of a form with that name.
func (a answer) field(t *testing.T, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(a.body, `name="`+name+`" value="`)
	value, _, _ := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("no field %q in %s", name, a.body)
	}
	return strings.NewReplacer("&#34;", `"`, "&amp;", "&").Replace(value)
}

func form(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values
}
