package svc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/seal"
)

// maxFailing is how many failing sources are remembered: some 300 bytes each, and at most 10 MiB.
const maxFailing = 1 << 13

// failing are the sources that failed when this process asked them last, by when they were registered.
type failing struct {
	mu      sync.Mutex
	sources map[SourceKey]time.Time
}

// turned notes whether a source fails, and reports whether that is news.
func (f *failing) turned(up Upstream, fails bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	registered, was := f.sources[up.Source]
	if was = was && registered.Equal(up.Registered); was == fails {
		return false
	}
	if !fails {
		delete(f.sources, up.Source)
		return true
	}
	if f.sources == nil || len(f.sources) == maxFailing { // removed ones stay: forget all, and tell once more of those that still fail
		f.sources = map[SourceKey]time.Time{}
	}
	f.sources[up.Source] = up.Registered
	return true
}

// sourceProblem returns what is wrong with one source, of several that are dealt with, or the error when it is another.
func sourceProblem(err error) (string, error) {
	first, is := errors.AsType[*Error](err)
	if is && (slices.Contains([]Code{CodeNotFound, CodeSourceFailed, CodeSourceTimeout}, first.Code) || errors.Is(err, seal.ErrOpen)) {
		return first.Message, nil
	}
	return "", err
}

// asked tells the host when a source begins to fail, and when it answers again. An entry of its catalogue that is bad, or not there, is no
// failure of the source.
func (s *Service) asked(ctx context.Context, by Principal, up Upstream, err error) {
	if s.copies == nil || errors.Is(err, context.Canceled) { // in a transaction of the host, or given up
		return
	}
	code := ErrorCode(err)
	fails := (code == CodeSourceFailed || code == CodeSourceTimeout) && !errors.Is(err, ErrBadEntry)
	if !s.failing.turned(up, fails) {
		return
	}
	action := EventSourceFailing
	if !fails {
		action = EventSourceRecovered
	}
	_ = s.announce(ctx, by.signs(happened(s.now(), action, up.Source.Target()))) // outside of a transaction it does not fail
}
