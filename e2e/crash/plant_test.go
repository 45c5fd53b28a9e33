//go:build linux

package crash

import (
	"context"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

type fault string

const (
	sound      fault = ""
	ackEarly   fault = "acknowledged before the commit"
	ackFailed  fault = "acknowledged although the write failed"
	tornRows   fault = "two transactions for the rows of one template or bundle"
	tornRecord fault = "two transactions for a mutation and its record"
	tornHost   fault = "two transactions for the host's row and the key"
	tornUser   fault = "two transactions for a deletion and its keys"
	syncNormal fault = "synchronous=NORMAL"
	syncOff    fault = "synchronous=OFF"
	tornFile   fault = "synchronous=OFF, for what it does to the file"
	asyncWAL   fault = "synchronous_commit=off"

	asyncStandby fault = "a standby that the primary does not wait for"
)

func (f fault) synchronous() string {
	switch f {
	case syncNormal:
		return "normal"
	case syncOff, tornFile:
		return "off"
	}
	return "full"
}

// ignored returns the kinds of problems that the fault causes before its own.
func (f fault) ignored() []string {
	switch f {
	case tornRows, tornUser:
		return []string{"order"} // each half increments the generation
	case tornFile:
		return []string{"lost", "order"}
	}
	return nil
}

func (f fault) plant(store svc.FullStore) svc.FullStore {
	switch f {
	case ackEarly:
		return &writeBehind{FullStore: store}
	case ackFailed:
		return optimist{store}
	case tornRows:
		return tearer{store}
	case tornRecord:
		return divider{store}
	case tornUser:
		return procrastinator{store}
	}
	return store
}

// keeps reports whether the Service keeps records of events with the fault. Faults in single calls
// of the store need a Service without records.
func (f fault) keeps() bool { return f != ackEarly && f != ackFailed && f != tornRows && f != tornUser }

// people reports whether workers make people. With faults that tear or lose other writes, those
// writes should be what the test finds.
func (f fault) people() bool {
	return f != ackEarly && f != ackFailed && f != tornRows && f != tornRecord && f != tornHost
}

// writeBehind acknowledges keys and revocations and writes them a moment later, in order.
type writeBehind struct {
	svc.FullStore
	mu   sync.Mutex
	last chan struct{}
}

func (s *writeBehind) later(write func(ctx context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, done := s.last, make(chan struct{})
	s.last = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		time.Sleep(time.Millisecond)
		_ = write(context.Background()) // nobody gets the error: that is the fault
	}()
	return nil
}

func (s *writeBehind) CreateAPIKey(_ context.Context, key svc.APIKey) error {
	return s.later(func(ctx context.Context) error { return s.FullStore.CreateAPIKey(ctx, key) })
}

// Atomically joins no calls, so that keys are written late.
func (s *writeBehind) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return fn(ctx, s)
}

func (s *writeBehind) ChangeAPIKey(_ context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.later(func(ctx context.Context) error { return s.FullStore.ChangeAPIKey(ctx, holder, id, change) })
}

// optimist reports every revocation as done.
type optimist struct{ svc.FullStore }

// Atomically reports a transaction as committed that has revoked a key.
func (s optimist) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	revokes := false
	err := s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, revoker{tx.(svc.FullStore), &revokes})
	})
	if revokes {
		return nil
	}
	return err
}

// revoker notes that a transaction revokes a key.
type revoker struct {
	svc.FullStore
	revokes *bool
}

func (s revoker) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
		write, err := change(key)
		*s.revokes = *s.revokes || write && !key.RevokedAt.IsZero()
		return write, err
	})
}

func (s optimist) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	_ = s.FullStore.ChangeAPIKey(ctx, holder, id, change)
	return nil
}

// tearer writes in two transactions what belongs in one.
type tearer struct{ svc.FullStore }

func (s tearer) CreateTemplate(ctx context.Context, template svc.Template) error {
	bare := template
	bare.Tags = nil
	if err := s.FullStore.CreateTemplate(ctx, bare); err != nil {
		return err
	}
	return s.FullStore.ChangeTemplate(ctx, template.TemplateKey, func(t *svc.Template) (bool, error) {
		*t = template
		return true, nil
	})
}

func (s tearer) ChangeAccess(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	var policies []svc.BankPolicy
	err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
		write, err := change(current)
		policies, write.BankPolicies = write.BankPolicies, nil
		return write, err
	})
	if err != nil || policies == nil {
		return err
	}
	return s.FullStore.ChangeAccess(ctx, named, func(svc.Bundle) (svc.AccessWrite, error) {
		return svc.Bundle{BankPolicies: policies}.Write(), nil
	})
}

// divider runs each call of a transaction by itself.
type divider struct{ svc.FullStore }

func (s divider) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return fn(ctx, s.FullStore)
}

// procrastinator revokes the keys of a holder that goes after the transaction.
type procrastinator struct{ svc.FullStore }

func (s procrastinator) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	var later []func() error
	err := s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		later = nil
		return fn(ctx, postponing{tx.(svc.FullStore), func(holder svc.Identity, at time.Time, limit int) {
			later = append(later, func() error { return failure(s.RevokeAPIKeys(ctx, holder, at, limit)) })
		}})
	})
	for _, revoke := range later {
		if err == nil {
			time.Sleep(20 * time.Millisecond) // leaves time for a crash to show
			err = revoke()
		}
	}
	return err
}

type postponing struct {
	svc.FullStore
	postpone func(holder svc.Identity, at time.Time, limit int)
}

func (s postponing) RevokeAPIKeys(_ context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
	s.postpone(holder, at, limit)
	return nil, nil
}
