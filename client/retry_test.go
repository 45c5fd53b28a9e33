package client_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/internal/expect"
)

// No change is tried again, and of reads none that failed in another way.
func TestWhatIsNotTriedAgain(t *testing.T) {
	tries := func(call string, fail http.Response) int {
		s := &script{answers: []http.Response{fail}}
		expect.Holds(t, strings.Contains(saysOf(t, s.client(), call), `"Code"`), call)
		return len(s.at)
	}
	for _, change := range []string{
		`Keys.Issue {"Kind":"me"} | {}`, `Keys.Revoke {"Kind":"user","ID":"alice"} | "k"`, `Templates.Patch "a" | {}`, `Templates.Delete "a"`,
		`Templates.Update "a" | {"LocalEdits":"theirs"}`, `Policies.Decide {"Bank":"b"}`, `Policies.Simulate {} | {"Bank":"b"}`,
	} {
		is.New(t).Equal([]int{tries(change, http.Response{}), tries(change, status(503)), tries(change, status(429))}, []int{1, 1, 1})
	}
	said := saysOf(t, (&script{answers: []http.Response{{}}}).client(), `Templates.Delete "a"`)
	is.New(t).True(strings.Contains(said, "the server cannot be reached: try again later"))
	for _, code := range []int{200, 301, 400, 401, 404, 408, 500, 502, 504} {
		is.New(t).Equal(tries(`Templates.Read "a"`, status(code, "Content-Type", "text/html")), 1)
	}
}

// script answers requests one after the other, in a bubble of its own time, and notes when they came.
type script struct {
	answers []http.Response // the last one stands for all others
	began   time.Time
	at      []time.Duration
}

func (s *script) RoundTrip(*http.Request) (*http.Response, error) {
	answer := s.answers[min(len(s.at), len(s.answers)-1)]
	s.at = append(s.at, time.Since(s.began))
	if answer.StatusCode == 0 {
		return nil, errors.New("connection reset")
	}
	if answer.Body == nil {
		answer.Body = http.NoBody
	}
	return &answer, nil
}

func (s *script) client() *client.Client {
	s.began = time.Now()
	return must(client.New(client.Config{BaseURL: "http://svc.example", Token: token, HTTPClient: &http.Client{Transport: s}}))
}

func status(code int, header ...string) http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return http.Response{StatusCode: code, Header: h}
}

func TestRetryAfter(t *testing.T) {
	bubbleStart := "Sat, 01 Jan 2000 00:00:00 GMT"
	for _, c := range []struct {
		header  []string
		atLeast time.Duration // each pause; negative: there is no other try
		asked   time.Duration // as the error says
	}{
		{nil, 0, 0},
		{[]string{"Retry-After", "0"}, 0, 0},
		{[]string{"Retry-After", "7"}, 7 * time.Second, 7 * time.Second},
		{[]string{"Retry-After", "30"}, 30 * time.Second, 30 * time.Second},
		{[]string{"Retry-After", "31"}, -1, 31 * time.Second},
		{[]string{"Retry-After", "86400"}, -1, 24 * time.Hour},
		{[]string{"Retry-After", "99999999999999999999"}, -1, 365 * 24 * time.Hour},
		{[]string{"Retry-After", "9223372037"}, -1, 365 * 24 * time.Hour},
		{[]string{"Retry-After", "-5"}, 0, 0},
		{[]string{"Retry-After", "soon"}, 0, 0},
		{[]string{"Retry-After", "1.5"}, 0, 0},
		{[]string{"Retry-After", "Sun, 06 Nov 1994 08:49:47 GMT", "Date", "Sun, 06 Nov 1994 08:49:37 GMT"}, 10 * time.Second, 10 * time.Second},
		{[]string{"Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT", "Date", "Sun, 06 Nov 1994 08:49:37 GMT"}, 0, 0},
		{[]string{"Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"}, 0, 0},
		{[]string{"Retry-After", "Sun, 06 Nov 2994 08:49:37 GMT", "Date", bubbleStart}, -1, 365 * 24 * time.Hour},
	} {
		for _, code := range []int{503, 429} {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: []http.Response{status(code, c.header...)}}
				_, err := s.client().Templates.Read(t.Context(), "a")
				tries := 4
				if c.atLeast < 0 {
					tries = 1
				}
				expect.Holds(t, len(s.at) == tries, c.header, len(s.at))
				for i := 1; i < len(s.at); i++ {
					drawn := 100 * time.Millisecond << (i - 1)
					pause := s.at[i] - s.at[i-1]
					expect.Holds(t, pause >= c.atLeast && pause <= max(c.atLeast, drawn), c.header, pause, i)
				}
				answer, _ := errors.AsType[*client.StatusError](err)
				expect.Holds(t, answer != nil && answer.RetryAfter == c.asked, c.header, answer)
			})
		}
	}
}

// A read is tried three times more. TestRetryAfter and TestPausesAreDrawn have reads that never succeed.
func TestReadsAreTriedAgain(t *testing.T) {
	for _, fail := range []http.Response{{}, status(503), status(429)} {
		synctest.Test(t, func(t *testing.T) {
			good := func(body string) *script {
				ok := status(200, "Content-Type", "application/json")
				ok.Body = io.NopCloser(strings.NewReader(body))
				return &script{answers: []http.Response{fail, fail, fail, ok}}
			}
			must(good(`{"has_update":false,"current_revision":null}`).client().Templates.CheckUpdate(t.Context(), "a"))
			is.New(t).Equal(len(must(all(good(`[{"name":"a"}]`).client().Sources.List(t.Context())))), 1)
		})
	}
}

// Each pause is random, up to twice as long as the previous one.
func TestPausesAreDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		var longest [4]time.Duration
		for range 200 {
			s := &script{answers: []http.Response{{}}}
			_, _ = s.client().Templates.Read(t.Context(), "a")
			expect.Holds(t, len(s.at) == 4, len(s.at))
			for i := 1; i < len(s.at); i++ {
				pause := s.at[i] - s.at[i-1]
				seen[pause] = true
				longest[i] = max(longest[i], pause)
			}
		}
		for i, most := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
			expect.Holds(t, i == 0 || longest[i] <= most && longest[i] >= most/2, i, longest[i])
		}
		expect.Holds(t, len(seen) >= 500, len(seen))
	})
}

func TestRetriesEndWithTheContext(t *testing.T) {
	later := status(503, "Retry-After", "10")
	for name, c := range map[string]struct {
		end     func(context.Context) (context.Context, context.CancelFunc)
		answer  http.Response
		tries   int
		took    time.Duration
		is      error
		answers int // the status behind the error
	}{
		"it cannot last that long":   {until(5 * time.Second), later, 1, 0, nil, 503},
		"it lasts once":              {until(15 * time.Second), later, 2, 10 * time.Second, nil, 503},
		"cancelled meanwhile":        {cancelled(4 * time.Second), later, 1, 4 * time.Second, context.Canceled, 503},
		"cancelled before":           {cancelled(-1), later, 0, 0, context.Canceled, 0},
		"its time was over":          {until(-1), later, 0, 0, context.DeadlineExceeded, 0},
		"cancelled between attempts": {cancelled(12 * time.Second), later, 2, 12 * time.Second, context.Canceled, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				ctx, end := c.end(t.Context())
				defer end()
				s := &script{answers: []http.Response{c.answer}}
				_, err := s.client().Templates.Read(ctx, "a")
				is.Equal(time.Since(s.began), c.took)
				is.Equal(len(s.at), c.tries)
				is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
				is.True(c.is == nil || errors.Is(err, c.is))
				status, found := errors.AsType[*client.StatusError](err)
				is.Equal(found, c.answers != 0)
				is.True(!found || status.Status == c.answers)
			})
		})
	}
}

func until(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func cancelled(after time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		if after < 0 {
			cancel()
		} else {
			time.AfterFunc(after, cancel)
		}
		return ctx, cancel
	}
}

func TestWhatIsRepeatableIsTriedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var times atomic.Int64
	lost := func(u *setup) { // the answer of the first is lost
		u.wrap = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(w, r)
			if r.Method == "POST" && times.Add(-1) >= 0 {
				panic(http.ErrAbortHandler)
			}
		}
	}
	s, ctx := newSite(t, lost), t.Context()
	for _, issue := range []func(svc.NewAPIKey) (svc.IssuedKey, error){
		func(in svc.NewAPIKey) (svc.IssuedKey, error) { return s.client.Keys.Issue(ctx, svc.Me, in) },
		func(in svc.NewAPIKey) (svc.IssuedKey, error) { return s.client.Keys.Issue(ctx, alice, in) },
	} {
		in := svc.NewAPIKey{Description: new("laptop"), IdempotencyKey: rand.Text()}
		times.Store(2)
		is.Equal(must(issue(in)), must(issue(in)))
		is.Equal(svc.ErrorCode(errorOf(issue(svc.NewAPIKey{IdempotencyKey: in.IdempotencyKey}))), svc.CodeKeyReused)
		is.Equal(svc.ErrorCode(errorOf(issue(svc.NewAPIKey{IdempotencyKey: "a b"}))), svc.CodeInvalid)
		is.Equal(svc.ErrorCode(s.client.Users.Delete(ctx, "alice", "a\nb")), svc.CodeInvalid)
	}
	is.Equal(len(must(all(s.client.Keys.List(ctx, alice, svc.KeyQuery{})))), 1)
	times.Store(1)
	_, err := s.client.Templates.Install(ctx, svc.Install{TemplateID: "none", SourceName: "none", IdempotencyKey: "once"})
	is.Equal(svc.ErrorCode(err), svc.CodeNotFound)
}

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

// answers is a server that answers each request so. A negative timeout is that of the HTTPClient.
func answers(timeout time.Duration, answer func(r *http.Request) (io.ReadCloser, error)) *client.Client {
	return must(client.New(client.Config{BaseURL: "http://svc.example", Timeout: timeout, HTTPClient: &http.Client{
		Timeout: max(0, -timeout), Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
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
		for config, limit := range map[time.Duration]time.Duration{0: client.DefaultTimeout, 3 * time.Second: 3 * time.Second, -4 * time.Second: 4 * time.Second} {
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
		c := answers(-48*time.Hour, func(r *http.Request) (io.ReadCloser, error) {
			select {
			case <-time.After(24 * time.Hour):
				return body{r, strings.NewReader("[]"), true}, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		is.New(t).Equal(len(must(all(c.Sources.List(t.Context())))), 0)
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
