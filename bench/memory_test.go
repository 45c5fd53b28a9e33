package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/sqlite"
)

// BenchmarkListMemory measures the peak of reachable memory during a list of all templates over
// HTTP, beyond what was reachable before. It looks each time that a piece is sent. The driver's
// memory outside Go's heap does not count.
func BenchmarkListMemory(b *testing.B) {
	for _, e := range allEngines {
		for _, size := range []size{small, large} {
			b.Run(e.name+"/"+size.name, func(b *testing.B) {
				s := siteOf(b, e, size)
				var peak, allocated uint64
				for b.Loop() {
					p, a, err := s.listMemory(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					peak, allocated = max(peak, p), a
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(peak)/1024, "KiB-peak")
				b.ReportMetric(float64(allocated)/float64(s.templates)/1024, "KiB-allocated/template")
			})
		}
	}
}

// listMemory returns the peak of reachable bytes, and all bytes allocated.
func (s *site) listMemory(ctx context.Context) (peak, allocated uint64, err error) {
	api := httpapi.New(s.service, httpapi.Options{})
	before, allocatedBefore := measure.Heap()
	pieces, every := 0, max(1, s.templates/10_000) // looking at a heap costs a collection
	w := &discard{between: func([]byte) {
		if pieces++; pieces%every == 0 {
			now, _ := measure.Heap()
			peak = max(peak, now-min(now, before))
		}
	}}
	if err := serve(ctx, api, svc.TemplateQuery{}, w); err != nil {
		return 0, 0, err
	}
	if pieces < s.templates*manifestSize/(64<<10) {
		return 0, 0, fmt.Errorf("the list was sent in %d pieces", pieces)
	}
	_, now := measure.Heap()
	return peak, now - allocatedBefore, nil
}

// BenchmarkResident measures the memory of a separate process that has opened a SQLite file and
// authenticated keys.
func BenchmarkResident(b *testing.B) {
	for _, size := range []size{small, large} {
		b.Run(size.name, func(b *testing.B) {
			s := siteOf(b, sqliteEngine, size)
			keys := filepath.Join(scratch, "keys")
			var list strings.Builder
			for _, key := range s.issued {
				list.WriteString(string(key.Key) + "\n")
			}
			if err := os.WriteFile(keys, []byte(list.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			var before, after float64
			for b.Loop() {
				var err error
				if before, after, err = residentInChild(s.place, keys); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(before, "MiB-before")
			b.ReportMetric(after, "MiB-resident")
		})
	}
}

func residentInChild(path, keys string) (before, after float64, err error) {
	c, err := startChild("look up", path, keys)
	if err != nil {
		return 0, 0, err
	}
	err = c.hear(&before, &after)
	return before, after, errors.Join(err, c.end())
}

// lookUpInChild authenticates keys and prints the memory of this process before and after.
func lookUpInChild(args []string) error {
	before, err := resident()
	after, failed := lookUp(args[0], args[1])
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	_, err = fmt.Println(before, after)
	return err
}

// lookUp authenticates 10,000 times and returns the memory of this process then, in MiB.
func lookUp(path, keys string) (float64, error) {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return 0, err
	}
	service, err := svc.New(config(store))
	if err != nil {
		return 0, err
	}
	list, err := os.ReadFile(keys)
	if err != nil {
		return 0, err
	}
	tokens := bytes.Fields(list)
	for i := range 10_000 {
		if _, err := service.Authenticate(ctx, string(tokens[i%len(tokens)])); err != nil {
			return 0, err
		}
	}
	after, err := resident()
	return after, errors.Join(err, service.Close(), store.Close())
}

var residentLine = regexp.MustCompile(`VmRSS:\s+([0-9]+) kB`)

// resident returns the memory of this process in MiB.
func resident() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	found := residentLine.FindSubmatch(status)
	if found == nil {
		return 0, errors.New("the kernel does not tell VmRSS")
	}
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	return kib / 1024, err
}
