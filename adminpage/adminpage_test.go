package adminpage_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// site is a server with the pages, and a browser without a script.
type site struct {
	t       *testing.T
	service *svc.Service
	page    *adminpage.Handler
	url     string // of the pages, with a slash at the end
	client  *http.Client
	key     string // of the user admin, who has all rights
}

func newSite(t *testing.T, bundle svc.Bundle, set ...func(*adminpage.Options)) *site {
	return newSiteWith(t, svc.Config{}, bundle, set...)
}

func newSiteWith(t *testing.T, config svc.Config, bundle svc.Bundle, set ...func(*adminpage.Options)) *site {
	t.Helper()
	config.Store, config.Events.Keep = memstore.New(), true
	return newSiteOf(t, config, bundle, set...)
}

func newSiteOf(t *testing.T, config svc.Config, bundle svc.Bundle, set ...func(*adminpage.Options)) *site {
	t.Helper()
	service := must(svc.New(config))
	t.Cleanup(func() { _ = service.Close() })
	admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	bundle.Users = append(bundle.Users, svc.User{ID: admin.ID})
	for _, policy := range []string{svc.PolicyIAMAdmin, svc.PolicyTemplateAdmin} {
		bundle.Attachments = append(bundle.Attachments, svc.Attachment{
			PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: admin.ID}})
	}
	must(0, service.Access.Apply(t.Context(), svc.Host, bundle))
	key := must(service.Keys.Issue(t.Context(), svc.Host, admin, svc.NewAPIKey{}))
	options := adminpage.Options{}
	for _, s := range set {
		s(&options)
	}
	page := adminpage.New(service, options)
	server := httptest.NewUnstartedServer(page.Mount(http.NotFoundHandler()))
	server.Config.WriteTimeout = time.Minute
	server.Start()
	t.Cleanup(server.Close)
	jar := must(cookiejar.New(nil))
	prefix := options.Prefix
	if prefix == "" {
		prefix = adminpage.DefaultPrefix
	}
	return &site{t, service, page, server.URL + strings.TrimRight(prefix, "/") + "/",
		&http.Client{Jar: jar}, string(key.Key)}
}

type answer struct {
	*http.Response
	body string
}

func (s *site) get(address string) answer {
	s.t.Helper()
	return s.read(s.client.Get(s.url + address))
}

func (s *site) post(address string, form url.Values) answer {
	s.t.Helper()
	return s.read(s.client.PostForm(s.url+address, form))
}

func (s *site) read(response *http.Response, err error) answer {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	return answer{response, string(must(io.ReadAll(response.Body)))}
}

func (s *site) signIn() *site {
	s.t.Helper()
	if a := s.post("sign-in", url.Values{"key": {s.key}}); a.StatusCode != 200 {
		s.t.Fatalf("sign in: %d: %s", a.StatusCode, a.body)
	}
	return s
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

const (
	deskOne = `{"templates":[{"id":"desk","name":"Desk","description":"Remembers what was promised.",` +
		`"category":"Tickets","integrations":["slack"],"tags":[],"manifest":{"version":"1","budget":"mid"}}]}`
	deskTwo = `{"templates":[{"id":"desk","name":"Desk","description":"Remembers what was asked.",` +
		`"category":"Tickets","integrations":["slack","mail"],"tags":[],"manifest":{"version":"2","budget":"high"}}]}`
)

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
	return newShopWith(t, svc.Config{}, office(), set...)
}

func newShopWith(t *testing.T, config svc.Config, bundle svc.Bundle, set ...func(*adminpage.Options)) *shop {
	files := fstest.MapFS{"templates.json": {Data: []byte(deskOne)}}
	config.Sources.Marketplace = must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"acme": files}}))
	s := &shop{newSiteWith(t, config, bundle, set...), files}
	must(s.service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://acme", Alias: new("acme")}))
	must(s.service.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "desk", SourceName: "acme"}))
	s.signIn()
	return s
}

func (s *shop) publish(catalogue string) {
	s.files["templates.json"] = &fstest.MapFile{Data: []byte(catalogue)}
}

func (s *shop) edit(description string) {
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
