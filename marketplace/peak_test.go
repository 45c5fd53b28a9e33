//go:build !race

package marketplace_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
)

func spaces(megabytes int) string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	megabyte := bytes.Repeat([]byte(" "), 1<<20)
	for range megabytes {
		_, _ = z.Write(megabyte)
	}
	_ = z.Close()
	return b.String()
}

// A body is read into one buffer or a few growing ones, and held once more as JSON, and that is all.
func TestMemoryOfHostileAnswers(t *testing.T) {
	longtest.Test(t, "the memory that hostile answers take")
	const (
		limit            = 16 << 10 << (2 * 4) // buffers grow fourfold from 16 KiB, and end there
		overhead         = 1 << 20             // of net/http, gzip and this test, and no part of what is sent
		nothing          = 0.0                 // of the limit
		announced, grown = 1.0, 4.0 / 3
		parsed           = 1.0
	)
	full := func(begin, again string) string { return begin + strings.Repeat(again, (limit-len(begin))/len(again)) }
	for name, test := range map[string]struct {
		say  speech
		most float64 // of the limit
	}{
		"endless":                  {then(ok(), forEver(" ")), grown},
		"endless chunks":           {then(ok(chunked), forEver(chunk(strings.Repeat(" ", 4096)))), grown},
		"endless, announced":       {then(ok(length(math.MaxInt32)), forEver(" ")), nothing},
		"cut off":                  {say(ok(length(limit)), full("", " ")[:limit/2]), announced},
		"gzip bomb":                {say(ok(gzipped), spaces(64)), grown},
		"gzip bomb, many members":  {then(ok(gzipped), forEver(spaces(1))), grown},
		"gzip bomb, announced":     {say(ok(gzipped, length(len(spaces(64)))), spaces(64)), grown},
		"gzip of nothing":          {then(ok(gzipped), forEver(zipped(""))), nothing},
		"gzip in gzip":             {say(ok(gzipped), zipped(spaces(256))), grown},
		"a header":                 {then("HTTP/1.1 200 OK\r\nX: ", forEver("x")), nothing},
		"headers":                  {then("HTTP/1.1 200 OK\r\n", forEver("X: y\r\n")), nothing},
		"1xx":                      {then("", forEver("HTTP/1.1 100 Continue\r\n\r\n")), nothing},
		"trailers":                 {then(ok(chunked)+chunk(oneEntry)+"0\r\n", forEver("X: y\r\n")), nothing},
		"chunk extensions":         {then(ok(chunked)+"1;", forEver("x")), nothing},
		"a status":                 {then("HTTP/1.1 500 Oops\r\n\r\n", forEver("x")), nothing},
		"a redirect":               {then("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", forEver("x")), nothing},
		"deep":                     {say(ok(length(limit)), full("", "[")), announced + parsed},
		"deep, not announced":      {say(ok(), full("", "[")), grown + parsed},
		"deep objects":             {say(ok(length(limit-4)), full("", `{"":`)[:limit-4]), announced + parsed},
		"a string":                 {say(ok(length(limit)), full(`"`, "x")), announced + parsed},
		"a string without its end": {say(ok(length(limit)), full(`{"templates":["`, "x")), announced + parsed},
		"an array":                 {say(ok(length(limit)), full(`[`, "0,")[:limit-1]), announced + parsed},
		"a long manifest_file": {say(ok(), full(`{"templates":[{"id":"a","name":"A","manifest_file":"`, "xy")[:limit-10], `"}]}`),
			grown + 2*parsed},
		"a key twice": {say(ok(), full(`{"`, "x")[:limit/2], `":1,"`, full("", "x")[:limit/2-20], `":1}`), grown + 2*parsed},
	} {
		t.Run(name, func(t *testing.T) {
			limits := patient
			limits.Catalog = limit
			boundedMemory(t, test.say, limits, int64(test.most*limit)+overhead)
		})
	}
}

// boundedMemory checks how many bytes a client allocates for a bad answer.
func boundedMemory(t *testing.T, answer speech, limits marketplace.Limits, most int64) {
	t.Helper()
	url := "http://" + newRawSource(t, answer).Addr().String()
	client := newClient(t, marketplace.Config{AllowOrigins: []string{url}, Limits: limits})
	var err error
	total := int64(heaptest.Allocated(func() { _, err = client.Template(t.Context(), upstream(url), "a") }))
	wantError(t, err, "source_failed")
	expect.Holds(t, total <= most, total, most)
}

// An entry takes a bounded number of times more memory than in its file, mostly for its labels.
func TestMemoryOfHostileEntries(t *testing.T) {
	const limit = 4 << 20
	labels := strings.Repeat(`"",`, 80) + `""`
	for name, test := range map[string]struct {
		entry string
		most  float64 // of the limit
	}{
		"labels":           {`{"id":"a","name":"A","manifest":{},"tags":[` + labels + `],"integrations":[` + labels + `]},`, 11},
		"commas in labels": {`{"id":"a","name":"A","manifest":{},"tags":["` + strings.Repeat(",", 100) + `"]},`, 12},
		"no entries":       {`0,`, 7},
	} {
		t.Run(name, func(t *testing.T) {
			const begin, end = `{"templates":[`, `0]}`
			body := begin + strings.Repeat(test.entry, (limit-len(begin+end))/len(test.entry)) + end
			limits := marketplace.Limits{Catalog: limit, Entries: limit >> 8}
			boundedMemory(t, say(ok(length(len(body))), body), limits, int64(test.most*limit))
		})
	}
}

// The size of a copy is about the memory it takes, and rather more than less.
func TestBytesAreReal(t *testing.T) {
	longtest.Test(t, "the memory that copies take")
	labels := func(n int) string { return `["` + strings.Repeat(`label","`, n) + `end"]` }
	var clients []*marketplace.Client // of all cases, so that none is collected while another is measured
	for name, body := range map[string]string{
		"many small":   `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A","manifest":{"version":"1"}},`, 5000) + `{}]}`,
		"with texts":   `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A name of some length","description":"`+strings.Repeat("d", 200)+`","category":"c","manifest_file":"`+strings.Repeat("m", 300)+`"},`, 5000) + `{}]}`,
		"labels":       `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A","tags":`+labels(20)+`,"integrations":`+labels(3)+`,"manifest_file":"m"},`, 5000) + `{}]}`,
		"manifests":    `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A","manifest":{"x":"`+strings.Repeat("m", 5000)+`"}},`, 500) + `{}]}`,
		"bad entries":  `{"templates":[` + strings.Repeat(`{"id":"%d"},`, 20000) + `{}]}`,
		"renames":      `{"templates":[],"renames":{` + strings.Repeat(`"former-%d":"present",`, 20000) + `"x":"present"}}`,
		"all the same": `{"templates":[` + strings.Repeat(`{"id":"a%.0d","name":"A","manifest":{"version":"1"}},`, 5000) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			numbers := make([]any, strings.Count(body, "%"))
			for i := range numbers {
				numbers[i] = i
			}
			text := fmt.Sprintf(body, numbers...)
			client, from := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }, marketplace.Limits{})
			clients = append(clients, client)
			from.Source.Name = "warm"
			must(client.Catalog(t.Context(), from, time.Hour))
			before, counted := heaptest.Live(), client.CacheStats().Bytes
			for i := range 4 {
				from.Source.Name = fmt.Sprint(i)
				must(client.Catalog(t.Context(), from, time.Hour))
			}
			taken := heaptest.Live() - before
			counted = client.CacheStats().Bytes - counted
			t.Logf("%d bytes are counted, %d are taken", counted, taken)
			expect.Holds(t, counted >= taken*9/10 && counted <= taken*14/10, "that is not the same")
		})
	}
	runtime.KeepAlive(clients)
}
