package svc

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"
)

// Access writes and reads the rows that decide access as a whole: users, groups, service accounts,
// policies, attachments and bank policies. Its methods may be called concurrently.
type Access struct{ *directory }

// Apply writes a bundle in one transaction, as an upsert. A row in the bundle is written whole,
// with defaults for what it leaves out. Rows that are not in the bundle stay; Apply removes none.
// Nil Channels and Members stay as they are; empty ones are cleared. Applying a bundle again
// changes nothing, and rows that are already equal cause no event. by must be [Host]: other callers
// use [Access.Write].
//
// Rows may name rows of the store and rows of the bundle, in any order. Calls of Apply run one
// after the other, in all processes. Decisions of this process count the rows when Apply returns,
// and those of others as [Service.Decide] says. Apply copies the bundle.
//
// Each row that changed is an event ([EventAccessWritten]); a channel is that of its user, a member
// that of its group. With [EventConfig].Keep, their records are in the same transaction.
//
// Errors: CodeForbidden; CodeInvalid and CodeExists (a channel of another user), joined, each with
// the JSON pointer into the bundle, at most [MaxErrors]; CodeUnavailable. Apply looks at the store
// only when the bundle itself has no error. On an error nothing is written.
func (s *Access) Apply(ctx context.Context, by Principal, bundle Bundle) error {
	return s.Load(ctx, by, bundle, nil)
}

// Load is [Access.Apply] of a large bundle, with reports while the store writes. progress gets the
// number of rows, channels and memberships written so far, and of all that differ from the store.
// Some thousands are written between two calls; nil, or no difference: none.
//
// progress is called in the transaction, before the commit, by one goroutine at a time. So it is
// quick, and makes no calls of the Service. done starts again at the beginning when the store runs
// the transaction again. With [EventConfig].Keep, the records of the events come after the last
// call, and take longer than the rows.
//
// Errors: those of Apply.
func (s *Access) Load(
	ctx context.Context, by Principal, bundle Bundle, progress func(done, total int),
) error {
	if by.Kind != KindHost {
		return forbidden("only the host application may apply a bundle without limits: use Write")
	}
	// A separate compiler: the shared one keeps nothing of a refused bundle.
	bundle, err := bundle.normalize(s.compiler.Apart(ctx))
	if err != nil {
		return err
	}
	err = s.commit(ctx, change{by: by, access: true, write: func(
		ctx context.Context, tx Store,
	) (changed []Event, err error) {
		err = tx.ChangeAccess(ctx, bundle.names(), func(current Bundle) (AccessWrite, error) {
			a := newApplication(current, bundle)
			w := a.write(a.rows())
			changed = s.eventsOf(a, w)
			if total := w.Size(); progress != nil {
				w.Progress = func(done int) { progress(done, total) }
			}
			return w, a.err()
		})
		return changed, err
	}})
	return fault("write access", err)
}

// BundleWrite says how [Access.Write] writes a bundle. The zero BundleWrite is as [Access.Apply].
type BundleWrite struct {
	// Prune removes the rows that the bundle does not name, as their Delete would. Built-in
	// policies stay. A group with nil Members keeps its members, and a user with nil Channels its
	// channels.
	Prune bool
	// DryRun makes all checks and writes nothing. [Access.Preview] shows what would change.
	DryRun bool
}

// Write writes a bundle for any caller, in one transaction. A caller needs the write action of each
// list that the bundle has, of all lists with Prune, and for the rest what single writes of the
// rows need: see [Users]. Rows and errors are those of Apply.
//
// Errors: those of Apply; CodeInUse (Prune would remove a policy that narrows a key),
// CodeLastAdministrator.
func (s *Access) Write(
	ctx context.Context, by Principal, bundle Bundle, how BundleWrite,
) error {
	need := bundle.actions(how.Prune)
	for _, action := range need {
		if err := s.authorize(ctx, by, action); err != nil {
			return err
		}
	}
	bundle, err := bundle.normalize(s.compiler.Apart(ctx))
	if err != nil {
		return err
	}
	return s.edit(ctx, edit{
		by: by, need: need, dry: how.DryRun, doing: "write access",
		names: bundle.names(), whole: how.Prune,
		plan: func(ctx context.Context, tx Store, current Bundle) (d draft, err error) {
			if d.bundle = bundle; !how.Prune {
				return d, nil
			}
			d.remove = current.without(bundle).keys()
			for _, id := range d.remove.Policies {
				n, err := countNarrowed(ctx, tx, id)
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

// actions returns what a caller needs to write the rows of b, or of every kind.
func (b Bundle) actions(all bool) (need []string) {
	for _, list := range []struct {
		rows   int
		action string
	}{
		{len(b.Users), ActionUsersWrite}, {len(b.Groups), ActionGroupsWrite},
		{len(b.ServiceAccounts), ActionAccountsManage}, {len(b.Policies), ActionPoliciesWrite},
		{len(b.Attachments), ActionAttachmentsWrite}, {len(b.BankPolicies), ActionBanksWrite},
	} {
		if all || list.rows > 0 {
			need = append(need, list.action)
		}
	}
	return need
}

// without returns the rows of b that other does not name, without built-in policies.
func (b Bundle) without(other Bundle) Bundle {
	return Bundle{
		Users:           rowsNotIn(b.Users, other.Users, User.key),
		Groups:          rowsNotIn(b.Groups, other.Groups, Group.key),
		ServiceAccounts: rowsNotIn(b.ServiceAccounts, other.ServiceAccounts, ServiceAccount.key),
		Policies: slices.DeleteFunc(
			rowsNotIn(b.Policies, other.Policies, Policy.key), Policy.Builtin),
		Attachments:  rowsNotIn(b.Attachments, other.Attachments, Attachment.key),
		BankPolicies: rowsNotIn(b.BankPolicies, other.BankPolicies, BankPolicy.key),
	}
}

func rowsNotIn[R any, K comparable](rows, other []R, key func(R) K) (out []R) {
	named := index(other, key)
	for _, row := range rows {
		if named[key(row)] == nil {
			out = append(out, row)
		}
	}
	return out
}

// Export returns all rows, as Apply takes them. Built-in policies are left out. It is one snapshot
// of the store, in memory as a whole. The caller needs [ActionUsersRead], [ActionGroupsRead],
// [ActionPoliciesRead], [ActionAccountsManage] and [ActionBanksRead]. Errors: CodeForbidden.
func (s *Access) Export(ctx context.Context, by Principal) (Bundle, error) {
	for _, action := range []string{
		ActionUsersRead, ActionGroupsRead, ActionPoliciesRead, ActionAccountsManage, ActionBanksRead,
	} {
		if err := s.authorize(ctx, by, action); err != nil {
			return Bundle{}, err
		}
	}
	all, _, err := readRows(ctx, s.base.store, AccessNames{}, true)
	all.Policies = slices.DeleteFunc(all.Policies, Policy.Builtin)
	return all, fault("read access", err)
}

// directory writes rows of access, for the nouns that have them.
type directory struct {
	*base
	*guard
	*journal
	*holders
	*rosters
	// judging is held by the edit that is judged. So the edits of this process do not make each
	// other's rows stale.
	judging chan struct{}
}

// edit is a change of some rows of access by a caller.
type edit struct {
	by    Principal
	need  []string    // the actions that the caller needs
	dry   bool        // judges the edit and writes nothing
	doing string      // for errors of the store
	at    string      // the place of the caller's row in a bundle, which errors leave out
	names AccessNames // the rows to read
	whole bool        // all rows are read
	own   bool        // the edit is judged by rows that it reads for itself
	// plan returns what to write, given the named rows. It may read tx. Its errors refuse the
	// request: a missing row, a wrong reference. It may be called again, with newer rows.
	plan func(ctx context.Context, tx Store, current Bundle) (draft, error)
}

// draft is what an edit would write.
type draft struct {
	bundle   Bundle      // normalized
	referred Bundle      // rows of the store that bundle refers to, unless the edit has named them
	remove   AccessNames // rows to remove; the keys of removed holders are revoked
	refused  error       // refuses the edit after all checks of rights; nil: it may be written
}

// edit carries out an edit in one transaction. All edits and bundles happen one after the other. It
// judges the caller by cached rows first, before the edit costs anything, and in the transaction by
// the rows that hold there.
//
// Errors come in this order: the action, those of plan, references to missing rows, rights beyond
// those of the caller, the draft's own, and the last administrator.
func (s *directory) edit(ctx context.Context, e edit) error {
	for _, action := range e.need {
		if err := s.authorize(ctx, e.by, action); err != nil {
			return err
		}
	}
	err := s.tryEdit(ctx, e)
	if errors.Is(err, errDry) {
		return nil
	}
	return fault(e.doing, within(e.at, err))
}

// staleTries is how often an edit tries to be judged by kept rows. Then it reads all rows.
const staleTries = 8

// tryEdit carries out an edit whose caller has the right. It tries again when other processes have
// changed access since the kept rows were read.
func (s *directory) tryEdit(ctx context.Context, e edit) error {
	if e.by.Kind == KindHost {
		return s.commitEdit(ctx, e)
	}
	select {
	case s.judging <- struct{}{}:
		defer func() { <-s.judging }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for try := range staleTries {
		if err := s.prepare(ctx, try > 0); err != nil {
			return err
		}
		if err := s.commitEdit(ctx, e); !errors.Is(err, errOldRows) {
			return err
		}
	}
	e.own = true
	return s.commitEdit(ctx, e)
}

func (s *directory) commitEdit(ctx context.Context, e edit) error {
	return s.commit(ctx, change{by: e.by, access: true, lock: lockAccess, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		return s.write(ctx, tx, e)
	}})
}

// errDry ends the transaction of an edit that is dry.
var errDry = errors.New("dry run")

// within removes the start of pointers: what is a row of a bundle for the application is the whole
// request of the caller.
func within(at string, err error) error {
	if at == "" {
		return err
	}
	return Relocate(err, func(e *Error) string { return strings.TrimPrefix(e.Field, at) })
}

// write is the transaction of an edit, which has the lock of lockAccess.
func (s *directory) write(ctx context.Context, tx Store, e edit) ([]Event, error) {
	current, _, err := readRows(ctx, tx, e.names, e.whole)
	if err != nil {
		return nil, err
	}
	d, err := e.plan(ctx, tx, current)
	if err != nil {
		return nil, err
	}
	current.add(d.referred)
	a := newApplication(current, d.bundle)
	a.remove = d.remove
	w := a.write(a.rows())
	if err := a.err(); err != nil {
		return nil, err
	}
	if err := s.lockHolders(ctx, tx, e.by, d.remove.holders()); err != nil {
		return nil, err
	}
	var last error
	if e.by.Kind != KindHost {
		if last, err = s.judgeWrite(ctx, tx, e, w, a); err != nil {
			return nil, err
		}
	}
	err = cmp.Or(d.refused, last)
	if err == nil && e.dry {
		err = errDry
	}
	if err != nil || w.Empty() {
		return nil, err
	}
	return s.save(ctx, tx, w, a)
}

// save writes w, and revokes the keys of the holders that it removes.
func (s *directory) save(
	ctx context.Context, tx Store, w AccessWrite, a *application,
) (events []Event, err error) {
	now := s.now()
	for _, holder := range w.Remove.holders() {
		revoked, err := revokeKeys(ctx, tx, holder, now)
		if err != nil {
			return nil, err
		}
		events = append(events, revoked...)
	}
	var gone []Target
	w.Gone = func(targets []Target) { gone = targets }
	err = tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (AccessWrite, error) { return w, nil })
	if err != nil {
		return nil, err
	}
	events = append(events, s.eventsOf(a, w)...)
	for _, t := range gone {
		action := EventTemplateDeleted
		if t.Kind == TargetSource {
			action = EventSourceRemoved
		}
		events = append(events, happened(now, action, t)...)
	}
	return events, nil
}

// revokeKeys revokes all keys of a holder in the transaction of tx, whose lock on these keys is
// taken.
func revokeKeys(
	ctx context.Context, tx Store, holder Identity, now time.Time,
) (events []Event, err error) {
	for {
		revoked, err := revokeSome(ctx, tx, holder, now)
		if err != nil {
			return nil, err
		}
		events = append(events, revoked...)
		if len(revoked) < revokeChunk {
			return events, nil
		}
	}
}

// holders returns the users and service accounts that n names, in one order for all transactions.
func (n AccessNames) holders() (all []Identity) {
	for _, id := range n.Users {
		all = append(all, Identity{KindUser, id})
	}
	for _, id := range n.ServiceAccounts {
		all = append(all, Identity{KindServiceAccount, id})
	}
	slices.SortFunc(all, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// lockHolders locks the keys of holders that go, so that no key and no personal row is made for
// them meanwhile. Then it locks and judges the caller's own key.
func (s *directory) lockHolders(
	ctx context.Context, tx Store, by Principal, holders []Identity,
) error {
	for _, holder := range holders {
		if _, err := tx.LockAPIKeys(ctx, holder, 1); err != nil {
			return err
		}
	}
	return s.lockOwn(ctx, tx, by)
}

// eventsOf returns an event for each row that an application writes or removes, with the row before
// and after. Of the members of a group, Was has those that leave and Is those that join.
func (s *directory) eventsOf(a *application, w AccessWrite) []Event {
	now := s.now()
	events := happened(now, EventAccessWritten, a.changed.Targets()...)
	for _, group := range a.left {
		target := Target{Kind: TargetGroup, ID: group}
		events = append(events, happened(now, EventAccessWritten, target)...)
	}
	events = append(events, happened(now, EventAccessRemoved, w.Remove.removed().Targets()...)...)
	if s.journal.keep || s.onEvent != nil { // else nothing reads the rows
		was, is := a.before(w), a.after(w)
		for i := range events {
			events[i].Was, events[i].Is = was.row(events[i].Target), is.row(events[i].Target)
		}
	}
	return events
}

// countNarrowed counts the keys that a policy narrows and that are not revoked.
func countNarrowed(ctx context.Context, tx Store, id string) (n int, err error) {
	for _, err := range keysNarrowedBy(ctx, tx, id) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// keysNarrowedBy yields the keys that a policy narrows and that are not revoked.
func keysNarrowedBy(ctx context.Context, tx Store, id string) iter.Seq2[APIKey, error] {
	page := APIKeyPage{ScopingPolicyID: id, KeyQuery: KeyQuery{Limit: revokeChunk}}
	return list(ctx, "read API keys", page.Limit, func() error { return nil },
		func() ([]APIKey, error) { return tx.APIKeys(ctx, page) },
		func(last APIKey) { page.AfterTime, page.AfterID = last.CreatedAt, last.ID })
}
