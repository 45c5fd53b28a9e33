package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/longtest"
)

// A list that ends too early is none, however well its end is said to be the end; nor is one that goes on behind its end.
func TestListIsNotWhole(t *testing.T) {
	const begin, row = `{"templates":[`, `{"id":"a","name":"a"}`
	for body, rows := range map[string]int{
		``: 0, `{`: 0, `{"templates"`: 0, `{"templates":null}`: 0, `{"templates":{}}`: 0, `{}`: 0, `null`: 0, `[]`: 0, `{"versions":[]}`: 0,
		begin: 0, begin + row[:9]: 0, begin + row: 1, begin + row + `,`: 1, begin + row + `]`: 1, begin + row + `}`: 1,
		begin + `]} x`: 0, begin + `]}{}`: 0, begin + `],"a":1}`: 0, begin + row + ` ` + row + `]}`: 1,
		begin + row + `,null]}`: 1, begin + row + `,7]}`: 1, begin + row + `,{}]}`: 1,
	} {
		list, err := all(dial(t, says(200, "application/json", body)).Templates.List(t.Context(), svc.TemplateQuery{}))
		status, _ := errors.AsType[*client.StatusError](err)
		expect.Holds(t, len(list) == rows && err != nil && status != nil, body, len(list), err)
	}
	for body, rows := range map[string]int{``: 0, `[`: 0, `[]]`: 0, `{}`: 0, `[` + row: 1, `[` + row + `,]`: 1} {
		list, err := all(dial(t, says(200, "application/json", body)).Sources.List(t.Context()))
		expect.Holds(t, len(list) == rows && err != nil, body, len(list), err)
	}
}

// Who leaves a list early ends its request; the next loop over it is another.
func TestListIsLeft(t *testing.T) {
	left := make(chan struct{}, 2)
	sources := dial(t, func(w http.ResponseWriter, r *http.Request) {
		endless(`[`, `{"name":"first"},`)(w, r)
		left <- struct{}{}
	}).Sources.List(t.Context())
	for range 2 {
		for source, err := range sources {
			expect.Holds(t, err == nil && source.Name == "first", source, err)
			break
		}
		<-left
	}
}

// The error names an ended context, before an answer and in the middle of one.
func TestContextEnds(t *testing.T) {
	is := is.New(t)
	arrived := make(chan struct{})
	c := dial(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		<-arrived
		cancel(errors.New("the user has left"))
	}()
	_, err := c.Templates.Read(ctx, "a")
	is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
	is.True(errors.Is(err, context.Canceled))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n := 0
	for _, err = range dial(t, endless(`[`, `{"name":"a"},`)).Sources.List(ctx) {
		if n++; err != nil {
			break
		}
		stop()
	}
	is.Equal(refused(err), refusal{Code: svc.CodeUnavailable, Message: "the server's answer broke off"})
	is.True(n > 1 && errors.Is(err, context.Canceled))
}

func endless(beginning, more string) http.HandlerFunc {
	more = strings.Repeat(more, 1+(1<<16)/len(more))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, beginning)
		for err == nil {
			_, err = io.WriteString(w, more)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tooLarge := refusal{Code: svc.CodeInternal, Message: "the server's answer is too large"}
	is.Equal(refused(errorOf(dial(t, endless(`{"id":"`, "x")).Templates.Read(t.Context(), "a"))), tooLarge)
	longtest.Test(t, "a list that is too large")
	list, err := all(dial(t, endless(`[{"name":"a"},{"name":"`, "x")).Sources.List(t.Context()))
	is.Equal(refused(err), tooLarge)
	is.Equal(len(list), 1)
}

// A list may be longer than any memory: no more of it is kept than a row.
func TestListsAreStreamed(t *testing.T) {
	is := is.New(t)
	row := `{"id":"a","name":"` + strings.Repeat("x", 1<<20) + `"},`
	c := dial(t, endless(`{"templates":[`, row))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := 0
	for template, err := range c.Templates.List(t.Context(), svc.TemplateQuery{}) {
		is.NoErr(err)
		is.Equal(len(template.Name), 1<<20)
		if n++; n == 66 { // more than one answer may have
			runtime.GC()
			runtime.ReadMemStats(&now)
			break
		}
	}
	expect.Holds(t, int64(now.HeapAlloc)-int64(before.HeapAlloc) <= 16<<20, "memory")
}

// A problem takes less memory than an answer may.
func TestProblemsAreSmall(t *testing.T) {
	is := is.New(t)
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		endless(`{"code":"`, "x")(w, r)
	})
	is.True(heaptest.Allocated(func() {
		is.Equal(refused(errorOf(c.Templates.Read(t.Context(), "a"))).Code, svc.CodeInternal)
	}) < 64<<20)
}

// A list that the server gives only a part of is read to its end.
func TestListsOfSeveralPages(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t, func(u *setup) {
		u.wrap = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if q := r.URL.Query(); r.Method == "GET" {
				q.Set("limit", "2")
				r.URL.RawQuery = q.Encode()
			}
			next.ServeHTTP(w, r)
		}
	}), t.Context()
	var ids []string
	for i := range 5 {
		s.create(fmt.Sprint(i))
		ids = append(ids, fmt.Sprint(i))
		must(s.client.Keys.Issue(ctx, alice, svc.NewAPIKey{}))
	}
	for range 2 {
		var have []string
		for template, err := range s.client.Templates.List(ctx, svc.TemplateQuery{}) {
			have = append(have, must(template, err).ID)
		}
		is.Equal(have, ids)
	}
	keys := must(all(s.client.Keys.List(ctx, alice, svc.KeyQuery{})))
	is.Equal(len(keys), 5)
	for limit := 1; limit < 7; limit++ { // whatever the server takes for a page
		is.Equal(len(must(all(s.client.Templates.List(ctx, svc.TemplateQuery{Limit: limit})))), min(limit, 5))
		query := svc.KeyQuery{AfterTime: keys[0].CreatedAt, AfterID: keys[0].ID, Limit: limit}
		is.Equal(must(all(s.client.Keys.List(ctx, alice, query))), keys[1:1+min(limit, 4)])
	}
	for template := range s.client.Templates.List(ctx, svc.TemplateQuery{}) {
		if template.ID == "2" {
			break
		}
	}
}

// A Link to the next page that leads elsewhere, or round in circles, is none of the interface. Other links do not count.
func TestLinksOfOthers(t *testing.T) {
	for link, code := range map[string]svc.Code{
		`<https://elsewhere/?cursor=x>; rel="next"`: svc.CodeInternal, `<?limit=2>; rel="next"`: svc.CodeInternal, `<?cursor=%zz>; rel="next"`: svc.CodeInternal, `<?cursor=x>; rel="next"`: svc.CodeInternal, `</next>; rel=next`: svc.CodeInternal,
		`</_next/a.css>; rel=preload, <?cursor=x>; rel="next"`: svc.CodeInternal, `<?cursor=x>; rel="prev"`: "", `</_next/a.css>; rel=preload; as=style`: "", `</next>; rel="prev"; title="see rel=next"`: "", `</a>; rel="next-archive"`: "",
	} {
		c := dial(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", link)
			says(200, "application/json", `{"templates":[]}`)(w, r)
		})
		is.New(t).Equal(svc.ErrorCode(errorOf(all(c.Templates.List(t.Context(), svc.TemplateQuery{})))), code)
	}
}

func TestAuditRecords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, ctx := newSite(t, func(u *setup) { u.service.Events.Keep = true }), t.Context()
	for i := range 1005 { // more than a page
		s.create(fmt.Sprint("a<", i, ">"))
	}
	s.tick()
	for range 3 {
		must(s.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{}))
		s.tick()
	}
	must(s.Keys.RevokeAll(ctx, svc.Principal{Kind: svc.KindUser, ID: "alice"}, svc.Me))
	is.NoErr(s.store.QueueAudit(ctx, make([]svc.Event, 2), func(last svc.AuditRecord, _ []svc.Event) []svc.AuditRecord {
		next := last
		next.Number, next.Previous, next.Hash = last.Number+1, last.Hash, bytes.Repeat([]byte{1}, 32)
		next.Actor, next.Action = svc.Host.As("ops").Identity(), event.AccessWritten
		next.Is = json.RawMessage(`{"b":9007199254740993,"id":"a<b>"}`)
		next.Salts = svc.AuditSalts{Actor: "a", Target: "b", Owner: "c", Holder: "d", Was: "e", Is: "f"}
		after := next
		after.Number, after.Previous = next.Number+1, next.Hash
		after.Was, after.Is, after.Action = next.Is, nil, event.AccessRemoved
		return []svc.AuditRecord{next, after}
	}))
	whole := must(all(s.Audit.Records(ctx, svc.Host, svc.AuditQuery{})))
	key := whole[3] // a revocation
	for _, filter := range []svc.AuditQuery{
		{}, {ActorKind: svc.KindHost}, {ActorID: "ops"}, {ActorID: "alice"}, {TargetKind: event.TargetPolicy}, {TargetID: key.Target.ID}, {TargetID: "a<7>"},
		{Since: key.Time}, {Since: key.Time.Add(time.Nanosecond)}, {Until: key.Time.In(time.FixedZone("elsewhere", 3600))}, {Before: 3}, {ActorID: "nobody"}, {Limit: 2}, {Limit: 2000}, {Before: 4, Limit: 1},
	} {
		is.Equal(must(all(s.client.Audit.Records(ctx, filter))), must(all(s.Audit.Records(ctx, svc.Host, filter))))
	}
	is.Equal(whole[len(whole)-1].Previous, []byte(nil))

	for range s.client.Audit.Records(ctx, svc.AuditQuery{}) {
		break // and nobody waits for the rest
	}
	canceled, cancel := context.WithCancel(ctx)
	n, err := 0, error(nil)
	for _, err = range s.client.Audit.Records(canceled, svc.AuditQuery{}) {
		if n++; n == 1000 {
			cancel()
		}
	}
	cancel()
	is.True(n < len(whole) && svc.ErrorCode(err) == svc.CodeUnavailable)
}

// A client acts only for the caller of its token.
func TestAs(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	mine := must(s.client.As("session-of-alice").Keys.Issue(ctx, svc.Me, svc.NewAPIKey{}))
	is.Equal(len(must(all(s.client.As(mine.Key).Keys.List(ctx, svc.Me, svc.KeyQuery{})))), 1)
	is.Equal(len(must(all(s.client.As("session-of-bob").Keys.List(ctx, svc.Me, svc.KeyQuery{})))), 0)
	is.Equal(svc.ErrorCode(errorOf(s.client.As(mine.Key).Templates.Read(ctx, "a"))), svc.CodeForbidden)

	s.requests()
	is.Equal(svc.ErrorCode(errorOf(s.client.As("").Templates.Read(ctx, "a"))), svc.CodeUnauthenticated)
	for _, bad := range []svc.Secret{"a b", "a\nb", "ä", "a\x00"} {
		refusal := refusal{Code: svc.CodeInvalid, Field: "token", Message: "must be printable ASCII without spaces"}
		is.Equal(refused(errorOf(s.client.As(bad).Templates.Read(ctx, "a"))), refusal)
	}
	is.Equal(len(s.requests()), 0)
	nobody := must(client.New(client.Config{BaseURL: s.server.URL + "/ext/svc"}))
	is.Equal(svc.ErrorCode(errorOf(nobody.Templates.Read(ctx, "a"))), svc.CodeUnauthenticated)
	is.Equal(len(s.requests()), 1)
}

// Keys of all holders come with their holder, in each order.
func TestKeysOfAllHolders(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	robot := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	for i, holder := range []svc.Identity{alice, robot, alice} {
		in := svc.NewAPIKey{ExpiresAt: s.clock().AddDate(0, 0, 9-i), Description: new(strings.Repeat("x", i))}
		must(s.Keys.Issue(ctx, svc.Host, holder, in))
		s.tick()
	}
	is.True(s.accepts(must(s.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})).Key))
	is.NoErr(s.Close()) // writes when keys were used
	is.True(!must(all(s.client.Keys.List(ctx, alice, svc.KeyQuery{})))[0].LastUsedAt.IsZero())
	for _, query := range []svc.KeyQuery{
		{}, {Limit: 2}, {ExpireBefore: s.clock().AddDate(0, 0, 8)}, {UnusedSince: s.clock().Add(-time.Second)}, {UnusedSince: s.clock(), Limit: 1},
	} {
		want := must(all(s.Keys.List(ctx, svc.Host, svc.AllHolders, query)))
		for i := range want {
			want[i].Hash, want[i].Pepper, want[i].Seal = nil, "", nil
		}
		is.True(len(want) > 0)
		is.Equal(must(all(s.client.Keys.List(ctx, svc.AllHolders, query))), want)
		query.AfterTime, query.AfterID, query.Limit = query.Position(want[0]), want[0].ID, 0
		rest := must(all(s.Keys.List(ctx, svc.Host, svc.AllHolders, query)))
		is.Equal(len(must(all(s.client.Keys.List(ctx, svc.AllHolders, query)))), len(rest))
	}
	is.Equal(refused(errorOf(all(s.client.Keys.List(ctx, alice, svc.KeyQuery{UnusedSince: s.clock()})))).Code, svc.CodeInvalid)
	bob := s.client.As("session-of-bob")
	is.Equal(refused(errorOf(all(bob.Keys.List(ctx, svc.AllHolders, svc.KeyQuery{})))).Code, svc.CodeForbidden)
	is.Equal(svc.ErrorCode(s.client.Keys.RevokeAll(context.Background(), svc.AllHolders)), svc.CodeInvalid)
}

// The client tells of a key what the Service does.
func TestIntrospect(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	expires := time.Date(2090, 1, 2, 3, 4, 5, 0, time.UTC)
	robot, zoe := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}, svc.Identity{Kind: svc.KindUser, ID: "Zoë @ home+1&2"}
	for _, c := range []struct {
		holder svc.Identity
		in     svc.NewAPIKey
	}{{alice, svc.NewAPIKey{}}, {alice, svc.NewAPIKey{ScopingPolicyID: "recalls", ExpiresAt: expires}}, {robot, svc.NewAPIKey{}}, {zoe, svc.NewAPIKey{}}} {
		issued := must(s.Keys.Issue(t.Context(), svc.Host, c.holder, c.in))
		want := must(s.Keys.Introspect(t.Context(), svc.Host, string(issued.Key)))
		is.True(want.Active)
		is.Equal(must(s.client.Keys.Introspect(t.Context(), string(issued.Key))), want)
		is.NoErr(s.Keys.Revoke(t.Context(), svc.Host, c.holder, issued.ID))
		is.Equal(must(s.client.Keys.Introspect(t.Context(), string(issued.Key))), svc.Introspection{})
	}
	for _, token := range []string{"x", "a&token=b", "a+b%20c\n", strings.Repeat("x", 100_000)} {
		is.Equal(must(s.client.Keys.Introspect(t.Context(), token)), svc.Introspection{})
	}
	is.Equal(svc.ErrorCode(errorOf(s.client.Keys.Introspect(t.Context(), ""))), svc.CodeInvalid)
	is.Equal(svc.ErrorCode(errorOf(s.client.As("session-of-alice").Keys.Introspect(t.Context(), "x"))), svc.CodeForbidden)
}

// An answer that says less than it must is no introspection, and no error shows the token.
func TestIntrospectForeignAnswers(t *testing.T) {
	const secret = "svcu_a-secret-to-introspect"
	for _, body := range []string{
		`{}`, `{"sub":"a"}`, `{"active":null}`, `{"active":true}`, `{"active":true,"sub":"a","kind":"user","scope":"read"}`,
		`{"active":true,"sub":"a","kind":"user","scope":"policy:"}`, `{"active":true,"sub":"a","kind":"user","scope":"policy:%zz"}`, secret, `{"active":"` + secret + `"}`,
	} {
		in, err := dial(t, says(200, "application/json", body)).Keys.Introspect(t.Context(), secret)
		expect.Holds(t, svc.ErrorCode(err) == svc.CodeInternal && in == (svc.Introspection{}), body, in, err)
		expect.Holds(t, !strings.Contains(fmt.Sprint(err), secret), err)
	}
	c := dial(t, says(502, "text/html", strings.Repeat("x", 150)+secret+strings.Repeat("x", 9000)))
	err := errorOf(c.Keys.Introspect(t.Context(), secret))
	expect.Holds(t, svc.ErrorCode(err) == svc.CodeUnavailable && !strings.Contains(err.Error(), secret[:10]), err)
}
