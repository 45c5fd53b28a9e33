package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/httpapi"
)

// BenchmarkHTTP compares requests with a bare net/http handler that sends the same bytes with the
// same headers from memory. It measures the processor time of client and server, on one connection
// that stays open. The caller has a cached key.
func BenchmarkHTTP(b *testing.B) {
	w := newWorld(b, sqliteEngine, small)
	key := addReader(b, w)
	caching := config(w.store)
	caching.Memory.Templates = 0
	cached := get(svc.New(caching))
	b.Cleanup(func() { _ = cached.Close() })
	decide := `{"queries":[{"user_id":"` + userID(1) + `","action":"bank:recall","bank":"bank-1"}]}`
	for _, c := range []struct {
		name    string
		service *svc.Service
		path    string
		body    string // of a POST; "": the request is a GET
	}{
		{"protect", w.service, "/protected/route", ""},
		{"template-cached", cached, httpapi.DefaultPrefix + "/admin/templates/" + templateID(1), ""},
		{"template-from-store", w.service, httpapi.DefaultPrefix + "/admin/templates/" + templateID(1), ""},
		{"templates-1000-cached", cached, httpapi.DefaultPrefix + "/admin/templates", ""},
		{"own-keys", w.service, httpapi.DefaultPrefix + "/me/api-keys", ""},
		{"decide", w.service, httpapi.DefaultPrefix + "/decide", decide},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := httptest.NewServer(hostOf(c.service))
			defer server.Close()
			var sides []measure.Side
			for _, path := range []string{bare + c.path, c.path} {
				a := newAsker(server, path, key, c.body)
				defer a.Close()
				sides = append(sides, measure.Side{Call: a.ask, Clock: measure.Processor})
			}
			sides[0].Name, sides[1].Name = "bare", "service"
			compare(b, sides...)
		})
	}
}

// addReader adds a user who may read everything, and returns a key of theirs.
func addReader(b *testing.B, w *world) string {
	to := svc.GrantedTo{Type: svc.GrantedToUser, ID: "reader"}
	err := w.service.Access.Apply(b.Context(), svc.Host, svc.Bundle{
		Users: []svc.User{{ID: to.ID}}, Attachments: []svc.Attachment{{PolicyID: "reads", Principal: to}},
		Policies: []svc.Policy{{ID: "reads", Document: json.RawMessage(`{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["template:admin","iam:users:read"],"banks":["*"]}]}`)}},
	})
	issued, failed := w.service.Keys.Issue(b.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: to.ID}, svc.NewAPIKey{})
	check(errors.Join(err, failed))
	return string(issued.Key)
}

// bare begins the paths of bare handlers.
const bare = "/bare"

// hostOf returns one handler for both sides.
func hostOf(service *svc.Service) http.Handler {
	api, mux := httpapi.New(service, httpapi.Options{}), http.NewServeMux()
	mux.Handle("/protected/route", api.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"of":"the host"}`)
	})))
	mux.Handle(httpapi.DefaultPrefix+"/", api)
	var answer *httptest.ResponseRecorder // to the only request
	mux.HandleFunc(bare+"/", func(w http.ResponseWriter, r *http.Request) {
		if answer == nil {
			answer = httptest.NewRecorder()
			http.StripPrefix(bare, mux).ServeHTTP(answer, r)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
	return mux
}

var clients = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// send sends a request over a connection.
func send(ctx context.Context, method, url, bearer, body string) error {
	r := get(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header.Set("Content-Type", "application/json")
	answer, err := clients.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close(), equal(answer.StatusCode, http.StatusOK))
}

// asker repeats one request on a connection that it keeps.
type asker struct {
	net.Conn
	request, answer []byte // all answers have the same length
	buffer          []byte
}

func newAsker(server *httptest.Server, path, key, body string) *asker {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r := get(http.NewRequestWithContext(context.Background(), method, server.URL+path, strings.NewReader(body)))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	a := &asker{Conn: get(net.Dial("tcp", server.Listener.Addr().String()))}
	var text, first bytes.Buffer
	check(r.Write(&text))
	a.request = text.Bytes()
	for range 3 { // until the Service has read what it caches
		first.Reset()
		get(a.Write(a.request))
		answer := get(http.ReadResponse(bufio.NewReader(io.TeeReader(a.Conn, &first)), nil))
		get(io.Copy(io.Discard, answer.Body))
		check(equal(answer.StatusCode, http.StatusOK))
	}
	a.answer, a.buffer = first.Bytes(), make([]byte, first.Len())
	return a
}

func (a *asker) ask() error {
	if _, err := a.Write(a.request); err != nil {
		return err
	}
	if _, err := io.ReadFull(a, a.buffer); err != nil {
		return err
	}
	status, _, _ := bytes.Cut(a.answer, []byte("\n"))
	if !bytes.HasPrefix(a.buffer, status) {
		return fmt.Errorf("the answer begins with %.20q", a.buffer)
	}
	return nil
}
