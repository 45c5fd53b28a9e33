//go:build planted

package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

func told(fault func(since int64, changes *svc.StoreChanges)) func(*store) {
	return func(s *store) {
		s.does["Changes"] = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			fault(since, &changes)
			return changes, err
		}
	}
}

var changeFaults = map[string]func(*store){
	"concurrent writers get an error": func(s *store) {
		var busy sync.Mutex
		s.does["CreateTemplate"] = func(ctx context.Context, t svc.Template) error {
			if !busy.TryLock() {
				return errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Millisecond)
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
}

// longFaults are the faults that only the slow rules catch.
var longFaults = map[string]func(*store){
	"all rows come in one part": func(s *store) {
		s.does["ReadAccess"] = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			var rows svc.Bundle
			changes, err := s.FullStore.ReadAccess(ctx, read, collect(&rows))
			if err == nil {
				err = yield(rows)
			}
			return changes, err
		}
	},
	"only 100 generations are kept": told(func(since int64, changes *svc.StoreChanges) {
		if changes.Generation-since > 100 {
			*changes = svc.StoreChanges{Generation: changes.Generation, Reset: true}
		}
	}),
	"older changes are left out without a Reset": told(func(since int64, changes *svc.StoreChanges) {
		changes.Targets = changes.Targets[max(0, len(changes.Targets)-1000):]
	}),
	"a no-break space is read as a space": func(s *store) {
		s.does["Template"] = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			key.ID = strings.ReplaceAll(key.ID, "\u00a0", " ")
			return s.FullStore.Template(ctx, key)
		}
	},
	"changes and the generation are read in two steps": func(s *store) {
		s.does["Changes"] = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			if err != nil || changes.Reset {
				return changes, err
			}
			time.Sleep(time.Millisecond)
			later, err := s.FullStore.Changes(ctx, changes.Generation)
			changes.Generation = later.Generation
			return changes, err
		}
	},
	"AwaitChange sees a change only after a second": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, _ int64) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return nil
			}
		}
	},
	"AwaitChange returns only after a change": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, since int64) error {
			for range 10 {
				changes, err := s.FullStore.Changes(ctx, since)
				if err != nil || changes.Generation != since {
					return err
				}
				if err := s.FullStore.AwaitChange(ctx, since); err != nil {
					return err
				}
			}
			return errors.New("waited for long enough")
		}
	},
	"AwaitChange does not wait": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, _ int64) error { return ctx.Err() }
	},
	"AwaitChange ignores the end of its context": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, since int64) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := s.FullStore.AwaitChange(context.WithoutCancel(ctx), since)
			return errors.Join(err, ctx.Err())
		}
	},
	"one change in a thousand is lost": func(s *store) {
		var mu sync.Mutex
		seen := 0
		s.does["Changes"] = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			mu.Lock()
			defer mu.Unlock()
			if seen += len(changes.Targets); seen > 1000 && len(changes.Targets) > 0 {
				seen = 0
				changes.Targets = changes.Targets[1:]
			}
			return changes, err
		}
	},
}

type atomically = func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error

func joins(fault func(good svc.Store, atomically atomically) atomically) func(*store) {
	return func(s *store) { s.does["Atomically"] = fault(s.FullStore, s.FullStore.Atomically) }
}

// around returns a fault in the function of a transaction: in its argument or its error.
func around(fault func(tx svc.Store, fn func(svc.Store) error) error) func(*store) {
	return joins(func(_ svc.Store, atomically atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			return atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				return fault(tx, func(tx svc.Store) error { return fn(ctx, tx) })
			})
		}
	})
}

// flat is a transaction that makes no other in it, and stuck a store whose Look sees nothing.
type flat struct{ svc.FullStore }
type stuck struct{ svc.FullStore }

func (f flat) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return fn(ctx, f)
}
func (stuck) Look(context.Context) (uint64, error) { return 7, nil }

var transactionFaults = map[string]func(*store){
	"Atomically starts no transaction": joins(func(good svc.Store, _ atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return fn(ctx, good)
		}
	}),
	"a transaction commits even when its function fails": joins(func(_ svc.Store, atomically atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			var failed error
			err := atomically(context.WithoutCancel(ctx), func(ctx context.Context, tx svc.Store) error {
				failed = fn(ctx, tx)
				return nil
			})
			return errors.Join(failed, err, ctx.Err())
		}
	}),
	"Look sees nothing": func(s *store) { s.FullStore = stuck{s.FullStore} },
	"a nested transaction is none": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(flat{tx.(svc.FullStore)})
	}),
	"a transaction lacks the optional roles": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(bare{tx})
	}),
}

var auditFaults = map[string]func(*store){
	"a rolled back event is chained": func(s *store) {
		s.does["Atomically"] = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				if err := fn(ctx, tx); err != errRefused {
					return err
				}
				return nil
			})
		}
	},
}

// longAuditFaults are the faults that only a long log shows.
var longAuditFaults = map[string]func(*store){
	"until skips what is newer than the first record that is too late": keeps(func(all []svc.AuditRecord, page svc.AuditQuery) []svc.AuditRecord {
		late := func(r svc.AuditRecord) bool { return !page.Until.IsZero() && !r.Time.Before(page.Until) }
		for i, record := range slices.Backward(all) {
			if i < len(all)-1000 && late(record) {
				return all[i:]
			}
		}
		return all
	}),
	"a list ends at 2,000 records that do not match": keeps(func(all []svc.AuditRecord, page svc.AuditQuery) []svc.AuditRecord {
		gap := 0
		for i, record := range all {
			if gap++; fits(record, page) {
				gap = 0
			}
			if gap == 2000 {
				return all[:i]
			}
		}
		return all
	}),
}

// keeps returns a fault in the records in which AuditRecords looks.
func keeps(fault func(all []svc.AuditRecord, page svc.AuditQuery) []svc.AuditRecord) func(*store) {
	return func(s *store) {
		s.does["AuditRecords"] = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			all, err := s.FullStore.AuditRecords(ctx, svc.AuditQuery{Before: page.Before, Limit: 10_000})
			found := slices.DeleteFunc(fault(all, page), func(r svc.AuditRecord) bool { return !fits(r, page) })
			return found[:min(len(found), page.Limit)], err
		}
	}
}

type claimEvents = func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error)

func claims(fault func(claim claimEvents) claimEvents) func(*store) {
	return func(s *store) { s.does["ClaimEvents"] = fault(s.FullStore.ClaimEvents) }
}

var outboxFaults = map[string]func(*store){
	"claimed events can be claimed again": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, _ time.Time, limit int) ([]svc.Event, error) {
			return claim(ctx, now, now, limit)
		}
	}),
	"claims from before the clock went back count": claims(func(claim claimEvents) claimEvents {
		var latest atomic.Int64
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			if now.Add(time.Minute).UnixMicro() < latest.Load() {
				return nil, nil
			}
			latest.Store(until.UnixMicro())
			return claim(ctx, now, until, limit)
		}
	}),
	"claims of clocks that differ do not count": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			return claim(ctx, now, until.Add(-time.Minute), limit)
		}
	}),
	"an empty outbox is an error": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			events, err := claim(ctx, now, until, limit)
			if err == nil && len(events) == 0 {
				err = svc.ErrNotFound
			}
			return events, err
		}
	}),
	"deleting missing events is an error": func(s *store) {
		s.does["DeleteEvents"] = func(ctx context.Context, ids []uuid.UUID) error {
			if slices.Contains(ids, newEvent(9).ID) {
				return svc.ErrNotFound
			}
			return s.FullStore.DeleteEvents(ctx, ids)
		}
	},
	"two concurrent KeepAnswer calls succeed": func(s *store) {
		s.does["KeepAnswer"] = func(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
			err := s.FullStore.KeepAnswer(ctx, answer, now)
			if errors.Is(err, svc.ErrExists) {
				if kept, read := s.FullStore.Answer(ctx, answer.Key, now); read == nil && kept.ExpiresAt.Equal(answer.ExpiresAt) {
					return nil
				}
			}
			return err
		}
	},
}
