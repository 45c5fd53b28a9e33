package svc

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/readcache"
	"github.com/extsvc/svc/internal/semaphore"
)

// accessRows is the rows of access that decisions need. All generations from the first to the last
// of its span have these rows.
type accessRows struct {
	*accessindex.Index
	from, at int64
	changes  int64 // accessCache.changes before at was read
	resets   int64
}

// accessCache provides the rows of access to questions about many principals. It reads all rows
// once, and then what has changed since, when a question comes. Decisions do not use it: they read
// the rows of one principal.
type accessCache struct {
	*authorizer
	analyses *fairqueue.Queue // of calls that compare access or list rights: each takes megabytes
	most     int64            // bytes to keep; 0: it keeps nothing
	changes  atomic.Int64     // counts the changes of rows that kept may lack
	resets   atomic.Int64     // counts how often every row may have changed

	turn semaphore.Semaphore // held by the caller that reads
	mu   sync.RWMutex        // while kept moves, nobody looks
	kept *accessRows         // nil: none. Set with turn and mu
	at   atomic.Int64        // the generation up to which kept was read or written, or 0
}

// newAccessCache returns a cache that keeps at most so many bytes, and hears of every change of access.
// Call it before the first use of g: onChange has no lock.
func newAccessCache(g *authorizer, most int, analyses *fairqueue.Queue) *accessCache {
	s := &accessCache{
		authorizer: g, analyses: analyses, most: int64(most), turn: make(semaphore.Semaphore, 1),
	}
	if g.inTransaction {
		s.most = 0
	}
	g.onChange(func(changed Target, generation int64) {
		switch changed.Kind {
		case event.TargetTemplate, event.TargetSource, event.TargetAPIKey, event.TargetChannel:
		default:
			if generation > s.at.Load() {
				s.changes.Add(1)
			}
		}
	})
	g.cached.OnReset(func() { s.resets.Add(1) })
	return s
}

// analyse waits for a turn to compare access or to list rights. A caller with many calls delays
// another one by one call.
func (s *accessCache) analyse(ctx context.Context, by Principal) (leave func(), err error) {
	caller := fairqueue.Flow{Owner: s.tenant, Kind: string(by.Kind), ID: by.ID}
	return s.analyses.Acquire(ctx, caller, 0, 0)
}

// look calls do with rows of access that are as fresh as cached decisions, and of the generation
// least or later. do must be quick and keep nothing of all: changes wait for it. Of concurrent
// callers one reads.
func (s *accessCache) look(ctx context.Context, least int64, do func(all *accessRows)) error {
	if err := ctx.Err(); err != nil {
		return fault("read all access", err)
	}
	if s.looked(least, do) {
		return nil
	}
	s.cached.Follow()
	release, err := s.turn.Acquire(ctx)
	if err != nil {
		return fault("read all access", err)
	}
	defer release()
	if s.looked(least, do) { // another caller has read
		return nil
	}
	all, err := s.read(ctx)
	if err == nil {
		do(all)
	}
	return fault("read all access", err)
}

// advance makes the kept rows those of the latest generation, when none of them has changed since.
func (s *accessCache) advance() {
	release, free := s.turn.TryAcquire()
	if !free {
		return // a caller is just reading them
	}
	defer release()
	v, fresh := s.cached.View()
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh && s.current(v) {
		s.kept.at = v.Generation // and s.at stays: every change up to here has been told
	}
}

// errOldRows says that rows of access have changed since they were read.
var errOldRows = errors.New("rows of access have changed since they were read")

// lookAt is look for the rows of one generation. errOldRows: some have changed since.
func (s *accessCache) lookAt(ctx context.Context, at int64, do func(all *accessRows)) error {
	s.advance()
	same := false
	err := s.look(ctx, at, func(all *accessRows) {
		if same = all.from <= at; same {
			do(all)
		}
	})
	if err == nil && !same {
		err = errOldRows
	}
	return err
}

// unchanged returns errOldRows when rows of access have changed since a generation. In a
// transaction that holds a lock of [Locks] to change access, they then stay the same until its end.
func (s *accessCache) unchanged(ctx context.Context, tx Store, since int64) error {
	read := AccessRead{Since: since, Bare: true}
	next, err := tx.ReadAccess(ctx, read, func(Bundle) error { return nil })
	if err == nil && (next.Reset || len(next.Targets) > 0) {
		err = errOldRows
	}
	return err
}

// looked is look for kept rows. false: there are none, or they are too old.
func (s *accessCache) looked(least int64, do func(all *accessRows)) bool {
	v, fresh := s.cached.View()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !fresh || !s.current(v) || s.kept.at < least {
		return false
	}
	do(s.kept)
	return true
}

// current reports whether there are kept rows and a View that was taken before has the same. A
// change that the View has applied is counted before. The caller holds mu.
func (s *accessCache) current(v readcache.View) bool {
	e := s.kept
	return e != nil && v.Holds(e.at) &&
		e.changes == s.changes.Load() && e.resets == s.resets.Load()
}

// read returns rows of the store's present generation: those that are kept, moved, or new ones. The
// caller holds turn. It counts changes before it reads.
func (s *accessCache) read(ctx context.Context) (*accessRows, error) {
	if e := s.kept; e != nil && e.at > 0 && e.resets == s.resets.Load() {
		moved, err := s.move(ctx, e, s.changes.Load())
		if moved || err != nil {
			return e, err
		}
	}
	s.keep(nil) // so that two are never in memory
	e, err := s.readAll(ctx, s.store)
	if err == nil {
		s.cached.Hear(e.at)
		s.keep(e)
	}
	return e, err
}

// readAll reads all rows of the store's present generation.
func (s *accessCache) readAll(ctx context.Context, from Store) (*accessRows, error) {
	e := &accessRows{
		Index:   accessindex.NewIndexed(s.compiler.Schema()),
		changes: s.changes.Load(), resets: s.resets.Load(),
	}
	all, err := from.ReadAccess(ctx, AccessRead{Bare: true}, func(part Bundle) error {
		fill(e.Index, part)
		return nil
	})
	if err != nil {
		return nil, err
	}
	e.from, e.at = all.Generation, all.Generation
	return e, nil
}

// keep keeps rows, unless they are too large. nil keeps none.
func (s *accessCache) keep(e *accessRows) {
	if e != nil && e.Size() > s.most {
		e = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept = e; e == nil {
		s.at.Store(0)
	} else {
		s.at.Store(e.at)
	}
}

// bytes estimates the memory of the kept rows.
func (s *accessCache) bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.kept == nil {
		return 0
	}
	return s.kept.Size()
}

// release forgets the kept rows, unless a caller is just reading them.
func (s *accessCache) release() {
	if release, free := s.turn.TryAcquire(); free {
		s.keep(nil)
		release()
	}
}

// mostMoved is how many rows and memberships may move kept rows. Above it, all rows are read again.
const mostMoved = 100_000

var errMuchMoved = errors.New("much has changed")

// wrote moves kept rows by a write that is committed, and was made over those of a generation. When
// the store is further by more than this one mutation, the next question reads what has changed.
func (s *accessCache) wrote(at int64, w AccessWrite) {
	release, free := s.turn.TryAcquire()
	if !free {
		return // a caller is just reading them
	}
	defer release()
	e, changes := s.kept, s.changes.Load()
	v, fresh := s.cached.View()
	if e == nil || e.at != at || e.resets != s.resets.Load() || w.Size() > mostMoved ||
		!fresh || v.Generation != at+1 || !v.Holds(at) {
		return
	}
	// The caller has the documents as well, and may change them.
	w.Policies = lists.Map(w.Policies, func(p Policy) Policy {
		p.Document = slices.Clone(p.Document)
		return p
	})
	w.BankPolicies = lists.Map(w.BankPolicies, func(b BankPolicy) BankPolicy {
		b.Document = slices.Clone(b.Document)
		return b
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	w.put(e.Index)
	e.from, e.at, e.changes = v.Generation, v.Generation, changes
	if s.at.Store(e.at); e.Size() > s.most {
		s.kept = nil
		s.at.Store(0)
	}
}

// move moves kept rows to the store's present generation. false: all rows must be read again.
func (s *accessCache) move(
	ctx context.Context, e *accessRows, changes int64,
) (moved bool, err error) {
	var rows Bundle
	size := 0
	next, err := s.store.ReadAccess(
		ctx, AccessRead{Since: e.at, Bare: true}, func(part Bundle) error {
			size += part.size()
			for _, g := range part.Groups {
				size += len(g.Members)
			}
			if size > mostMoved {
				return errMuchMoved
			}
			rows.add(part)
			return nil
		})
	if errors.Is(err, errMuchMoved) || err == nil && next.Reset {
		return false, nil
	} else if err != nil {
		return false, err
	}
	s.cached.Hear(next.Generation)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = nil // while only a part of it has moved
	_, named := next.OfAccess()
	follow(e.Index, named, rows)
	if e.at, e.changes = next.Generation, changes; len(next.Targets) > 0 {
		e.from = next.Generation
	}
	if e.Size() <= s.most {
		s.kept = e
		s.at.Store(e.at)
	}
	return true, nil
}

// add adds a part that a store has read. A group may continue that of the part before.
func (b *Bundle) add(part Bundle) {
	for _, g := range part.Groups {
		if last := len(b.Groups) - 1; last >= 0 && b.Groups[last].ID == g.ID {
			b.Groups[last].Members = append(b.Groups[last].Members, g.Members...)
		} else {
			b.Groups = append(b.Groups, g)
		}
	}
	part.Groups = nil
	for _, k := range kinds {
		k.join(b, &part)
	}
}

func (k *kind[R, K]) join(b, part *Bundle) { *k.rows(b) = append(*k.rows(b), *k.rows(part)...) }

// follow makes r have the named rows as they are in rows. Those that are not in rows do not exist.
func follow(r *accessindex.Index, named AccessNames, rows Bundle) {
	for _, k := range kinds {
		k.leave(r, &named, &rows)
	}
	for _, group := range named.MembersOf {
		r.Empty(group)
	}
	leave(r, named.Members)
	fill(r, rows)
}

// leave ends memberships in r.
func leave(r *accessindex.Index, all []Membership) {
	users := map[string][]string{}
	for _, m := range all {
		users[m.Group] = append(users[m.Group], m.User)
	}
	for group, ids := range users {
		r.Leave(group, ids...)
	}
}

// subjectIn returns the subject of decisions about a principal, narrowed by a scoping policy. "":
// it is not narrowed. The subject is closed for an unknown or inactive principal: unlike a
// decision, an analysis has no host that could vouch for a user without a row.
func subjectIn(r *accessindex.Index, who Identity, narrowedBy string) policy.Subject {
	a := snapshot(r, AccessQuery{Identity: who, ScopingPolicyID: narrowedBy, Bare: true}, "")
	subject := a.subject(who)
	a.narrow(&subject, narrowedBy)
	subject.Grants = r.Grants(subject.UserID)
	return subject
}

// overlaid calls cut with the stored rows and with what a bundle would write over them, for a
// caller that may read them. cut takes what it needs out of the rows; look says what it may do.
// senders are the users that have channels after the write, at least those of channels. wrong is
// the error that the form of the request has shown already; nil: none.
//
// The rows of the bundle are checked after the right: their errors cost more, and those of
// references would show which rows exist.
func (s *accessCache) overlaid(
	ctx context.Context, by Principal, compiler *policy.Compiler, bundle Bundle, how BundleWrite,
	wrong error, channels []Channel,
	cut func(all *accessRows, write AccessWrite, senders map[Channel]string),
) (err error) {
	// Callers ask before they wait for their turn. In the meantime the right may have ended.
	if err := s.authorize(ctx, by, action.UsersRead); err != nil {
		return err
	}
	bundle, err = bundle.normalize(&checker{compiler: compiler})
	// The faults of the question and of the bundle come together, so that a caller can mend all of
	// them together.
	if err := errors.Join(wrong, err); err != nil {
		return err
	}
	var names *AccessNames // nil: all rows, to prune the others
	if !how.Prune {
		names = new(how.names(bundle))
		names.Channels = append(names.Channels, channels...)
	}
	// When access changes between the two reads, both are made again.
	for err = errOldRows; errors.Is(err, errOldRows); {
		current, at, failed := s.named(ctx, names)
		if failed != nil {
			return failed
		}
		a := newBundleDiff(compiler.Schema(), current, bundle)
		if a.remove, err = how.removal(current, bundle); err != nil {
			return err
		}
		write := a.write(a.rows())
		if err := a.err(); err != nil {
			return err
		}
		err = s.lookAt(ctx, at, func(all *accessRows) {
			cut(all, write, sendersAfter(write.Users, current.Users))
		})
	}
	return err
}

// named reads the named rows from the store; nil: all rows.
func (s *accessCache) named(
	ctx context.Context, names *AccessNames,
) (rows Bundle, generation int64, err error) {
	rows, generation, err = readRows(ctx, s.store, names)
	if err == nil {
		s.cached.Hear(generation)
	}
	return rows, generation, fault("read access", err)
}

// readRows is named for any store.
func readRows(
	ctx context.Context, from Store, names *AccessNames,
) (rows Bundle, generation int64, err error) {
	read, err := from.ReadAccess(ctx, AccessRead{Named: names}, func(part Bundle) error {
		rows.add(part)
		return nil
	})
	return rows, read.Generation, err
}

// simulated returns the snapshot for a query after a bundle is applied, and whether the bundle
// would change a row. Its Generation is that of the stored rows. Errors: see overlaid.
func (s *accessCache) simulated(
	ctx context.Context, by Principal, compiler *policy.Compiler, bundle Bundle,
	asked AccessQuery, wrong error,
) (after AccessSnapshot, changed bool, err error) {
	var write AccessWrite
	var rows *accessindex.Index
	var generation int64
	var sender string
	err = s.overlaid(ctx, by, compiler, bundle, BundleWrite{}, wrong, []Channel{asked.Channel},
		func(all *accessRows, w AccessWrite, senders map[Channel]string) {
			_, needed := w.reach()
			sender = senders[asked.Channel]
			needed.Add(asked.needs(sender))
			write, rows, generation = w, all.Excerpt(needed), all.at
		})
	if err != nil {
		return after, false, err
	}
	write.put(rows)
	after = snapshot(rows, asked, sender)
	after.Generation = generation
	return after, !write.Empty(), nil
}

// previewed returns all principals whose rights a bundle may change, before and after, and the
// tests that have another answer after. The censuses are incomplete when the compiler's call ends.
// Errors: see overlaid.
func (s *accessCache) previewed(
	ctx context.Context, by Principal, compiler *policy.Compiler, bundle Bundle, how BundleWrite,
	kept []AccessTest,
) (before, after *policy.Census, turned []AccessTest, err error) {
	run := testRun{}
	var write AccessWrite
	var rows *accessindex.Index
	var parties [][]policy.Member
	var needed accessindex.Rows
	err = s.overlaid(ctx, by, compiler, bundle, how, nil, senders(kept, bundle.Tests),
		func(all *accessRows, w AccessWrite, senders map[Channel]string) {
			write, run = w, testRun{w.testsAfter(kept), senders}
			parties, needed = all.touchedBy(w, run.needs())
			if compiler.Gathers(all.Reaching(parties)) {
				rows = all.Excerpt(needed)
			}
		})
	if err != nil || rows == nil {
		return nil, nil, nil, cmp.Or(err, fault("compare access", compiler.Err()))
	}
	later := rows.Excerpt(needed)
	write.put(later)
	if !compiler.Gathers(later.Reaching(parties)) {
		return nil, nil, nil, fault("compare access", compiler.Err())
	}
	before, after = census(compiler, rows, parties), census(compiler, later, parties)
	turned, err = run.turned(compiler, later)
	return before, after, turned, err
}

// testsAfter returns the tests after w is written over those that are kept.
func (w AccessWrite) testsAfter(kept []AccessTest) []AccessTest {
	after := Bundle{Tests: kept}
	gone := w.Remove.removed()
	tests.drop(&after, &gone)
	tests.drop(&after, &w.Bundle)
	return append(after.Tests, w.Tests...)
}
