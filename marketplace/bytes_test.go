//go:build !race

package marketplace_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/marketplace"
)

// The size of a copy is about the memory it takes, and rather more than less.
func TestBytesAreReal(t *testing.T) {
	labels := func(n int) string { return `["` + strings.Repeat(`label","`, n) + `end"]` }
	var clients []*marketplace.Client // of all cases, so that none is collected while another is measured
	for name, body := range map[string]string{
		"many small":   `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A","manifest":{"version":"1"}},`, 5000) + `{}]}`,
		"with texts":   `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A name of some length","description":"`+strings.Repeat("d", 200)+`","category":"c","manifest_file":"a/b.json"},`, 5000) + `{}]}`,
		"labels":       `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A","tags":`+labels(20)+`,"integrations":`+labels(3)+`,"manifest_file":"m"},`, 5000) + `{}]}`,
		"manifests":    `{"templates":[` + strings.Repeat(`{"id":"%d","name":"A","manifest":{"x":"`+strings.Repeat("m", 5000)+`"}},`, 500) + `{}]}`,
		"bad entries":  `{"templates":[` + strings.Repeat(`{"id":"%d"},`, 20000) + `{}]}`,
		"all the same": `{"templates":[` + strings.Repeat(`{"id":"a%.0d","name":"A","manifest":{"version":"1"}},`, 5000) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			numbers := make([]any, strings.Count(body, "%"))
			for i := range numbers {
				numbers[i] = i
			}
			text := fmt.Sprintf(body, numbers...)
			client, from := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }, marketplace.Limits{})
			clients = append(clients, client)
			from.Source.Name = "warm"
			_, err := client.Catalog(t.Context(), from, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			before, counted := heap(), client.CacheStats().Bytes
			for i := range 4 {
				from.Source.Name = fmt.Sprint(i)
				if _, err := client.Catalog(t.Context(), from, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			taken := heap() - before
			counted = client.CacheStats().Bytes - counted
			t.Logf("%d bytes are counted, %d are taken", counted, taken)
			if counted < taken*9/10 || counted > taken*14/10 {
				t.Error("that is not the same")
			}
		})
	}
	runtime.KeepAlive(clients)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
