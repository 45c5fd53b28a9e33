package marketplace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

func until(t *testing.T, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Error("not in a minute")
			return
		}
	}
}

// asks asks for the template "a" in the background.
func asks(ctx context.Context, client *marketplace.Client, from svc.Upstream) <-chan error {
	err := make(chan error, 1)
	go func() { err <- errorOf(client.Template(ctx, from, "a")) }()
	return err
}

func TestFiftyAtOnce(t *testing.T) {
	for name, cache := range map[string]int{"kept": 0, "not kept": -1} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			const calls = 50
			s, client, from := newShelf(t, marketplace.Config{Cache: cache})
			s.beforeEach(func(*http.Request) { until(t, func() bool { return client.Waiting() == calls }) })
			manifests := make(chan string)
			for range calls {
				go func() { manifests <- version(t, client, from) }()
			}
			for range calls {
				is.Equal(<-manifests, `{"version":"1"}`)
			}
			is.Equal(s.requests(), []string{"/templates.json 200", "/m.json 200"})
			is.Equal(client.Waiting(), 0)
		})
	}
}

// busy is a memory that waits for a signal before it keeps a file.
type busy struct {
	memory
	keeping, let chan struct{}
}

func (b *busy) KeepFile(context.Context, string, []byte) {
	b.keeping <- struct{}{}
	<-b.let
}

// A call without a memory does not wait for one, which could wait for its transaction.
func TestOthersMemoriesAreNotWaitedFor(t *testing.T) {
	_, client, from := newShelf(t, marketplace.Config{})
	remembering, memory := from, &busy{keeping: make(chan struct{}), let: make(chan struct{})}
	remembering.Memory = memory
	done := make(chan error)
	go func() { done <- errorOf(client.Catalog(t.Context(), remembering, 0)) }()
	<-memory.keeping
	must(client.Catalog(t.Context(), from, 0))
	close(memory.let)
	is.New(t).NoErr(<-done)
}

// Two calls that must not see each other's answers share no request.
func TestOthersAreNotWaitedFor(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", shelved{body: oneEntry})
	asked, goOn := make(chan struct{}), make(chan struct{})
	s.beforeEach(func(*http.Request) { asked <- struct{}{}; <-goOn })
	one, two := from, from
	one.Token, two.Token = "one", "two"
	first, second := asks(t.Context(), client, one), asks(t.Context(), client, two)
	<-asked
	<-asked
	close(goOn)
	is.NoErr(<-first)
	is.NoErr(<-second)
	is.Equal(len(s.requests()), 2)
}

func TestWhoAskedFirstLeaves(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", shelved{body: oneEntry})
	asked, goOn := make(chan struct{}, 2), make(chan struct{})
	s.beforeEach(func(*http.Request) { asked <- struct{}{}; <-goOn })
	leaving, leave := context.WithCancel(t.Context())
	first := asks(leaving, client, from)
	<-asked
	hurried, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	second := asks(hurried, client, from)
	until(t, func() bool { return client.Waiting() == 2 })
	leave()
	err := <-first
	_, isFault := errors.AsType[*svc.Error](err)
	is.True(errors.Is(err, context.Canceled) && !isFault)
	is.Equal(client.Waiting(), 1)
	third := asks(t.Context(), client, from)
	until(t, func() bool { return client.Waiting() == 2 })
	close(goOn)
	is.NoErr(<-second)
	is.NoErr(<-third)
	is.Equal(s.requests(), []string{"/templates.json 200"})
}

// A request ends when no caller waits for it. The next caller starts another request.
func TestAllLeave(t *testing.T) {
	is := is.New(t)
	asked := make(chan struct{}, 1)
	var good, ended atomic.Bool
	client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !good.Load() {
			asked <- struct{}{}
			<-r.Context().Done()
			ended.Store(true)
			return
		}
		_, _ = w.Write([]byte(oneEntry))
	}, marketplace.Limits{HeaderTimeout: 2 * time.Minute, Timeout: 2 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := asks(ctx, client, from), asks(ctx, client, from)
	<-asked
	until(t, func() bool { return client.Waiting() == 2 })
	cancel()
	is.True(errors.Is(<-first, context.Canceled))
	is.True(errors.Is(<-second, context.Canceled))
	until(t, ended.Load)
	good.Store(true)
	version(t, client, from)
}

// A caller with a short deadline gets its timeout, and the others get their answer.
func TestWaitingIsBoundedByOnesOwnContext(t *testing.T) {
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", shelved{body: oneEntry})
	goOn := make(chan struct{})
	s.beforeEach(func(*http.Request) { <-goOn })
	patient := asks(t.Context(), client, from)
	until(t, func() bool { return client.Waiting() == 1 })
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantError(t, errorOf(client.Template(short, from, "a")), svc.CodeSourceTimeout, "did not arrive in time")
	close(goOn)
	is.New(t).NoErr(<-patient)
}

// No answer of a source ends the process.
func TestFlightThatEnds(t *testing.T) {
	for want, end := range map[string]func(){
		"panic: broken":                    func() { panic("broken") },
		"the call has ended its goroutine": runtime.Goexit,
	} {
		expect.Equal(t, want, strings.Contains(fmt.Sprint(marketplace.FlightThatEnds(end)), "cannot be read: "+want), true)
	}
}

// padded is a catalogue of some megabytes with one entry.
func padded(megabytes int) string {
	return oneEntry + strings.Repeat(" ", megabytes<<20)
}

// of returns the source of a user, "" the server, in a folder of a server.
func of(owner, url string, number int) svc.Upstream {
	from := upstream(fmt.Sprint(url, "/", number))
	if owner != "" {
		from.Source.Scope, from.Source.Owner = svc.ScopePersonal, owner
	}
	return from
}

// No more bytes are read at once than the host allows: half of them for users, one answer for each.
func TestManyLargeAnswersAtOnce(t *testing.T) {
	const limit, budget, sources = 2 << 20, 8 << 20, 12
	body := zipped(padded(1))
	for name, test := range map[string]struct {
		owner func(i int) string
		most  int64
	}{
		"of the server":  {func(int) string { return "" }, budget},
		"of one user":    {func(int) string { return "alice" }, limit},
		"of many users":  {func(i int) string { return fmt.Sprint("user", i) }, budget / 2},
		"of all of them": {func(i int) string { return []string{"", "alice", "bob", "carol"}[i%4] }, budget},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			var arrived sync.WaitGroup
			arrived.Add(sources)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived.Done()
				arrived.Wait() // all answer at once
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write([]byte(body))
			}))
			t.Cleanup(server.Close)
			client := newClient(t, marketplace.Config{AllowOrigins: []string{server.URL}, AllowPersonal: true,
				Reading: budget, Limits: marketplace.Limits{Catalog: limit}})
			errs := make(chan error)
			for i := range sources {
				go func() { errs <- errorOf(client.Catalog(t.Context(), of(test.owner(i), server.URL, i), 0)) }()
			}
			for range sources {
				is.NoErr(<-errs)
			}
			most := client.MostRead()
			expect.Equal(t, most, limit <= most && most <= test.most, true) // were read at once
			expect.Equal(t, "in use after all", client.Read(), [2]int{})
		})
	}
}

// blocked is a file system whose files wait until let is closed, and nothing else ends that.
type blocked struct {
	fs.FS
	reading, let chan struct{}
}

func (b blocked) Open(name string) (fs.File, error) {
	file, err := b.FS.Open(name)
	return blockedFile{file, b}, err
}

type blockedFile struct {
	fs.File
	of blocked
}

func (f blockedFile) Read(p []byte) (int, error) {
	select {
	case f.of.reading <- struct{}{}:
		<-f.of.let
	case <-f.of.let:
	}
	return f.File.Read(p)
}

// A wait ends when there is room, with its caller, and after a time with an error that is no fault of the source. Small
// answers and the sources of the server do not wait.
func TestWaitsEnd(t *testing.T) {
	is := is.New(t)
	shop := fstest.MapFS{"1/templates.json": {Data: []byte(padded(1))}, "2/templates.json": {Data: []byte(oneEntry)}}
	slow := blocked{shop, make(chan struct{}), make(chan struct{})}
	client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"slow": slow, "shop": shop}, Reading: 8 << 20})
	held := asks(t.Context(), client, of("alice", "fs://slow", 1))
	<-slow.reading

	client.SetWait(30 * time.Millisecond)
	_, err := client.Catalog(t.Context(), of("alice", "fs://shop", 1), 0)
	wantError(t, err, svc.CodeUnavailable, "its catalogue waited too long for other answers that this server is reading: try again")
	is.True(errors.Is(err, svc.ErrSourceWaits))
	for _, from := range []svc.Upstream{of("alice", "fs://shop", 2), of("bob", "fs://shop", 1), of("", "fs://shop", 1)} {
		must(client.Catalog(t.Context(), from, 0))
	}
	client.SetWait(time.Minute)
	ctx, leave := context.WithCancel(t.Context())
	left := asks(ctx, client, of("alice", "fs://shop", 1))
	until(t, func() bool { return client.Read()[1] == 1 })
	leave()
	is.True(errors.Is(<-left, context.Canceled))
	close(slow.let)
	is.NoErr(<-held)
	is.Equal(client.Read(), [2]int{})
	is.Equal(marketplace.NextTurn(t.Context()), "10 <nil>")
}

// A source that sends slowly does not keep its turn while others wait.
func TestSlowReadersMakeRoom(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(padded(1)))
		if strings.HasPrefix(r.URL.Path, "/1/") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	client := newClient(t, marketplace.Config{AllowOrigins: []string{server.URL}, AllowPersonal: true,
		Limits: marketplace.Limits{Catalog: 2 << 20}})
	client.SetWait(600 * time.Millisecond)
	slow := asks(t.Context(), client, of("alice", server.URL, 1))
	until(t, func() bool { return client.Read()[0] > 0 })
	must(client.Catalog(t.Context(), of("alice", server.URL, 2), 0))
	wantError(t, <-slow, svc.CodeSourceTimeout, "its catalogue did not arrive in time")
}

// A small answer is read without a turn, but parsed in turn: it may take a hundred times its size.
func TestSmallAnswersAreParsedInTurn(t *testing.T) {
	is := is.New(t)
	for owner, other := range map[string]string{"": "alice", "alice": ""} {
		slow := blocked{fstest.MapFS{"1/templates.json": {Data: []byte(oneEntry)}}, make(chan struct{}), make(chan struct{})}
		client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"slow": slow, "shop": slow.FS}})
		release := client.HoldParsing(owner != "")
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-slow.reading
			leave()
			close(slow.let)
		}()
		_, err := client.Catalog(ctx, of(owner, "fs://slow", 1), 0)
		is.True(errors.Is(err, context.Canceled)) // it has waited
		must(client.Catalog(t.Context(), of(other, "fs://shop", 1), 0))
		release()
		must(client.Catalog(t.Context(), of(owner, "fs://slow", 1), 0))
	}
}
