package marketplace_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// A name was public at registration and at the first request. The client checks its address again
// each time it dials.
func TestRebinding(t *testing.T) {
	const public, inside = "93.184.216.34", "10.0.0.1"
	call := func(client *marketplace.Client, t *testing.T) error {
		from := upstream("https://one.example")
		from.Token = "s3cr3t-s3cr3t" // no connection is used again
		_, err := client.Template(t.Context(), from, "a")
		return err
	}
	for name, test := range map[string]struct {
		handlers map[string]http.HandlerFunc
		answers  []string // of DNS, one after the other
		calls    []string // "" good, else what the error says
		asked    int
	}{
		"at the first call": {
			nil, []string{inside, public}, []string{hiddenMessage}, 0,
		},
		"at the next call": {
			map[string]http.HandlerFunc{"one.example/templates.json": answer(oneEntry)},
			[]string{public, inside}, []string{"", hiddenMessage, hiddenMessage}, 1,
		},
		"and back": {
			map[string]http.HandlerFunc{"one.example/templates.json": answer(oneEntry)},
			[]string{public, inside, public}, []string{"", hiddenMessage, ""}, 2,
		},
		"to IPv6": {
			map[string]http.HandlerFunc{"one.example/templates.json": answer(oneEntry)},
			[]string{public, "::1"}, []string{"", "its catalogue "}, 1,
		},
		"between the catalogue and a manifest": {
			map[string]http.HandlerFunc{"one.example/templates.json": answer(fileEntry), "one.example/m.json": answer(`{}`)},
			[]string{public, inside},
			[]string{"entry 0 of the catalogue is bad: its manifest_file is at an address that is not public, and"}, 1,
		},
		"at a redirect to the same name": {
			map[string]http.HandlerFunc{"one.example/templates.json": redirectTo("/list", 302), "one.example/list": answer(oneEntry)},
			[]string{public, inside}, []string{hiddenMessage}, 1,
		},
		"at a redirect to another name": {
			map[string]http.HandlerFunc{"one.example/templates.json": redirectTo("https://two.example/x", 302),
				"two.example/x": answer(oneEntry)},
			[]string{public, inside}, []string{hiddenMessage}, 1,
		},
		"on the way back": {
			map[string]http.HandlerFunc{"one.example/templates.json": redirectTo("https://two.example/x", 302),
				"two.example/x": redirectTo("https://sub.one.example/y", 302), "sub.one.example/y": answer(oneEntry)},
			[]string{public, public, inside}, []string{hiddenMessage}, 2,
		},
		"never": {
			map[string]http.HandlerFunc{"one.example/templates.json": redirectTo("https://two.example/x", 302),
				"two.example/x": answer(oneEntry)},
			[]string{public}, []string{"", ""}, 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server, asked := newServedWeb(t, marketplace.Config{}, test.handlers)
			var answers [][]string
			for _, address := range test.answers {
				answers = append(answers, []string{address})
			}
			client.SetWeb((&names{answers: answers}).resolver(), server)
			for _, want := range test.calls {
				if err := call(client, t); want != "" {
					wantError(t, err, svc.CodeSourceFailed, want)
				} else if err != nil {
					t.Error(err)
				}
			}
			if len(*asked) != test.asked {
				t.Errorf("asked for %q", *asked)
			}
		})
	}
}

// An open connection leads to its admitted address. The client checks the address of the next
// connection.
func TestRebindingOfAKeptConnection(t *testing.T) {
	is := is.New(t)
	client, server, asked := newServedWeb(t, marketplace.Config{},
		map[string]http.HandlerFunc{"one.example/templates.json": answer(oneEntry)})
	client.SetWeb((&names{answers: [][]string{{"93.184.216.34"}, {"127.0.0.1"}}}).resolver(), server)
	from := upstream("https://one.example")
	version(t, client, from)
	version(t, client, from)
	is.Equal(len(*asked), 2)
	client.CloseIdleConnections()
	_, err := client.Template(t.Context(), from, "a")
	wantError(t, err, svc.CodeSourceFailed, hiddenMessage)
	is.Equal(len(*asked), 2)
}

// The address of one name decides nothing for another name, or for another port.
func TestRebindingIsPerDial(t *testing.T) {
	client, admitted := resolving(t, marketplace.Config{}, []string{"93.184.216.34"}, []string{"127.0.0.1"}, []string{"1.1.1.1"},
		[]string{"169.254.169.254"})
	for _, test := range []struct{ url, want string }{
		{"https://one.example", unreachable},
		{"https://one.example:8443", hiddenMessage},
		{"https://two.example", unreachable},
		{"https://one.example", hiddenMessage},
	} {
		_, err := client.Template(t.Context(), upstream(test.url), "a")
		wantError(t, err, svc.CodeSourceFailed, test.want)
	}
	if !slices.Equal(*admitted, []string{"93.184.216.34:443", "1.1.1.1:443"}) {
		t.Errorf("admitted %q", *admitted)
	}
}
