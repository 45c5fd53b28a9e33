package main_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

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

// authenticate returns the user of a session, and vouches for the actions of that user's roles in
// this request.
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
