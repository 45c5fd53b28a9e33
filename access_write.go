package svc

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/answers"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/semaphore"
	"github.com/extsvc/svc/limits"
)

// Access writes and reads the rows that decide access as a whole: users, groups, service accounts,
// policies, attachments and bank policies. Its methods may be called concurrently.
type Access struct{ *accessWriter }

// Apply writes a bundle in one transaction, as an upsert. Rows that are not in the bundle stay. A
// row that is built in Go is written whole, but for nil Channels and Members. A row that
// [ParseBundle] has read changes what its JSON form names. Rows that are already equal cause no
// event. Apply copies the bundle. by must be [Host]: other callers use [Access.Write].
//
// Rows may name rows of the store and of the bundle, in any order. Calls run one after the other,
// in all processes. Decisions of this Service count the rows when Apply returns, and those of
// others as [Service.Decide] says. Each row that changed is an event ([event.AccessWritten]); a
// channel is that of its user, a member that of its group.
//
// Errors: CodeInvalid and CodeExists (a channel of another user), joined, each with the JSON
// pointer into the bundle, at most [limits.Errors]. Apply looks at the store only when the bundle
// itself has no error.
func (s *Access) Apply(ctx context.Context, by Principal, bundle Bundle) error {
	return s.Load(ctx, by, bundle, nil)
}

// Load is [Access.Apply] of a large bundle, with reports while the store writes. progress gets the
// number of rows, channels and memberships written so far, and of all that differ from the store,
// after some thousands each. Nil, or no difference: no reports.
//
// progress is called in the transaction, by one goroutine at a time: it is quick, and makes no
// calls of the Service. done starts again when the store runs the transaction again. With
// [EventConfig].Keep, the records come after the last call, and take longer than the rows.
func (s *Access) Load(
	ctx context.Context, by Principal, bundle Bundle, progress func(done, total int),
) error {
	if by.Kind != KindHost {
		return forbidden("only the host application may apply a bundle without limits: use Write")
	}
	// A separate compiler: the shared one keeps nothing of a refused bundle.
	bundle, err := bundle.normalize(&checker{compiler: s.compiler.Apart(ctx)})
	var kept []AccessTest
	if err == nil && len(bundle.Tests) > 0 {
		kept, err = s.Tests(ctx, by)
	}
	if err != nil {
		return err
	}
	write := func(ctx context.Context, tx Store) (changed []Event, err error) {
		err = tx.ChangeAccess(ctx, bundle.names(), func(current Bundle) (AccessWrite, error) {
			current.Tests = slices.Concat(kept, current.Tests)
			a := newBundleDiff(s.compiler.Schema(), current, bundle)
			w := a.write(a.rows())
			changed = s.eventsOf(a, w)
			if total := w.Size(); progress != nil {
				w.Progress = func(done int) { progress(done, total) }
			}
			return w, a.err()
		})
		return changed, err
	}
	return fault("write access", s.commit(ctx, change{by: by, access: true, write: write}))
}

// Write writes a bundle for any caller, in one transaction. A caller needs the write action of each
// list that the bundle has, of all lists with Prune, that of attachments with Detach, or without
// any iam:users:read, and what single writes need: see [Users]. Errors: those of Apply; CodeInUse
// (Prune would remove a policy that narrows a key), CodeLastAdministrator, CodePrecondition.
func (s *Access) Write(
	ctx context.Context, by Principal, bundle Bundle, how BundleWrite,
) error {
	need := bundle.actions(how)
	for _, action := range need {
		if err := s.authorize(ctx, by, action); err != nil {
			return err
		}
	}
	bundle, err := bundle.normalize(&checker{compiler: s.compiler.Apart(ctx)})
	if err != nil {
		return err
	}
	var names *AccessNames // nil: all rows
	if !how.Prune && how.Revision == "" && len(bundle.Tests) == 0 {
		names = new(how.names(bundle))
	}
	return s.edit(ctx, writeRequest{
		by: by, need: need, dry: how.DryRun, doing: "write access", names: names,
		plan: func(ctx context.Context, tx Store, current Bundle) (d writePlan, err error) {
			seen := strings.Fields(how.Revision)
			if how.Revision != "" && !slices.Contains(seen, current.Revision()) {
				const message = "access has changed since you read it: look again"
				return d, &Error{Code: CodePrecondition, Message: message}
			}
			d.bundle = bundle
			if d.remove, err = how.removal(current, bundle); err != nil {
				return d, err
			}
			for _, id := range d.remove.Policies {
				n, err := countNarrowed(ctx, tx, id, d.remove)
				if err != nil {
					return d, err
				}
				if n > 0 && d.refused == nil {
					d.refused = policyInUse(id, 0, 0, n)
				}
			}
			return d, nil
		},
	})
}

// Tests returns the kept tests, by ID. by needs [action.PoliciesRead].
func (s *Access) Tests(ctx context.Context, by Principal) (all []AccessTest, err error) {
	if err := s.authorize(ctx, by, action.PoliciesRead); err != nil {
		return nil, err
	}
	page := AccessPage{Kind: event.TargetTest, Limit: 100 * limits.AccessTests} // earlier versions kept more
	_, err = s.base.store.ReadAccess(ctx, AccessRead{Page: &page}, func(part Bundle) error {
		all = append(all, part.Tests...)
		return nil
	})
	return all, fault("read tests", err)
}

// RemoveTest removes a kept test. by needs [action.PoliciesWrite]. Errors: CodeNotFound.
func (s *Access) RemoveTest(ctx context.Context, by Principal, id string) error {
	return s.edit(ctx, writeRequest{
		by: by, need: []string{tests.write}, doing: "remove a test",
		names: &AccessNames{Tests: []string{possibleID(id)}},
		plan: func(_ context.Context, _ Store, current Bundle) (d writePlan, err error) {
			if d.remove = current.keys(); len(d.remove.Tests) == 0 {
				err = notFound("there is no such test")
			}
			return d, err
		},
	})
}

// actions returns what a caller needs for a write of b. Without rows it still compares revisions.
func (b Bundle) actions(how BundleWrite) (need []string) {
	for _, k := range kinds {
		_, write := k.label()
		detaches := len(how.Detach) > 0 && write == action.AttachmentsWrite
		if how.Prune || detaches || k.size(&b) > 0 {
			need = append(need, write)
		}
	}
	if need == nil {
		need = []string{action.UsersRead}
	}
	return need
}

// Export returns all rows but built-in policies, as Apply takes them: one snapshot of the store, in
// memory as a whole. The caller needs [action.UsersRead], [action.GroupsRead],
// [action.PoliciesRead], [action.AccountsManage] and [action.BanksRead].
func (s *Access) Export(ctx context.Context, by Principal) (Bundle, error) {
	for _, action := range []string{
		action.UsersRead, action.GroupsRead, action.PoliciesRead, action.AccountsManage,
		action.BanksRead,
	} {
		if err := s.authorize(ctx, by, action); err != nil {
			return Bundle{}, err
		}
	}
	all, _, err := s.named(ctx, nil)
	all.Policies = slices.DeleteFunc(all.Policies, Policy.Builtin)
	return all, err
}

// accessWriter writes rows of access, for the nouns that have them.
type accessWriter struct {
	*base
	*authorizer
	*committer
	*keyHasher // judges the keys of callers again
	*accessCache
	// judging is held by the edit that is judged and written. So the edits of this process do not
	// make each other's rows stale. To judge for long, an edit releases it.
	judging semaphore.Semaphore
}

// writeRequest is a change of some rows of access by a caller.
type writeRequest struct {
	by    Principal
	need  []string // the actions that the caller needs
	dry   bool     // judges the edit and writes nothing
	doing string   // for errors of the store
	// forget is the user whose texts the records erase. "": nobody.
	forget string
	at     string       // the place of the caller's row in a bundle, which errors leave out
	locks  Locks        // zero: ChangeAccess
	names  *AccessNames // the rows to read; nil: all
	// judged is the judgement of the edit outside its transaction. Nil: the transaction judges it,
	// by rows that it reads for itself, in so many steps.
	judged *judgement
	steps  int64
	done   func() // as in change
	// plan returns what to write, given the named rows. It may read tx. Its errors refuse the
	// request: a missing row, a wrong reference. It may be called again, with newer rows.
	plan func(ctx context.Context, tx Store, current Bundle) (writePlan, error)
}

// writePlan is what an edit would write.
type writePlan struct {
	bundle   Bundle      // normalized
	referred Bundle      // rows of the store that bundle refers to, unless the edit has named them
	remove   AccessNames // rows to remove; the keys of removed holders are revoked
	refused  error       // refuses the edit after all checks of rights; nil: it may be written
}

// edit carries out a request in one transaction. All edits and bundles happen one after the other.
// It judges the edit before the transaction, which takes locks, by rows of one generation. The
// transaction then only checks that these rows still hold.
//
// Errors come in this order: the action, those of plan, references to missing rows, rights beyond
// those of the caller, the draft's own, and the last administrator.
func (s *accessWriter) edit(ctx context.Context, e writeRequest) error {
	for _, action := range e.need {
		if err := s.authorize(ctx, e.by, action); err != nil {
			return err
		}
	}
	return fault(e.doing, within(e.at, s.tryEdit(ctx, e)))
}

// staleTries is how often an edit is judged again outside of its transaction, because other callers
// have changed access in the meantime. Then its transaction judges it.
const staleTries = 8

// shortSteps is the most work to judge an edit while other edits wait: some milliseconds.
const shortSteps = policy.MaxSteps / 64

// tryEdit carries out an edit whose caller has the right.
func (s *accessWriter) tryEdit(ctx context.Context, e writeRequest) error {
	e.steps = policy.MaxSteps
	switch {
	case e.dry: // without a transaction: no writer waits for it
		for {
			if _, err := s.judgeLong(ctx, e); !errors.Is(err, errOldRows) {
				return err
			}
		}
	case e.by.Kind == KindHost || s.inTransaction:
		return s.commitEdit(ctx, e)
	}
	for range staleTries {
		if err := s.tryJudged(ctx, e); !errors.Is(err, errOldRows) {
			return err
		}
	}
	e.steps = shortSteps
	err := s.commitEdit(ctx, e)
	if ErrorCode(err) == CodeTooComplex { // it takes longer than rows stay the same
		err = ErrChanged
	}
	return err
}

// judgeLong is judgeEdit for work that may be long.
func (s *accessWriter) judgeLong(ctx context.Context, e writeRequest) (*judgement, error) {
	leave, err := s.analyse(ctx, e.by)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.judgeEdit(ctx, e)
}

// tryJudged judges an edit, then writes it. errOldRows: rows have changed between.
func (s *accessWriter) tryJudged(ctx context.Context, e writeRequest) (err error) {
	release, err := s.judging.AcquireWithin(ctx, editPatience, errEditing)
	if err != nil {
		return err
	}
	defer func() { release() }()
	e.done = func() {
		if e.judged.written != nil {
			s.wrote(e.judged.at, *e.judged.written)
		}
		release() // OnEvent may make another edit
	}
	short := e
	short.steps = shortSteps
	if e.judged, err = s.judgeEdit(ctx, short); ErrorCode(err) == CodeTooComplex {
		release()
		if e.judged, err = s.judgeLong(ctx, e); err == nil {
			release, err = s.judging.AcquireWithin(ctx, editPatience, errEditing)
		}
	}
	if err == nil {
		err = s.commitEdit(ctx, e)
	}
	return err
}

// commitEdit writes an edit. Its locks make others wait that change access, and those who rely on it
// unless the change adds users.
func (s *accessWriter) commitEdit(ctx context.Context, e writeRequest) error {
	return s.commit(ctx, change{
		by: e.by, access: true, forget: e.forget, done: e.done,
		locks: cmp.Or(e.locks, Locks{ChangeAccess: true}),
		write: func(ctx context.Context, tx Store) ([]Event, error) { return s.write(ctx, tx, e) },
	})
}

// within removes the start of pointers: a row of the bundle is the whole request of the caller.
func within(at string, err error) error {
	if at == "" {
		return err
	}
	return MapFields(err, func(e *Error) string { return strings.TrimPrefix(e.Field, at) })
}

// planned returns what an edit would write to a store that has the current rows.
func (e *writeRequest) planned(
	ctx context.Context, tx Store, schema *policy.Schema, current Bundle,
) (d writePlan, a *bundleDiff, w AccessWrite, err error) {
	if d, err = e.plan(ctx, tx, current); err != nil {
		return d, nil, w, err
	}
	current.add(d.referred)
	a = newBundleDiff(schema, current, d.bundle)
	a.remove = d.remove
	w = a.write(a.rows())
	if err = a.err(); ErrorCode(err) == CodeExists { // told after the rights
		d.refused, err = cmp.Or(d.refused, err), nil
	}
	return d, a, w, err
}

// judgeEdit judges an edit by rows of one generation. It locks nothing and writes nothing. For the
// transaction it leaves the refusals that follow those of rights, unless the edit is dry.
func (s *accessWriter) judgeEdit(ctx context.Context, e writeRequest) (*judgement, error) {
	store := s.base.store
	current, at, err := s.named(ctx, e.names)
	if err != nil {
		return nil, err
	}
	d, a, w, err := e.planned(ctx, store, s.compiler.Schema(), current)
	if err != nil {
		return nil, err
	}
	j := &judgement{at: at, rows: current, holders: d.remove.holders()}
	if e.by.Kind != KindHost {
		if e.dry && e.by.key != "" { // a transaction would judge the key
			if _, err := s.judge(ctx, store, e.by, AccessQuery{Bare: true}); err != nil {
				return nil, err
			}
		}
		err = s.judgeWrite(ctx, store, e, w, a, j, func(do func(all *accessRows)) error {
			return s.lookAt(ctx, at, do)
		})
	}
	if err == nil && e.dry {
		err = cmp.Or(d.refused, j.last)
	}
	return j, err
}

// write is the transaction of an edit, which has its locks.
func (s *accessWriter) write(ctx context.Context, tx Store, e writeRequest) ([]Event, error) {
	current, err := s.stillJudged(ctx, tx, e)
	if err != nil {
		return nil, err
	}
	d, a, w, err := e.planned(ctx, tx, s.compiler.Schema(), current)
	if err == nil && e.judged == nil {
		_, err = s.lockHolders(ctx, tx, e.by, d.remove.holders())
	}
	if err != nil {
		return nil, err
	}
	j := cmp.Or(e.judged, &judgement{})
	switch {
	case e.by.Kind == KindHost:
	case e.judged != nil:
		var narrowed []rightsHolder
		narrowed, err = narrowedHolders(ctx, tx, e.by, w, a.moved(w))
		if err == nil && !slices.Equal(narrowed, j.narrowed) {
			err = errOldRows // the edit changes the keys of other holders by now
		}
	default:
		err = s.judgeWrite(ctx, tx, e, w, a, j, func(do func(all *accessRows)) error {
			all, err := s.readAll(ctx, tx)
			if err == nil {
				do(all)
			}
			return err
		})
	}
	if err = cmp.Or(err, d.refused, j.last); err != nil || w.Empty() {
		return nil, err
	}
	w.NewUsers = e.locks.AddUsers
	j.written = &w
	return s.save(ctx, tx, w, a)
}

// save writes w. It revokes the keys of holders that it removes, and forgets their answers.
func (s *accessWriter) save(
	ctx context.Context, tx Store, w AccessWrite, a *bundleDiff,
) (events []Event, err error) {
	now := s.now()
	for _, holder := range w.Remove.holders() {
		revoked, err := revokeKeys(ctx, tx, holder, now, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		events = append(events, revoked...)
		if err := s.forgetAnswers(ctx, tx, holder); err != nil {
			return nil, err
		}
	}
	var gone []Target
	w.Gone = func(targets []Target) { gone = targets }
	err = tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (AccessWrite, error) { return w, nil })
	if err != nil {
		return nil, err
	}
	events = append(events, s.eventsOf(a, w)...)
	slices.SortFunc(gone, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})
	for _, t := range gone {
		action := event.TemplateDeleted
		if t.Kind == event.TargetSource {
			action = event.SourceRemoved
		}
		events = append(events, happened(now, action, t)...)
	}
	return events, nil
}

// lockHolders locks the keys of holders that go, so that no key and no personal row is made for
// them in the meantime. Then it locks and judges the caller's own key: see lockOwn.
func (s *accessWriter) lockHolders(
	ctx context.Context, tx Store, by Principal, holders []Identity,
) (generation int64, err error) {
	for _, holder := range holders {
		if err := tx.Lock(ctx, Locks{Holder: holder}); err != nil {
			return 0, err
		}
	}
	return s.lockOwn(ctx, tx, by)
}

// eventsOf returns an event for each row that an application writes or removes, with the row before
// and after. Of the members of a group, Was has those that leave and Is those that join.
func (s *accessWriter) eventsOf(a *bundleDiff, w AccessWrite) []Event {
	now := s.now()
	left := lists.Map(a.left, func(id string) Target { return Target{Kind: event.TargetGroup, ID: id} })
	events := happened(now, event.AccessWritten, append(a.changed.Targets(), left...)...)
	events = append(events, happened(now, event.AccessRemoved, w.Remove.removed().Targets()...)...)
	if s.committer.keep || s.onEvent != nil { // else nothing reads the rows
		was, is := a.before(w), a.after(w)
		for i := range events {
			of := events[i].Target
			events[i].Was, events[i].Is = eventRow(was[of]), eventRow(is[of])
		}
	}
	return events
}

// countNarrowed counts the keys that a policy narrows and that are not revoked, without those of
// holders that are removed with the policy.
func countNarrowed(ctx context.Context, tx Store, id string, gone AccessNames) (n int, err error) {
	leave := map[Kind][]string{KindUser: gone.Users, KindServiceAccount: gone.ServiceAccounts}
	for key, err := range keysOf(ctx, tx, APIKeyPage{ScopingPolicyID: id}) {
		if err != nil {
			return n, err
		}
		if !slices.Contains(leave[key.Holder.Kind], key.Holder.ID) {
			n++
		}
	}
	return n, nil
}

// forgetAnswers deletes the answers to a caller that is deleted: nobody else gets them.
func (s *base) forgetAnswers(ctx context.Context, tx Store, who Identity) error {
	if kept := rolesOf(tx).answers; kept != nil {
		return fault("delete answers", kept.DeleteAnswers(ctx, answers.Caller(s.caller(who))))
	}
	return nil
}
