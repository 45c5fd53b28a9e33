package bench_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// loopback is a source on the loopback interface: a server of one file, with an ETag.
type loopback struct {
	*httptest.Server
	requests, sent atomic.Int64 // sent: those answered with the file

	mu   sync.RWMutex
	body []byte
	tag  string
}

func newLoopback(tb testing.TB, body []byte) *loopback {
	l := &loopback{body: body, tag: `"0"`}
	l.Server = httptest.NewServer(l)
	tb.Cleanup(l.Close)
	return l
}

func (l *loopback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.requests.Add(1)
	l.mu.RLock()
	defer l.mu.RUnlock()
	w.Header().Set("ETag", l.tag)
	switch {
	case r.URL.Path != "/acme/templates.json":
		w.WriteHeader(http.StatusNotFound)
	case r.Header.Get("If-None-Match") == l.tag:
		w.WriteHeader(http.StatusNotModified)
	default:
		l.sent.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(l.body)
	}
}

// change lets edit change the file while no request reads it.
func (l *loopback) change(tag string, edit func(body []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(l.body)
	l.tag = tag
}

// confirmed checks that a call makes one request and gets 304.
func (l *loopback) confirmed(call func() error) error {
	requests, sent := l.requests.Load(), l.sent.Load()
	err := call()
	if requests, sent = l.requests.Load()-requests, l.sent.Load()-sent; requests != 1 || sent != 0 {
		err = errors.Join(err, fmt.Errorf("%d requests, to which the file was sent %d times", requests, sent))
	}
	return err
}

// url is the URL of the source.
func (l *loopback) url() string { return l.Server.URL + "/acme" }

// market returns a client that may ask the source.
func (l *loopback) market() (*marketplace.Client, error) {
	return marketplace.New(marketplace.Config{AllowOrigins: []string{l.Server.URL}})
}

// plain is a plain client of the source.
type plain struct {
	http.Client
	from *loopback
	tag  string // of the last answer
	body []byte
}

// plain returns a client that has the file.
func (l *loopback) plain(tb testing.TB) *plain {
	tb.Helper()
	p := &plain{Client: http.Client{Transport: &http.Transport{}}, from: l}
	if changed, err := p.ask(); err != nil || !changed {
		tb.Fatal("the first answer: ", changed, err)
	}
	tb.Cleanup(p.CloseIdleConnections)
	return p
}

// ask requests the file unless it is unchanged.
func (p *plain) ask() (changed bool, err error) {
	request, err := http.NewRequest(http.MethodGet, p.from.url()+"/templates.json", nil)
	if err != nil {
		return false, err
	}
	if p.tag != "" {
		request.Header.Set("If-None-Match", p.tag)
	}
	answer, err := p.Do(request)
	if err != nil {
		return false, err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return false, err
	}
	switch answer.StatusCode {
	case http.StatusNotModified:
		return false, nil
	case http.StatusOK:
		p.tag, p.body = answer.Header.Get("ETag"), body
		return true, nil
	}
	return false, fmt.Errorf("status %d", answer.StatusCode)
}

// confirm requests a file that has not changed.
func (p *plain) confirm() error {
	changed, err := p.ask()
	if changed {
		err = errors.New("the file has changed")
	}
	return err
}

// from gives the site a Service over the same store that installs from a source, and registers the
// source as "acme".
func (s *site) from(tb testing.TB, l *loopback) svc.Source {
	tb.Helper()
	err := s.service.Close()
	market, failed := l.market()
	if err := errors.Join(err, failed); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(market.CloseIdleConnections)
	c := config(s.store)
	c.Marketplace = market
	if s.service, err = svc.New(c); err != nil {
		tb.Fatal(err)
	}
	source, err := s.service.Sources.Register(tb.Context(), svc.Host, svc.NewSource{URL: l.url()})
	if err != nil {
		tb.Fatal(err)
	}
	return source
}
