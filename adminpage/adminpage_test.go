package adminpage_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/store/memstore"
)

// site is a server with the pages, and a browser without a script.
type site struct {
	t       *testing.T
	service *svc.Service
	url     string // of the pages, with a slash at the end
	client  *http.Client
	key     string // of the user admin, who has all rights
}

// newSite starts a server whose database has the rows of a bundle, and an administrator.
func newSite(t *testing.T, bundle svc.Bundle, set ...func(*adminpage.Options)) *site {
	t.Helper()
	return newSiteWith(t, svc.Config{}, bundle, set...)
}

func newSiteWith(t *testing.T, config svc.Config, bundle svc.Bundle, set ...func(*adminpage.Options)) *site {
	t.Helper()
	config.Store, config.Events.Keep = memstore.New(), true
	service := must(svc.New(config))
	t.Cleanup(func() { _ = service.Close() })
	admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	bundle.Users = append(bundle.Users, svc.User{ID: admin.ID})
	for _, policy := range []string{svc.PolicyIAMAdmin, svc.PolicyTemplateAdmin} {
		bundle.Attachments = append(bundle.Attachments, svc.Attachment{
			PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: admin.ID}})
	}
	if err := service.Access.Apply(t.Context(), svc.Host, bundle); err != nil {
		t.Fatal(err)
	}
	key := must(service.Keys.Issue(t.Context(), svc.Host, admin, svc.NewAPIKey{}))
	options := adminpage.Options{}
	for _, s := range set {
		s(&options)
	}
	page := adminpage.New(service, options)
	server := httptest.NewServer(page.Ahead(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	jar := must(cookiejar.New(nil))
	prefix := options.Prefix
	if prefix == "" {
		prefix = adminpage.DefaultPrefix
	}
	return &site{t, service, server.URL + strings.TrimRight(prefix, "/") + "/",
		&http.Client{Jar: jar}, string(key.Key)}
}

// answer is an answer of the pages.
type answer struct {
	*http.Response
	body string
}

// get asks for an address below the prefix, and follows redirects.
func (s *site) get(address string) answer {
	s.t.Helper()
	return s.read(s.client.Get(s.url + address))
}

// post sends a form to an address below the prefix.
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

// signIn signs the administrator in.
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
