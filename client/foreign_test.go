package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/internal/expect"
)

func says(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// three calls: one object, a list, nothing.
func three(t *testing.T, c *client.Client) map[string]error {
	_, one := c.Templates.Create(t.Context(), svc.NewTemplate{ID: "a"})
	_, list := all(c.Sources.List(t.Context()))
	return map[string]error{"object": one, "list": list, "nothing": c.Templates.Delete(t.Context(), "a")}
}

// What is no answer of the interface: a code by its status, and never a success.
func TestForeignAnswers(t *testing.T) {
	for line := range strings.Lines(string(must(os.ReadFile("testdata/foreign.txt")))) {
		words := append(strings.SplitN(strings.TrimSpace(line), " ", 4), "")
		if words[0] == "#" {
			continue
		}
		code, status, kind, body := svc.Code(words[0]), must(strconv.Atoi(words[1])), strings.Trim(words[2], "-"), words[3]
		t.Run(line, func(t *testing.T) {
			for call, err := range three(t, dial(t, says(status, kind, body))) {
				if call == "list" && kind == "application/json" && status == 200 && strings.HasPrefix(body, "[") {
					continue // is one
				}
				expect.Holds(t, svc.ErrorCode(err) == code, call, err)
				answered, found := errors.AsType[*client.StatusError](err)
				expect.Holds(t, found && answered.Status == status && !answered.Problem, call, answered)
				expect.Holds(t, strings.HasSuffix(answered.Error(), answered.Excerpt) && !strings.Contains(err.Error(), "Qt0fSoPw"), call, answered)
				expect.Holds(t, strings.Contains(err.Error(), "redirects") == (status/100 == 3), call, err)
			}
		})
	}
}

// An answer whose JSON is cut off breaks off, even when its length is right.
func TestAnswerIsCutOff(t *testing.T) {
	for _, body := range []string{`{"id":`, `{"id":"a"`} {
		_, err := dial(t, says(200, "application/json", body)).Templates.Read(t.Context(), "a")
		is.New(t).Equal(refused(err), refusal{Code: svc.CodeUnavailable, Message: "the server's answer broke off"})
		is.New(t).True(errors.Is(err, io.ErrUnexpectedEOF))
	}
	_, list := all(dial(t, says(200, "application/json", `[{"name":"a"},`)).Sources.List(t.Context()))
	problem := dial(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		says(404, "application/problem+json", `{"code":`)(w, r)
	}).Templates.Delete(t.Context(), "a")
	for _, err := range []error{list, problem} {
		is.New(t).Equal(refused(err), refusal{Code: svc.CodeUnavailable, Message: "the server's answer broke off"})
	}
}

// An object or a list where nothing is expected, the other way round, and a key without its secret.
func TestNoContent(t *testing.T) {
	is := is.New(t)
	is.Equal(svc.ErrorCode(errorOf(dial(t, says(201, "application/json", `{"id":"k"}`)).Keys.Issue(t.Context(), svc.Me, svc.NewAPIKey{}))), svc.CodeInternal)
	is.NoErr(dial(t, says(204, "", "")).Templates.Delete(t.Context(), "a"))
	is.Equal(svc.ErrorCode(errorOf(dial(t, says(204, "", "")).Templates.Read(t.Context(), "a"))), svc.CodeInternal)
	is.Equal(svc.ErrorCode(errorOf(all(dial(t, says(204, "", "")).Templates.List(t.Context(), svc.TemplateQuery{})))), svc.CodeInternal)
}

// An answer may gain keys, and its type parameters.
func TestNewerServer(t *testing.T) {
	is := is.New(t)
	newer := says(200, "application/json; charset=utf-8", `{"has_update":false,"current_revision":null,"new":[1],"source_name":null}`+"\n")
	got := must(dial(t, newer).Templates.CheckUpdate(t.Context(), "a"))
	is.Equal(got, svc.UpdateCheck{})
	_, err := dial(t, says(200, "application/json", `{"current_revision":null}`)).Templates.CheckUpdate(t.Context(), "a")
	is.Equal(svc.ErrorCode(err), svc.CodeInternal)
	newer = says(410, "application/problem+json; charset=utf-8", `{"code":"gone_for_good","detail":"It is gone..","new":"`+strings.Repeat("long", 10_000)+`"}`)
	_, err = dial(t, newer).Templates.Read(t.Context(), "a")
	is.Equal(refused(err), refusal{Code: "gone_for_good", Message: "It is gone."})
}

// An error shows only a short, printable part of a foreign answer.
func TestExcerpts(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"long":      strings.Repeat("<p>€</p>", 1<<20),
		"control":   "\x1b[2J\r\n\x00\u202e\xff" + strings.Repeat("\x07", 500),
		"empty":     "",
		"at limits": strings.Repeat("x", 4096),
	} {
		for _, kind := range []string{"text/html", "application/problem+json", "application/json"} {
			foreign := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", strings.Repeat("x", 5000))
				says(500, kind, body)(w, r)
			}
			for call, err := range three(t, dial(t, foreign)) {
				text := fmt.Sprintf("%v %+v %#v", err, err, err)
				unprintable := strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
				expect.Holds(t, len(err.Error()) <= 1500 && !unprintable, name, call, text)
			}
		}
	}
}

// So it is with what a transport says, which may repeat what it got.
func TestErrorsOfTheTransport(t *testing.T) {
	is := is.New(t)
	for _, body := range []string{strings.Repeat("€", 1000), token} {
		own := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("malformed answer %q: %w", body, io.ErrUnexpectedEOF)
		})}
		err := must(client.New(client.Config{BaseURL: "http://svc.example", Token: token, HTTPClient: own})).Templates.Delete(t.Context(), "a")
		is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
		is.True(len(err.Error()) < 1500 && strings.Contains(err.Error(), "malformed answer"))
		is.True(!strings.Contains(err.Error(), token))
		is.True(!strings.Contains(err.Error(), "svc.example")) // the address may hold a key, by mistake
	}
}

// No redirect is followed: not to another server, not to another path, not by a read, nor after a change.
func TestRedirectsAreRefused(t *testing.T) {
	asked := make(chan string, 100)
	elsewhere := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{elsewhere.URL + "/ext/svc/", "/elsewhere"} {
			var requests int
			c := dial(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				http.Redirect(w, r, to, status)
			})
			for _, err := range three(t, c) {
				message := "the server redirects, but the client follows no redirect: check the base URL"
				is.New(t).Equal(refused(err), refusal{Code: svc.CodeInternal, Message: message})
			}
			expect.Holds(t, requests == 3, status, to, requests)
		}
	}
	expect.Holds(t, len(asked) == 0)
}

// The host's own client is used, not changed.
func TestHTTPClientOfTheHost(t *testing.T) {
	is := is.New(t)
	var sent []string
	own := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get("User-Agent")+" "+r.URL.String())
		return nil, context.Canceled
	})}
	c := must(client.New(client.Config{BaseURL: "https://svc.example/ext/svc", Token: token, HTTPClient: own, UserAgent: "mine/1.0 (x)"}))
	is.True(c.Templates.Delete(t.Context(), "ü") != nil)
	is.True(own.CheckRedirect == nil)
	is.Equal(sent, []string{"mine/1.0 (x) https://svc.example/ext/svc/admin/templates/%C3%BC"})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Decisions that do not fit the questions, and bundles that are none.
func TestAnswersThatDoNotFit(t *testing.T) {
	is := is.New(t)
	_, err := dial(t, says(200, "application/json", `{"decisions": []}`)).Policies.Decide(t.Context(), question)
	is.Equal(refused(err).Code, svc.CodeInternal)
	for _, body := range []string{`null`, `[]`, `{"user": []}`, `{"users": [{"id": "a"}`, `{} {}`} {
		_, err = dial(t, says(200, "application/json", body)).Access.Export(t.Context())
		is.True(svc.ErrorCode(err) == svc.CodeInternal || svc.ErrorCode(err) == svc.CodeUnavailable)
	}
}
