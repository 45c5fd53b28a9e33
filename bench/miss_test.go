package bench_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/extsvc/svc"
)

// missKey compares a bearer that is no longer cached with the same statement, and with reading the
// row of the key alone.
func missKey(ctx context.Context, s *site) comparison {
	f := &forgetful{site: s, store: &gate{Store: s.store}}
	next := 0
	row := side{name: "row", call: func() error {
		var row keyRow
		next = (next + 1) % len(s.issued)
		return s.bare.keyRow.QueryRowContext(ctx, s.issued[next].ID).Scan(row.columns()...)
	}}
	service := side{name: "service", before: func(calls int) error { return f.begin(ctx, calls) }, call: func() error {
		return f.authenticate(ctx)
	}}
	return comparison{
		sides: []side{s.bareLookUp(ctx), row, service},
		same: func() error {
			return errors.Join(s.sameKey(ctx), row.call(), service.before(2), service.call(), service.call(), f.check())
		},
		done: f.close,
	}
}

// forgetful is a set of Services. Each call looks up another key, and then all caches are emptied.
type forgetful struct {
	*site
	store    *gate
	services []*svc.Service
	next     int
	read     int64 // look-ups in the store before the calls
}

// begin empties the caches of the Services. There are several when the calls are more than the
// keys.
func (f *forgetful) begin(ctx context.Context, calls int) error {
	if err := f.check(); err != nil {
		return err
	}
	for len(f.services)*f.fresh() < calls {
		service, err := svc.New(config(f.store))
		if err != nil {
			return err
		}
		f.services = append(f.services, service)
	}
	if err := f.forget(ctx); err != nil {
		return err
	}
	f.next, f.read = 0, f.store.reads.Load()
	return nil
}

// fresh returns the number of keys for calls: all but the first.
func (f *forgetful) fresh() int { return len(f.issued) - 1 }

// forget raises the generation so far that no Service can know the changes. An unknown key shows
// this to each Service. A Service is up to date again when it answers from memory.
func (f *forgetful) forget(ctx context.Context) error {
	unknown, err := makeKeys(ctx, 1, ofPrincipal)
	if err != nil {
		return err
	}
	if _, err := f.bare.write.ExecContext(ctx, `UPDATE svc_generation SET value = value + 1000000 WHERE id = 1`); err != nil {
		return err
	}
	for _, service := range f.services {
		if _, err := service.Authenticate(ctx, string(unknown[0].Key)); svc.ErrorCode(err) != svc.CodeUnauthenticated {
			return fmt.Errorf("an unknown key: %w", err)
		}
		for before := int64(-1); before != f.store.reads.Load(); {
			before = f.store.reads.Load()
			if _, err := service.Authenticate(ctx, string(f.issued[0].Key)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *forgetful) authenticate(ctx context.Context) error {
	service, key := f.services[f.next/f.fresh()], f.issued[1+f.next%f.fresh()]
	f.next++
	_, err := service.Authenticate(ctx, string(key.Key))
	return err
}

// check fails unless each call has read its key.
func (f *forgetful) check() error {
	if read := f.store.reads.Load() - f.read; f.services != nil && read != int64(f.next) {
		return fmt.Errorf("%d keys were read by %d calls", read, f.next)
	}
	return nil
}

func (f *forgetful) close() error {
	err := f.check()
	for _, service := range f.services {
		err = errors.Join(err, service.Close())
	}
	f.services = nil
	return err
}
