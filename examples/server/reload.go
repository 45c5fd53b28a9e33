package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

// serving answers requests, and reloads what may change while the server runs: the certificate, the
// secrets of the keys file, and log.level. Peppers belong to a Service, so new secrets get a new
// Service over the same store. A file that cannot be read is logged, and its old
// content stays in use.
type serving struct {
	*call
	host    *host // of the newest Service
	base    string
	keys    secrets
	seen    os.FileInfo // of the keys file; nil: unknown
	certs   *certificates
	current atomic.Pointer[generation]
	retired sync.WaitGroup // generations that still answer
}

// generation is a Service with its handler.
type generation struct {
	http.Handler
	service *svc.Service

	mu    sync.Mutex
	ended bool // it gets no new request
	calls sync.WaitGroup
}

// begin counts a request, until calls.Done. false: a newer generation answers it.
func (g *generation) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.calls.Add(1)
	}
	return !g.ended
}

// end closes the Service when its last request is answered.
func (g *generation) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.calls.Wait()
	_ = g.service.Close() // which is always nil
}

// newServing returns the handler of all requests of a host.
func (c *call) newServing(h *host, base string, certs *certificates) *serving {
	s := &serving{call: c, host: h, base: base, keys: h.secrets, certs: certs}
	s.seen, _ = os.Stat(c.Keys)
	s.current.Store(&generation{Handler: c.handler(h), service: h.service})
	return s
}

func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := s.current.Load()
	for !g.begin() {
		g = s.current.Load()
	}
	defer g.calls.Done()
	g.ServeHTTP(w, r)
}

// looksApart is the least time between two looks at the files.
const looksApart = time.Second

// follow reloads at each hang-up, and the secrets also when their file has changed, until ctx ends.
func (s *serving) follow(ctx context.Context, hangUps <-chan os.Signal) {
	tick := time.NewTicker(looksApart)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if now, _ := os.Stat(s.Keys); !sameState(now, s.seen) {
				s.logged("the keys file", s.reloadSecrets())
			}
		case <-hangUps:
			level := s.logged("log.level", s.reloadLevel())
			keys := s.logged("the keys file", s.reloadSecrets())
			if s.logged("the certificate", s.certs.reload()) && keys && level {
				s.log.Info("reloaded log.level, the keys file and the certificate")
			}
		}
	}
	s.retired.Wait()
}

// sameState reports whether a file has not been written or replaced in between. nil: it was not there.
func sameState(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// logged logs an error, and reports whether there is none.
func (s *serving) logged(what string, err error) bool {
	if err != nil {
		s.log.Error("cannot reload "+what+": the old stays", "error", err)
	}
	return err == nil
}

// reloadLevel reads the configuration again, and takes log.level.
func (s *serving) reloadLevel() error {
	next, err := s.again()
	if err != nil {
		return err
	}
	s.level.Set(next.Log.slogLevel())
	next.Log.Level = s.Log.Level
	if !reflect.DeepEqual(next, s.config) {
		s.log.Warn("the configuration has changed: all settings but log.level need a restart")
	}
	return nil
}

// reloadSecrets reads the keys file. It refuses a file that lacks secrets in use: the keys under
// them would stop working.
func (s *serving) reloadSecrets() error {
	s.seen, _ = os.Stat(s.Keys) // before it is read: a later change is seen
	keys, err := readSecrets(s.Keys, s.log)
	if err != nil || reflect.DeepEqual(keys, s.keys) {
		return err
	}
	if !keys.follow(s.keys) {
		return errors.New("keys file " + s.Keys + " lacks secrets that are in use:" +
			" put them back, or restart")
	}
	next := &host{store: s.host.store}
	if err := next.use(s.config, keys, originsOf(s.base), s.log); err != nil {
		return err
	}
	old := s.current.Swap(&generation{Handler: s.handler(next), service: next.service})
	s.keys, s.host.service = keys, next.service
	s.retired.Go(old.end)
	s.log.Info("took new secrets from the keys file")
	return nil
}

// follow reports whether s has all versions of other, accepted or retired.
func (s secrets) follow(other secrets) bool {
	known := slices.Clone(s.Retired)
	for _, p := range s.accepted() {
		known = append(known, p.Version)
	}
	return !slices.ContainsFunc(other.accepted(), func(p pair) bool {
		return !slices.Contains(known, p.Version)
	})
}

// slogLevel returns the level, which is checked.
func (l logConfig) slogLevel() (level slog.Level) {
	_ = level.UnmarshalText([]byte(l.Level))
	return level
}
