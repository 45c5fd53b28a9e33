package marketplace_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// astray are redirects that the client must not follow, by their fault. TestSpellings has the
// hosts.
var astray = map[string][]string{
	"plain http": {"http://one.example/x", "HTTP://one.example/x", "http://two.example/", "http://one.example:443/x",
		"http://1.1.1.1/"},
	"private": {"https://10.0.0.1/", "https://169.254.169.254/latest/meta-data/", "https://[::1]/", "https://[fd00::1]/",
		"https://localhost/", "https://LOCALHOST.:8443/"},
	"plain and private": {"http://127.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]:6379/", "http://localhost:8080/"},
	"scheme-relative": {"//127.0.0.1/", "//localhost/x", "//[::ffff:7f00:1]/", "//2130706433/", "//user@one.example/",
		"//one.example:0/"},
	"file":        {"file:///etc/passwd", "file://one.example/etc/passwd", "FILE:/etc/passwd", "file:etc/passwd"},
	"file system": {"fs://shelf/templates.json", "fs://one.example/", "fs:shelf", "FS://shelf"},
	"other protocols": {"gopher://one.example:70/_x", "ftp://one.example/x", "dict://one.example:11211/stat", "ldap://one.example/",
		"ws://one.example/", "wss://one.example/", "telnet://one.example", "tftp://one.example/x"},
	"no protocol at all": {"data:application/json,{}", "data:,{}", "javascript:alert(1)", "about:blank", "mailto:a@one.example",
		"blob:https://one.example/x", "view-source:https://one.example/"},
	"user names": {"https://user@one.example/x", "https://user:hunter2@one.example/x", "https://user:hunter2@127.0.0.1/",
		"https://:@one.example/", "https://@one.example/", "https://one.example@127.0.0.1/", "https://one.example%40127.0.0.1/"},
	"encoded line ends": {"/x%0d%0aX-Injected:%20y", "/%0a", "/x?y=%0D%0A", "https://one.example/%0d%0a%0d%0aGET%20/%20HTTP/1.1",
		"?%0a", "/%00", "/a%7f", "/%09x", "https://one.example%0d%0a/"},
	"backslashes":              {`https:\\127.0.0.1/`, `https://one.example\@127.0.0.1/`, `https:/\127.0.0.1/`},
	"no host":                  {"https:", "https://", "https:///x", "https:/x", "https:x", "https://:443/"},
	"bad ports":                {"https://one.example:0/", "https://one.example:65536/", "https://one.example:x/", "https://one.example:-1/"},
	"ports of other protocols": {"https://one.example:22/", "//two.example:25/x", "https://1.1.1.1:2049/", "https://one.example:6667/"},
	"malformed": {"https://%zz/", "https://user:hunter2@%zz/", "https://user:hunter2@one.example:x/",
		"https://one example/?hunter2", "https://[::1/", "https://one.example/%", "https://one example/", "https://[::1%25lo]/",
		":", "%"},
}

// The client checks each hop, from the first to the last.
func TestRedirectsAstray(t *testing.T) {
	var hops int // good ones, before the bad one
	var location string
	hop := func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if n == hops {
			redirectTo(location, 302)(w, r)
			return
		}
		redirectTo("https://"+[]string{"two.example", "one.example"}[n%2]+"/templates.json?n="+strconv.Itoa(n+1), 307)(w, r)
	}
	client, asked := newWeb(t, map[string]http.HandlerFunc{"one.example/templates.json": hop, "two.example/templates.json": hop})
	from := upstream("https://one.example")
	from.Token = "s3cr3t"
	for what, locations := range astray {
		t.Run(what, func(t *testing.T) {
			for _, location = range locations {
				for _, hops = range []int{0, 1, 4} {
					*asked = nil
					_, err := client.Template(t.Context(), from, "a")
					wantError(t, err, svc.CodeSourceFailed, "its catalogue redirects to a")
					if len(*asked) != hops+1 {
						t.Errorf("%s, after %d others: asked for %q", location, hops, *asked)
					}
					if strings.Contains(err.Error(), "hunter2") {
						t.Errorf("%s: the error shows a password: %v", location, err)
					}
				}
			}
		})
	}
}

// These redirects look as if they led elsewhere. The client follows them.
func TestRedirectsThatStay(t *testing.T) {
	for location, path := range map[string]string{
		"///127.0.0.1/x":           "///127.0.0.1/x",
		"/\\127.0.0.1/x":           "/%5C127.0.0.1/x",
		"/@127.0.0.1/":             "/@127.0.0.1/",
		"/https://127.0.0.1/":      "/https://127.0.0.1/",
		"?https://127.0.0.1/":      "/templates.json?https://127.0.0.1/",
		"/x%2f..%2fy":              "/x%2f..%2fy",
		"../../../x":               "/x",
		"https:127.example":        "", // refused: it has no host
		"//one.example/x":          "/x",
		"HTTPS://ONE.example:443/": "/",
		"/x#//127.0.0.1":           "/x",
		"/x%250d%250a":             "/x%250d%250a",
	} {
		client, asked := newWeb(t, map[string]http.HandlerFunc{"one.example/templates.json": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "" {
				redirectTo(location, 302)(w, r)
			}
		}})
		_, err := client.Template(t.Context(), upstream("https://one.example"), "a")
		wantError(t, err, svc.CodeSourceFailed)
		want := []string{"one.example/templates.json"}
		if path != "" {
			want = append(want, "one.example"+path)
		}
		if strings.Join(*asked, " ") != strings.Join(want, " ") {
			t.Errorf("%s: asked for %q, want %q", location, *asked, want)
		}
	}
}

// A redirect may lead to an allowed origin, but to no other port or scheme of its host.
func TestRedirectsToWhatIsAllowed(t *testing.T) {
	second := httptest.NewServer(answer(oneEntry))
	defer second.Close()
	third := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer third.Close()
	for location, want := range map[string]string{
		second.URL: "",
		third.URL:  "is plain http",
		strings.Replace(second.URL, "http", "https", 1):          "is not public",
		strings.Replace(second.URL, "127.0.0.1", "localhost", 1): "is plain http",
		strings.Replace(second.URL, "127.0.0.1", "127.1", 1):     "four decimal numbers",
	} {
		first := httptest.NewServer(redirectTo(location, 302))
		defer first.Close()
		client := newClient(t, marketplace.Config{AllowOrigins: []string{first.URL, second.URL}})
		_, err := client.Template(t.Context(), upstream(first.URL), "a")
		if want != "" {
			wantError(t, err, svc.CodeSourceFailed, "redirects to an address that is refused", want)
		} else if err != nil {
			t.Error(err)
		}
	}
}
