package contract

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// transport checks every exchange that passes through it.
type transport struct {
	t        testing.TB
	contract *Contract
	next     http.RoundTripper
}

// Transport returns a transport that fails the test at every exchange that breaks the contract of
// the interface.
func Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return ours().Transport(t, next)
}

// Transport is the package's Transport for one Contract.
func (c *Contract) Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return &transport{t: t, contract: c, next: next}
}

// RoundTrip reads each answer to its end. It passes on an answer that is cut off: the client then
// sees the error.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.t.Helper()
	r, sent, err := withBody(r)
	if err != nil {
		return nil, err
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), broken{err}))
		return response, nil
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err := t.contract.Check(Exchange{
		Method: r.Method, Target: target(r), RequestHeader: r.Header, RequestBody: sent,
		Status: response.StatusCode, Header: response.Header, Body: body,
	}); err != nil {
		t.t.Error(err)
	}
	return response, nil
}

// CloseIdleConnections implements the method that [http.Client] calls.
func (t *transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// withBody returns a request like r and the content of its body.
func withBody(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil {
		return r, nil, nil
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, nil, err
	}
	again := r.WithContext(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	return again, body, nil
}

// target returns the request's target as sent.
func target(r *http.Request) string {
	return strings.TrimPrefix(r.URL.RequestURI(), r.URL.Scheme+"://"+r.URL.Host)
}

// broken is a reader that fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
