package svc_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// heapNow returns the bytes of the heap that are in use.
func heapNow() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An open tenant takes little memory beside what it caches.
func TestIdleTenantIsSmall(t *testing.T) {
	const count = 100
	in := newTenants(t, svc.TenantsConfig{})
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint("t", i))
	}
	makeTenants(t, in, names...)
	before := heapNow()
	for _, name := range names {
		_ = issueIn(t, in, name)
		if _, err := bearerIn(t.Context(), in, name, issueIn(t, in, name)); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heapNow() - before) / count; each > 100_000 {
		t.Errorf("%d bytes each", each)
	}
	runtime.KeepAlive(in)
}

// Beyond the bound of all, tenants give their memory back: those that nobody uses close, and those
// in use forget what they have cached.
func TestMemoryOfTenantsIsBounded(t *testing.T) {
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{Memory: 8 << 20})
	names := []string{"a", "b", "c", "d", "e", "f"}
	makeTenants(t, in, names...)
	large := strings.Repeat("x", 60_000)
	fill := func(s *svc.Service) error { // some 6 MB
		for i := range 100 {
			_, err := s.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: svc.Content{
				Name: "x", Manifest: fmt.Appendf(nil, `{"version":"1","text":%q}`, large),
			}})
			if err != nil && svc.ErrorCode(err) != svc.CodeExists {
				return err
			}
		}
		return nil
	}
	read := func(s *svc.Service) error { // twice: the first asks for the copies
		for range 2 {
			for _, err := range s.Templates.List(t.Context(), svc.Host, svc.TemplateQuery{}) {
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, name := range names {
		is.NoErr(in.Use(t.Context(), name, fill))
	}
	stored := heapNow()
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	for _, name := range names {
		started := make(chan error)
		go func() {
			_ = in.Use(t.Context(), name, func(s *svc.Service) error {
				started <- read(s)
				<-held
				return nil
			})
		}()
		is.NoErr(<-started)
	}
	waitFor(t, func() bool { return heapNow()-stored < 12<<20 })
	for _, name := range names {
		is.NoErr(in.Use(t.Context(), name, read))
	}
}
