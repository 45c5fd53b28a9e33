package main_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// newService returns a service that accepts the bearer "s-olivia".
func newService() *svc.Service {
	service, err := svc.New(svc.Config{
		Store:         memstore.New(),
		Authenticator: svc.AuthenticatorFunc(sessions{"s-olivia": {"olivia", []string{"owner"}}}.authenticate),
		Keys:          svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("from the host's vault")}}},
	})
	if err != nil {
		panic(err)
	}
	return service
}

// A host mounts the interface in its mux like any handler, under a path of its choice. The mux
// redirects paths with "//" or ".." before it looks for a handler, even without a bearer.
func Example_stripPrefix() {
	api := httpapi.New(newService(), httpapi.Options{})
	mux := http.NewServeMux()
	mux.Handle("/platform/memory/", http.StripPrefix("/platform/memory", api))
	fmt.Println(ask(mux, "s-olivia", "/platform/memory/admin/templates"))
	fmt.Println(ask(mux, "", "/platform/memory/admin/templates"))
	fmt.Println(ask(mux, "", "/platform/memory//admin/templates")) // by the mux
	// Output:
	// 200
	// 401
	// 307
}

// Mount puts the interface in front of the mux: it sees every request under its prefix first,
// whatever the path looks like. No request gets an answer before authentication.
func Example_ahead() {
	api := httpapi.New(newService(), httpapi.Options{Prefix: "/platform/memory"})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	all := api.Mount(mux)
	fmt.Println(ask(all, "s-olivia", "/platform/memory/admin/templates"))
	fmt.Println(ask(all, "", "/platform/memory//admin/templates"))
	fmt.Println(ask(all, "", "/health"))
	// Output:
	// 200
	// 401
	// 204
}

// The host's own code needs no bearer and no HTTP: it passes svc.Host.
func Example_host() {
	ctx, service := context.Background(), newService()
	laptop := "olivia's laptop"
	issued, err := service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "olivia"}, svc.NewAPIKey{Description: &laptop})
	if err != nil {
		panic(err)
	}
	who, err := service.Authenticate(ctx, string(issued.Key))
	fmt.Println(who.Kind, who.ID, err)
	fmt.Println(issued.Key) // does not show itself
	// Output:
	// user olivia <nil>
	// ***
}

// sessions maps the tokens of the host's sessions to the users that signed in.
type sessions map[string]session

type session struct {
	user  string
	roles []string
}

// actions are the meaning of the host's roles.
var actions = map[string][]string{
	"owner":   {"iam:*", "template:*"},
	"curator": {"template:admin"},
}

// authenticate returns the user of a session, and vouches for the actions of that user's roles in this request.
func (s sessions) authenticate(_ context.Context, bearer string) (svc.Principal, error) {
	found, there := s[bearer]
	if !there {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	who := svc.Principal{Kind: svc.KindUser, ID: found.user}
	for _, role := range found.roles {
		who.Actions = append(who.Actions, actions[role]...)
	}
	return who, nil
}

// A host with its own sessions and roles needs no users and no policies in svc. Its Authenticator
// accepts the sessions and vouches for actions.
func Example_sessions() {
	signedIn := sessions{
		"s-olivia": {user: "olivia", roles: []string{"owner"}},
		"s-carl":   {user: "carl", roles: []string{"curator"}},
		"s-vera":   {user: "vera"},
	}
	service, err := svc.New(svc.Config{
		Store:         memstore.New(),
		Authenticator: svc.AuthenticatorFunc(signedIn.authenticate),
		Keys:          svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("from the host's vault")}}},
	})
	if err != nil {
		panic(err)
	}
	api := httpapi.New(service, httpapi.Options{})
	for _, bearer := range []string{"s-olivia", "s-carl", "s-vera", "s-nobody"} {
		fmt.Printf("%-8s templates %d, keys of carl %d, own keys %d\n", bearer,
			ask(api, bearer, "/ext/svc/admin/templates"),
			ask(api, bearer, "/ext/svc/users/carl/api-keys"),
			ask(api, bearer, "/ext/svc/me/api-keys"))
	}
	// Output:
	// s-olivia templates 200, keys of carl 200, own keys 200
	// s-carl   templates 200, keys of carl 403, own keys 200
	// s-vera   templates 403, keys of carl 403, own keys 200
	// s-nobody templates 401, keys of carl 401, own keys 401
}

// ask returns the status of the answer to a GET.
func ask(handler http.Handler, bearer, path string) int {
	request := httptest.NewRequest("GET", path, nil)
	request.Header.Set("Authorization", "Bearer "+bearer)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer.Code
}

// A file system can be a source: a directory of the host, or one embedded in its binary.
func Example_files() {
	house := fstest.MapFS{
		"templates.json": {Data: []byte(`{"templates": [{"id": "notes", "name": "Notes", "manifest_file": "m/notes.json"}]}`)},
		"m/notes.json":   {Data: []byte(`{"version": "1.0.0", "recall": {"weight": 0.35}}`)},
	}
	market, err := marketplace.New(marketplace.Config{Files: map[string]fs.FS{"house": house}})
	if err != nil {
		panic(err)
	}
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Sources: svc.SourceConfig{Marketplace: market},
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("from the host's vault")}}},
	})
	if err != nil {
		panic(err)
	}
	ctx, name := context.Background(), "house"
	if _, err := service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: "fs://house", Alias: &name}); err != nil {
		panic(err)
	}
	template, err := service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "notes", SourceName: name})
	fmt.Println(template.ID, string(template.Manifest), err)
	// Output: notes {"version":"1.0.0","recall":{"weight":0.35}} <nil>
}
