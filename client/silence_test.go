package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// body is that of an answer, which ends with its request.
type body struct {
	r    *http.Request
	said io.Reader
	ends bool // when all is said; else nothing more comes
}

func (b body) Read(p []byte) (int, error) {
	if err := b.r.Context().Err(); err != nil {
		return 0, err
	}
	n, err := b.said.Read(p)
	if err == nil || b.ends {
		return n, err
	}
	<-b.r.Context().Done()
	return 0, b.r.Context().Err()
}

func (b body) Close() error { return nil }

// answers is a server that answers each request so.
func answers(timeout time.Duration, answer func(r *http.Request) (io.ReadCloser, error)) *client.Client {
	return must(client.New(client.Config{BaseURL: "http://svc.example", Timeout: timeout, HTTPClient: &http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := answer(r)
			if err != nil {
				return nil, err
			}
			a := status(200, "Content-Type", "application/json")
			a.Body = body
			return &a, nil
		}),
	}}))
}

// A server that is silent is waited for as long as Config says, and no longer, before its answer and within. It is not asked again.
func TestSilence(t *testing.T) {
	for said, message := range map[string]string{"": "the server has not answered in time", `[{"name":"a"},`: "the server's answer broke off"} {
		for config, limit := range map[time.Duration]time.Duration{0: client.DefaultTimeout, 3 * time.Second: 3 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				began, requests := time.Now(), 0
				c := answers(config, func(r *http.Request) (io.ReadCloser, error) {
					if requests++; said != "" {
						return body{r, strings.NewReader(said), false}, nil
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				_, err := all(c.Sources.List(t.Context()))
				is.Equal(refused(err).Message, message)
				is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
				is.True(strings.Contains(err.Error(), "the server was silent for too long"))
				is.Equal(time.Since(began), limit)
				is.Equal(requests, 1)
			})
		}
	}
}

// A server may be given all the time there is.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		c := answers(-1, func(r *http.Request) (io.ReadCloser, error) {
			select {
			case <-time.After(24 * time.Hour):
				return body{r, strings.NewReader("[]"), true}, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		list, err := all(c.Sources.List(t.Context()))
		is.NoErr(err)
		is.Equal(len(list), 0)
	})
}

// Who takes long over the rows of a list is not taken for a silent server.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		rows := strings.Repeat(`{"name":"`+strings.Repeat("x", 1000)+`"},`, 100) + `{"name":"last"}`
		c := answers(time.Second, func(r *http.Request) (io.ReadCloser, error) {
			return body{r, strings.NewReader("[" + rows + "]"), true}, nil
		})
		n := 0
		for _, err := range c.Sources.List(t.Context()) {
			is.NoErr(err)
			n++
			time.Sleep(time.Hour)
		}
		is.Equal(n, 101)
	})
}
