package bench_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/marketplace"
)

// catalogLimit is the default limit in marketplace.Limits.
const catalogLimit = 32 << 20

// floods are answers of some size, plain and compressed.
var floods = map[string]func(size int) http.HandlerFunc{
	"body": func(size int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { pour(size, w.Write) }
	},
	"gzip": func(size int) http.HandlerFunc {
		var bomb bytes.Buffer
		zip := gzip.NewWriter(&bomb)
		pour(size, zip.Write)
		_ = zip.Close() // nothing of this fails in memory
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}
	},
}

// pour writes a catalogue without an end, up to size bytes or until the reader stops.
func pour(size int, write func([]byte) (int, error)) {
	piece := []byte(`{"templates":[` + strings.Repeat(" ", 64<<10))
	for sent := 0; sent < size; {
		n, err := write(piece)
		if sent += n; err != nil {
			return
		}
		piece = piece[len(piece)-64<<10:]
	}
}

// BenchmarkFlood measures a client's peak of memory, beyond what was reachable before. The source
// answers with 1 GiB, or with the largest catalogue allowed.
func BenchmarkFlood(b *testing.B) {
	for name, answer := range floods {
		b.Run(name, func(b *testing.B) { peakOf(b, answer(1<<30), refused) })
	}
	const entrySize = 2 << 10
	largest := newCatalogue(catalogLimit/entrySize-200, entrySize).body
	b.Run("largest", func(b *testing.B) {
		peakOf(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(largest) }, func(err error) error { return err })
	})
}

func peakOf(b *testing.B, answer http.HandlerFunc, want func(error) error) {
	source := httptest.NewServer(answer)
	b.Cleanup(source.Close)
	peak := uint64(0)
	for b.Loop() {
		client, err := marketplace.New(marketplace.Config{AllowOrigins: []string{source.URL}, Cache: -1})
		if err != nil {
			b.Fatal(err)
		}
		peak = max(peak, measure.Peak(func() {
			_, err = client.Template(b.Context(), svc.Upstream{URL: source.URL}, templateID(0))
		}))
		client.CloseIdleConnections()
		if err := want(err); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-peak")
	b.ReportMetric(float64(peak)/catalogLimit, "x-limit")
}

// refused checks that an answer was refused for its size.
func refused(err error) error {
	if svc.ErrorCode(err) != svc.CodeSourceFailed || !strings.Contains(err.Error(), fmt.Sprintf("larger than %d bytes", catalogLimit)) {
		return errors.Join(errors.New("it is not refused for its size"), err)
	}
	return nil
}

// TestFloods checks that the client refuses the measured answers.
func TestFloods(t *testing.T) {
	for name, answer := range floods {
		source := httptest.NewServer(answer(catalogLimit * 5 / 4))
		t.Cleanup(source.Close)
		client, err := marketplace.New(marketplace.Config{AllowOrigins: []string{source.URL}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Template(t.Context(), svc.Upstream{URL: source.URL}, "chat")
		if err := refused(err); err != nil {
			t.Error(name, ": ", err)
		}
	}
}
