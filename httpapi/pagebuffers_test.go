package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// discarded is an answer without a reader.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d discarded) WriteHeader(int)             {}

// shelf is an interface with so many templates of so many bytes each, kept in memory, and a request for a page of them.
func shelf(t testing.TB, templates, size, limit int) (http.Handler, *http.Request) {
	t.Helper()
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Templates: svc.TemplateConfig{Cached: 64 << 20},
		Authenticator: svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"template:*"}}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Close() })
	manifest := json.RawMessage(`{"version":"1","text":"` + strings.Repeat("x", size) + `"}`)
	for i := range templates {
		id := fmt.Sprintf("t%04d", i)
		_, err := service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: id, Content: svc.Content{Name: id, Manifest: manifest}})
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequest("GET", fmt.Sprintf("/ext/svc/admin/templates?limit=%d", limit), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer session")
	return httpapi.New(service, httpapi.Options{}), r
}

// A page of some hundred kilobytes takes no memory of its own: the buffer of the one before is used again.
func TestPagesShareBuffers(t *testing.T) {
	api, r := shelf(t, 100, 4<<10, 100)
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			api.ServeHTTP(discarded{http.Header{}}, r)
		}
	})
	if got := result.AllocedBytesPerOp(); got > 128<<10 {
		t.Errorf("a page of 400 KiB takes %d bytes of memory", got)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one leaves what pools keep
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What is kept for pages is bounded, however many are asked for at once, and however large they are.
func TestBuffersOfPagesAreBounded(t *testing.T) {
	if longtest.Raced {
		t.Skip("NOT TESTED: bytes, which the race detector changes")
	}
	api, r := shelf(t, 20, 700<<10, 10)
	api.ServeHTTP(discarded{http.Header{}}, r)
	before := heap()
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() { api.ServeHTTP(discarded{http.Header{}}, r.Clone(t.Context())) })
	}
	group.Wait()
	if kept := heap() - before; kept > 24<<20 { // 40 pages have 60 MiB, the pool at most 16
		t.Errorf("%d bytes are kept", kept)
	}
	runtime.KeepAlive(api)
}

// BenchmarkPage answers with a page of 100 templates, of 400 KiB.
func BenchmarkPage(b *testing.B) {
	api, r := shelf(b, 100, 4<<10, 100)
	b.ReportAllocs()
	for b.Loop() {
		api.ServeHTTP(discarded{http.Header{}}, r)
	}
}
