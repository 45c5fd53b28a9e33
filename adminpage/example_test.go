package adminpage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

func Example() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	mux := http.NewServeMux()
	api := httpapi.New(service, httpapi.Options{})      // at /ext/svc
	page := adminpage.New(service, adminpage.Options{}) // at /ext/svc-admin
	handler := page.Mount(api.Mount(mux))

	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/ext/svc-admin/", nil))
	fmt.Println(answer.Code)
	// Output: 401
}

// A host with sessions of its own signs its operators in.
func ExampleOptions_bearer() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	page := adminpage.New(service, adminpage.Options{
		Bearer: func(r *http.Request) string {
			cookie, err := r.Cookie("session")
			if err != nil {
				return "" // the page's own sign-in
			}
			return cookie.Value // Config.Authenticator accepts it
		},
	})
	_ = page.Mount(http.NewServeMux())
}
