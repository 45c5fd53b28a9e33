package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// A host puts the interface in front of its own mux. An issued key is a bearer.
func Example() {
	service, key := exampleService()
	defer service.Close()
	mux := http.NewServeMux() // the host's own routes
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the host's own page")
	})
	api := httpapi.New(service, httpapi.Options{}) // at /ext/svc
	server := httptest.NewServer(api.Mount(mux))   // http.ListenAndServe in a program
	defer server.Close()

	fmt.Println(exampleGet(server.URL+"/", ""))
	fmt.Println(exampleGet(server.URL+"/ext/svc/me", key))
	fmt.Println(exampleGet(server.URL+"/ext/svc/nothing", key)[:3])
	fmt.Println(exampleGet(server.URL+"/ext/svc/me", "wrong")[:3])
	// Output:
	// 200 the host's own page
	// 200 {"id":"alice","display_name":"Alice","email":null,"is_active":true,"channels":[]}
	// 404
	// 401
}

// Require authenticates requests to a route of the host, and decides whether the caller may do the
// action on the bank of the request.
func ExampleHandler_Require() {
	service, key := exampleService()
	defer service.Close()
	recall := func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		d, _ := httpapi.DecisionFrom(r.Context())
		_, _ = fmt.Fprintln(w, who.ID, "recalls:", d.Allowed())
	}
	api, mux := httpapi.New(service, httpapi.Options{}), http.NewServeMux()
	may := api.Require("bank:recall", func(r *http.Request) string { return r.PathValue("bank") })
	mux.Handle("GET /recall/{bank}", may(http.HandlerFunc(recall)))
	server := httptest.NewServer(api.Mount(mux))
	defer server.Close()

	fmt.Println(exampleGet(server.URL+"/recall/notes", key))
	fmt.Println(exampleGet(server.URL+"/recall/payroll", key)[:3])
	fmt.Println(exampleGet(server.URL+"/recall/notes", "wrong")[:3])
	// Output:
	// 200 alice recalls: true
	// 403
	// 401
}

// Protect authenticates alone: this route decides for itself, about a bank in a channel.
func ExampleHandler_Protect() {
	service, key := exampleService()
	defer service.Close()
	recall := func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		at := svc.Context{Provider: "slack", Channel: "#ops"}
		d, err := service.Decide(r.Context(), who, "bank:recall", r.FormValue("bank"), at)
		if err == nil && !d.Allowed() {
			err = &svc.Error{Code: svc.CodeForbidden, Message: "you may not recall this bank"}
		}
		if err != nil { // never an allow
			httpapi.WriteError(w, r, err)
			return
		}
		_, _ = io.WriteString(w, "recalls")
	}
	api, mux := httpapi.New(service, httpapi.Options{}), http.NewServeMux()
	mux.Handle("GET /recall", api.Protect(http.HandlerFunc(recall)))
	server := httptest.NewServer(api.Mount(mux))
	defer server.Close()

	fmt.Println(exampleGet(server.URL+"/recall?bank=notes", key))
	fmt.Println(exampleGet(server.URL+"/recall?bank=payroll", key)[:3])
	// Output:
	// 200 recalls
	// 403
}

// A test of a handler gives it a caller without a server and without a key.
func ExampleWithPrincipal() {
	whoami := func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		_, _ = io.WriteString(w, who.ID)
	}
	r := httptest.NewRequest("GET", "/whoami", nil)
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"}
	answer := httptest.NewRecorder()
	whoami(answer, r.WithContext(httpapi.WithPrincipal(r.Context(), alice)))
	fmt.Println(answer.Body)
	// Output: alice
}

// exampleService returns a Service and the key of its one user, who may recall the bank "notes".
func exampleService() (*svc.Service, svc.Secret) {
	service := must(svc.New(svc.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)}))
	bundle := must(svc.ParseBundle([]byte(`{
		"users": [{"id": "alice", "display_name": "Alice"}],
		"policies": [{"id": "notes", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:recall"], "banks": ["notes"]}]}}],
		"attachments": [{"policy_id": "notes", "principal_type": "user", "principal_id": "alice"}]}`)))
	ctx := context.Background()
	if err := service.Access.Apply(ctx, svc.Host, bundle); err != nil {
		log.Fatal(err)
	}
	return service, must(service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})).Key
}

// exampleGet returns the status and the body of the answer to a GET.
func exampleGet(url string, bearer svc.Secret) string {
	request := must(http.NewRequest("GET", url, nil))
	request.Header.Set("Authorization", "Bearer "+string(bearer))
	answer := must(http.DefaultClient.Do(request))
	defer answer.Body.Close()
	return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(must(io.ReadAll(answer.Body)))))
}
