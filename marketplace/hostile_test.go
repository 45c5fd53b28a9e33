package marketplace_test

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

// hostileLimit is the limit of a catalogue in these tests, in bytes.
const hostileLimit = 256 << 10

// patient are time limits that only a missing answer exceeds.
var patient = marketplace.Limits{Catalog: hostileLimit, Entries: 5, HeaderTimeout: time.Minute, Timeout: time.Minute}

const (
	unreachable = "its catalogue cannot be reached"
	damaged     = "its catalogue broke off or is damaged"
	large       = "its catalogue is larger than 262144 bytes"
	noJSON      = "its catalogue is bad: it must be valid JSON"
	encoding    = "its catalogue came in an encoding other than gzip"
	page        = "its catalogue is a web page"
	late        = "its catalogue did not arrive in time"
)

// hostile are bad answers and their messages.
var hostile = map[string]struct {
	say  speech
	want string
}{
	// The body.
	"endless, no length":        {then(ok(), forEver(" ")), large},
	"endless chunks":            {then(ok(chunked), forEver(chunk(strings.Repeat(" ", 4096)))), large},
	"endless, announced":        {then(ok(length(1<<30)), forEver(" ")), large},
	"announced and not sent":    {then(ok(length(math.MaxInt32)), silence), large},
	"one byte too many":         {say(ok(length(hostileLimit+1)), strings.Repeat(" ", hostileLimit+1)), large},
	"one byte too many, unsaid": {say(ok(), strings.Repeat(" ", hostileLimit+1)), large},
	"empty":                     {say(ok(length(0))), "its catalogue is bad: it must not be empty"},
	"cut off, no length":        {say(ok(), oneEntry[:40]), noJSON},
	"cut off at the limit":      {say(ok(), `{"templates":[`, strings.Repeat("0,", hostileLimit/2-7)), "its catalogue is bad"},
	"not JSON":                  {say(ok(), "templates: []"), noJSON},
	"two documents":             {say(ok(), oneEntry, oneEntry), noJSON},
	"deep arrays":               {say(ok(), strings.Repeat("[", hostileLimit)), "nested deeper"},
	"deep in an entry":          {say(ok(), `{"templates":[{"id":"a","name":"A","manifest":{"x":`, nested(1000), `}}]}`), "nested deeper"},
	"a key twice": {say(ok(), `{"`, strings.Repeat("k", 100_000), `":1,"`, strings.Repeat("k", 100_000), `":1}`),
		"kkk… is a duplicate key"},
	"an entry too many": {say(ok(), `{"templates":[`, strings.Repeat("{},", 5), `{}]}`), "has more than 5 entries"},

	// Its length.
	"length too long":  {say(ok(length(len(oneEntry)+1)), oneEntry), damaged},
	"length too short": {say(ok(length(len(oneEntry)-1)), oneEntry), noJSON},
	"largest length":   {say(ok("Content-Length: 9223372036854775807"), oneEntry), large},

	// Its chunks.
	"no last chunk":           {say(ok(chunked), chunk(oneEntry)), damaged},
	"chunk cut off":           {say(ok(chunked), "ffff\r\n", oneEntry), damaged},
	"endless chunk extension": {then(ok(chunked)+"1;", forEver("x")), damaged},
	"trailer, endless":        {then(ok(chunked)+chunk(oneEntry)+"0\r\nX: ", forEver("x")), damaged},
	"unknown transfer":        {say(ok("Transfer-Encoding: gzip"), oneEntry), unreachable},

	// Its encoding.
	"gzip bomb":                  {then(ok(gzipped), forEver(zipped(strings.Repeat(" ", 1<<20)))), large},
	"gzip bomb of one member":    {say(ok(gzipped), zipped(strings.Repeat(" ", 64<<20))), large},
	"gzip of nothing, endless":   {then(ok(gzipped), forEver(zipped(""))), large},
	"gzip in gzip, announced":    {say(ok("Content-Encoding: gzip, gzip"), zipped(zipped(oneEntry))), encoding},
	"gzip announced twice":       {say(ok(gzipped, gzipped), zipped(zipped(oneEntry))), encoding},
	"gzip cut off":               {say(ok(gzipped), zipped(oneEntry)[:50]), damaged},
	"gzip, then rubbish":         {say(ok(gzipped), zipped(oneEntry), "rubbish"), damaged},
	"gzip, checksum wrong":       {say(ok(gzipped), zipped(oneEntry)[:len(zipped(oneEntry))-8], "12345678"), damaged},
	"gzip in name only":          {say(ok(gzipped), oneEntry), damaged},
	"gzip with an endless name":  {then(ok(gzipped)+"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff", forEver("x")), damaged},
	"brotli":                     {say(ok("Content-Encoding: br"), oneEntry), encoding},
	"x-gzip":                     {say(ok("Content-Encoding: x-gzip"), zipped(oneEntry)), encoding},
	"encoding empty":             {say(ok("Content-Encoding: "), oneEntry), encoding},
	"HTML":                       {say(okAs("text/html"), oneEntry), page},
	"HTML, parameters malformed": {say(okAs("TEXT/html ;charset=a; charset=b"), oneEntry), page},
	"HTML, not said":             {say(ok(), "<!doctype html><title>Sign in</title>"), page},
	"parts":                      {say(okAs("multipart/mixed; boundary=x"), "--x\r\n\r\n", oneEntry, "\r\n--x--"), noJSON},

	// The head.
	"an endless header":       {then("HTTP/1.1 200 OK\r\nX: ", forEver("x")), unreachable},
	"100 KB of headers":       {say(ok("X: "+strings.Repeat("x", 100<<10)), oneEntry), unreachable},
	"HTTP/0.9":                {say(oneEntry), unreachable},
	"1xx flood":               {then("", forEver("HTTP/1.1 100 Continue\r\n\r\n")), unreachable},
	"101":                     {say("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", oneEntry), "answered 101"},
	"206":                     {say("HTTP/1.1 206 Partial Content\r\nConnection: close\r\n\r\n", oneEntry), "answered 206"},
	"304, not asked for":      {say("HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n"), "answered 304"},
	"500, endless":            {then("HTTP/1.1 500 Oops\r\n\r\n", forEver("x")), "answered 500"},
	"a redirect to itself":    {say(moved("/templates.json")), "redirects too often"},
	"a redirect to nowhere":   {say("HTTP/1.1 302 Found\r\nConnection: close\r\n\r\n"), "answered 302 without a Location"},
	"a redirect over 2 lines": {say(moved("http://127.0.0.1:1/\r\n x")), "is plain http"},
	"a redirect, endless":     {then("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", forEver("x")), "is plain http"},
	"a huge redirect":         {say(moved("/" + strings.Repeat("x", 100<<10))), unreachable},

	// Other answers than a catalogue.
	"404":      {say("HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"), "answered 404"},
	"not ours": {say(ok(), `{"templates":1}`), `must be an object with an array "templates"`},
	"XHTML":    {say(okAs("application/xhtml+xml"), oneEntry), page},

	// The connection.
	"reset at once":      {reset, unreachable},
	"closed at once":     {func(net.Conn) {}, unreachable},
	"reset in the body":  {then(ok(length(1000))+oneEntry[:20], reset), "its catalogue "}, // what was sent before may be lost
	"reset in gzip":      {then(ok(gzipped)+zipped(oneEntry)[:15], reset), "its catalogue "},
	"closed in the body": {say(ok(length(1000)), oneEntry[:20]), damaged},
}

// newHostile returns a client with a good copy of a source, which can then answer badly.
func newHostile(t *testing.T) victim {
	t.Helper()
	source := newRawSource(t, say(ok(length(len(oneEntry))), oneEntry))
	url := "http://" + source.Addr().String()
	client := newClient(t, marketplace.Config{AllowOrigins: []string{url}, Limits: patient})
	good, err := client.Catalog(t.Context(), upstream(url), 0)
	if err != nil || good.Failure != nil || len(good.Entries) != 1 {
		t.Fatalf("got %+v, %v", good, err)
	}
	return victim{source, client, upstream(url), good}
}

// wantStale checks the result of a bad answer: an installation fails with code and want, the last
// good copy is listed as stale, and nothing of the bad answer stays.
func wantStale(t *testing.T, client *marketplace.Client, from svc.Upstream, good svc.Catalog, code svc.Code, want string) {
	t.Helper()
	is := is.New(t)
	ctx := aMinute(t)
	_, err := client.Template(ctx, from, "a")
	wantError(t, err, code, want)
	is.True(len(err.Error()) <= 1000) // the log
	stale := must(client.Catalog(ctx, from, 0))
	wantError(t, stale.Failure, code, want)
	is.Equal(stale.Entries, good.Entries)
	is.Equal(stale.FetchedAt, good.FetchedAt)
	young := must(client.Catalog(ctx, from, time.Hour))
	is.Equal(young.Failure, nil) // it was not asked
	is.Equal(young.Entries, good.Entries)
}

// aMinute returns a context that is cancelled after a minute, with another code than the client's limits.
func aMinute(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(time.Minute, cancel)
	t.Cleanup(func() { timer.Stop() })
	return ctx
}

// victim is a client with a good copy of a source that can turn bad.
type victim struct {
	source *rawSource
	*marketplace.Client
	from svc.Upstream
	good svc.Catalog
}

// endures checks what a bad answer comes to, and that the next good one is taken.
func (v victim) endures(t *testing.T, bad speech, code svc.Code, want string) {
	t.Helper()
	v.source.turn(bad)
	wantStale(t, v.Client, v.from, v.good, code, want)
	v.source.alone(t)
	v.source.turn(nil)
	v.Hurry(time.Minute, time.Minute)
	version(t, v.Client, v.from)
}

func TestHostileAnswers(t *testing.T) {
	logged := captureLog(t)
	for name, answer := range hostile {
		t.Run(name, func(t *testing.T) {
			newHostile(t).endures(t, answer.say, svc.CodeSourceFailed, answer.want)
			expect.Equal(t, "log", logged.String(), "")
		})
	}
}

// slowAnswers are endless: those with a slow head end after HeaderTimeout, the others after Timeout.
var slowAnswers = map[string]map[string]speech{
	"head": {
		"never read":             func(conn net.Conn) { silence(conn) },
		"never answered":         then("", silence),
		"a header for ever":      then("HTTP/1.1 200 OK\r\nX: ", dripping("x")),
		"silent after a 100":     then("HTTP/1.1 100 Continue\r\n\r\n", silence),
		"half closed, and quiet": then("", func(conn net.Conn) { _ = conn.(*net.TCPConn).CloseRead(); dripping("H")(conn) }),
	},
	"body": {
		"silent":                then(ok(length(100)), silence),
		"silent before the end": then(ok(length(len(oneEntry)+1))+oneEntry, silence),
		"a body for ever":       then(ok(), dripping(" ")),
		"silent in a chunk":     then(ok(chunked)+"40\r\n{", silence),
		"trailers for ever":     then(ok(chunked)+chunk(oneEntry)+"0\r\n", dripping("X: y\r\n")),
		"gzip for ever":         then(ok(gzipped), dripping(zipped(" "))),
		"silent in gzip":        then(ok(gzipped)+zipped(oneEntry)[:15], silence),
	},
}

func TestSlowAnswers(t *testing.T) {
	const short, long = 50 * time.Millisecond, 5 * time.Minute
	for part, answers := range slowAnswers {
		for name, answer := range answers {
			t.Run(part+" "+name, func(t *testing.T) {
				v := newHostile(t)
				if part == "head" {
					v.Hurry(short, long)
				} else {
					v.Hurry(long, short)
				}
				v.endures(t, answer, svc.CodeSourceTimeout, late)
			})
		}
	}
}

func TestNameThatNeverResolves(t *testing.T) {
	client := newClient(t, marketplace.Config{Limits: marketplace.Limits{HeaderTimeout: 50 * time.Millisecond, Timeout: 5 * time.Minute}})
	client.SetResolver((&names{silent: true}).resolver(), nil)
	wantError(t, errorOf(client.Template(aMinute(t), upstream("https://silent.example"), "a")), svc.CodeSourceTimeout, late)
}

// The largest int is a valid limit.
func TestLargestLimits(t *testing.T) {
	const most = int(^uint(0) >> 1)
	client, from := serve(t, answer(oneEntry), marketplace.Limits{Catalog: most, Manifest: most, Entries: most, Redirects: most})
	version(t, client, from)
}
