//go:build linux

package crash

import (
	"context"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
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
		return newWriteBehind(store)
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
	waiting chan func() error
}

func newWriteBehind(store svc.FullStore) writeBehind {
	s := writeBehind{store, make(chan func() error, 1000)}
	go func() {
		for write := range s.waiting {
			time.Sleep(time.Millisecond)
			_ = write() // nobody gets the error: that is the fault
		}
	}()
	return s
}

func (s writeBehind) CreateAPIKey(_ context.Context, key svc.APIKey) error {
	s.waiting <- func() error { return s.FullStore.CreateAPIKey(background, key) }
	return nil
}

// Atomically joins no calls, so that keys are written late.
func (s writeBehind) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return fn(ctx, s)
}

func (s writeBehind) ChangeAPIKey(
	_ context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error),
) error {
	s.waiting <- func() error { return s.FullStore.ChangeAPIKey(background, holder, id, change) }
	return nil
}

// around is a transaction whose calls a function makes.
func around(tx svc.Store, do func(call intercept.Call) error) svc.Store {
	each := func(_ context.Context, call intercept.Call) error { return do(call) }
	return &intercept.Store{FullStore: tx.(svc.FullStore), Around: each}
}

// optimist reports every revocation as done.
type optimist struct{ svc.FullStore }

// Atomically reports a transaction as committed that has revoked a key.
func (s optimist) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	revokes := false
	err := s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, around(tx, func(call intercept.Call) error {
			err := call.Do()
			key, changed := call.Result.(*svc.APIKey)
			revokes = revokes || changed && !key.RevokedAt.IsZero()
			return err
		}))
	})
	if revokes {
		return nil
	}
	return err
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
	var later []intercept.Call
	err := s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		later = nil
		return fn(ctx, around(tx, func(call intercept.Call) error {
			if call.Method != "RevokeAPIKeys" {
				return call.Do()
			}
			later = append(later, call)
			return nil
		}))
	})
	for _, call := range later {
		if err == nil {
			time.Sleep(20 * time.Millisecond) // leaves time for a crash to show
			err = call.On(s.FullStore)
		}
	}
	return err
}
