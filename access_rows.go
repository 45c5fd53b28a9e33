package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/etag"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/limits"
)

// row is a row of access with its own id.
type row interface {
	User | Group | ServiceAccount | Policy | BankPolicy
	keyed[string]
	ETag() string
}

// rowKind says how callers read and write single rows of a kind.
type rowKind[R row] struct {
	kind[R, string]
	noun    string        // for messages
	field   string        // the id in a path
	read    string        // the action
	virtual map[string]*R // rows that exist without being stored; nil: none
	sees    func(R) bool  // whether the caller may see a row; nil: all rows
	add     Locks         // what a new row locks; zero: as every change of access
}

var (
	userRows = rowKind[User]{
		users, "user", "user_id", action.UsersRead, nil, nil, Locks{AddUsers: true},
	}
	groupRows   = rowKind[Group]{groups, "group", "group_id", action.GroupsRead, nil, nil, Locks{}}
	accountRows = rowKind[ServiceAccount]{
		serviceAccounts, "service account", "sa_id", action.AccountsManage, nil, nil, Locks{},
	}
	policyRows = rowKind[Policy]{
		policies, "policy", "policy_id", action.PoliciesRead, builtins, nil, Locks{},
	}
	bankRows = rowKind[BankPolicy]{
		bankPolicies, "policy of this bank", "bank_id", action.BanksRead, nil, nil, Locks{},
	}
)

// brief returns the row without the keys that say nothing, for events.
func (u User) brief() User {
	u.absent = noName | noEmail | noState
	return u
}

func (a ServiceAccount) brief() ServiceAccount {
	a.absent = noName | noScoping | noState
	return a
}

// complete returns the bundle with what its rows leave absent: of a row that exists the stored
// value, of a new one the default. Only service accounts still know what is absent, and kept from
// the row that exists.
func (a *bundleDiff) complete(b Bundle) Bundle {
	for _, k := range kinds {
		k.complete(&a.rowsByKey, &b)
	}
	for i, s := range b.ServiceAccounts {
		if s.OwnerUserID == "" { // it is new; normalize has refused one that names no owner
			at := "/service_accounts/" + strconv.Itoa(i)
			a.add(at+"/owner_user_id", "is required: the service account is new")
		}
	}
	for i, p := range b.Policies { // as the owner of a service account
		a.hasDocument("/policies/", i, p.Document)
	}
	for i, p := range b.BankPolicies {
		a.hasDocument("/bank_policies/", i, p.Document)
	}
	return b
}

func (u *User) complete(was *User) {
	settle(&u.DisplayName, u.absent.has(noName), was.DisplayName, u.ID)
	settle(&u.Email, u.absent.has(noEmail), was.Email, nil)
	settle(&u.Inactive, u.absent.has(noState), was.Inactive, false)
	u.absent = 0
}

func (g *Group) complete(was *Group) {
	settle(&g.DisplayName, g.absent.has(noName), was.DisplayName, g.ID)
	g.absent = 0
}

func (a *ServiceAccount) complete(was *ServiceAccount) {
	kept := absence(0)
	settle(&a.DisplayName, a.absent.has(noName), was.DisplayName, a.ID)
	settle(&a.Inactive, a.absent.has(noState), was.Inactive, false)
	if settle(&a.OwnerUserID, a.absent.has(noOwner), was.OwnerUserID, "") {
		kept |= noOwner
	}
	if settle(&a.ScopingPolicyID, a.absent.has(noScoping), was.ScopingPolicyID, "") {
		kept |= noScoping
	}
	a.absent = kept
}

func (p *Policy) complete(was *Policy) {
	settle(&p.DisplayName, p.absent.has(noName), was.DisplayName, p.ID)
	if own := builtins[p.ID]; own != nil && was.Document == nil {
		was = own
	}
	keepDocument(&p.Document, &p.absent, was.Document)
}

func (a *Attachment) complete(was *Attachment) {
	settle(&a.Priority, a.absent.has(noPriority), was.Priority, 0)
	a.absent = 0
}

func (b *BankPolicy) complete(was *BankPolicy) {
	keepDocument(&b.Document, &b.absent, was.Document)
}

func keepDocument(document *json.RawMessage, absent *absence, was json.RawMessage) {
	if *document == nil && absent.has(noDocument) {
		*document = was
	}
	*absent = 0
}

func (c *checker) hasDocument(list string, i int, document json.RawMessage) {
	if document == nil {
		c.add(list+strconv.Itoa(i)+"/document", "is required: the row is new")
	}
}

// settle sets an absent field to the value that it had, or else to its default. It reports whether
// it had one.
func settle[T comparable](field *T, absent bool, was, other T) bool {
	var zero T
	if !absent || *field != zero {
		return false
	}
	*field = cmp.Or(was, other)
	return was != zero
}

// find returns a row of b that the caller may see; nil: there is none with that id.
func (k *rowKind[R]) find(b Bundle, id string) *R {
	row := lists.Index(*k.rows(&b), R.key)[id]
	if row == nil {
		row = k.virtual[id]
	}
	if row == nil || k.sees != nil && !k.sees(*row) {
		return nil
	}
	return row
}

// with returns names with one id of the kind.
func (k *rowKind[R]) with(names AccessNames, id string) *AccessNames {
	list := k.named(&names)
	*list = append(slices.Clip(*list), id)
	return &names
}

// namesOf returns the rows to read to create those of b.
func (k *rowKind[R]) namesOf(b Bundle) *AccessNames {
	names := new(b.names())
	for _, a := range b.ServiceAccounts {
		names.AccountsOf = append(names.AccountsOf, a.OwnerUserID)
	}
	return names
}

func (k *rowKind[R]) missing() *Error { return notFound("there is no such " + k.noun) }

// checkID refuses an id that cannot stand in a path. A bank may have slashes.
func (k *rowKind[R]) checkID(id string) error {
	var c checker
	if k.field == bankRows.field {
		c.lookupForeign(k.field, id)
	} else {
		c.lookup(k.field, id)
	}
	return c.err()
}

// readRow reads a row for a caller.
func readRow[R row](
	ctx context.Context, s *accessWriter, k *rowKind[R], by Principal, id string,
) (found R, err error) {
	if err := k.checkID(id); err != nil {
		return found, err
	}
	if err := s.authorize(ctx, by, k.read); err != nil {
		return found, err
	}
	rows, _, err := s.named(ctx, k.with(AccessNames{}, id))
	if err != nil {
		return found, err
	}
	if row := k.find(rows, id); row != nil {
		return *row, nil
	}
	return found, k.missing()
}

// createRow adds a row. check, unless nil, may refuse it: before the checks of rights, or after
// them.
func createRow[R row](
	ctx context.Context, s *accessWriter, k *rowKind[R], by Principal, added R,
	check func(current Bundle) (refused, err error),
) (R, error) {
	var none R
	at := "/" + k.list + "/0"
	var bundle Bundle
	*k.rows(&bundle) = []R{added}
	bundle, err := bundle.normalize(&checker{compiler: s.compiler.Apart(ctx)})
	if err != nil {
		return none, within(at, err)
	}
	added = (*k.rows(&bundle))[0]
	err = s.edit(ctx, writeRequest{
		by: by, need: []string{k.write}, doing: "create " + k.noun, at: at,
		names: k.namesOf(bundle),
		locks: k.add,
		plan: func(_ context.Context, _ Store, current Bundle) (d writePlan, err error) {
			if check != nil {
				d.refused, err = check(current)
			}
			_, stored := lists.Index(*k.rows(&current), R.key)[added.key()]
			switch builtin := k.virtual[added.key()] != nil; {
			case !stored && !builtin:
				d.bundle = bundle
				return d, err
			case err == nil && !builtin:
				a := newBundleDiff(s.compiler.Schema(), current, bundle)
				a.references()
				err = a.err()
			}
			d.refused = taken("/id", "a "+k.noun+" with this id already exists")
			return d, err
		},
	})
	if err != nil {
		return none, err
	}
	return added, nil
}

// changeRow writes what change returns for a row. refused refuses the change after the checks of
// rights.
func changeRow[R row](
	ctx context.Context, s *accessWriter, k *rowKind[R], by Principal, id string, ifMatch []string,
	change func(was R) (is R, refused error),
) (changed R, err error) {
	err = s.edit(ctx, writeRequest{
		by: by, need: []string{k.write}, doing: "change " + k.noun, at: "/" + k.list + "/0",
		names: k.with(AccessNames{}, id),
		plan: func(ctx context.Context, tx Store, current Bundle) (d writePlan, err error) {
			was := k.find(current, id)
			if was == nil {
				return d, k.missing()
			}
			changed, d.refused = change(*was)
			d.refused = cmp.Or(unlessMatches(k.noun, (*was).ETag(), ifMatch), d.refused)
			*k.rows(&d.bundle) = []R{changed}
			if k.field == accountRows.field { // only the row tells its owner
				d.referred, _, err = readRows(ctx, tx, new(d.bundle.names()))
			}
			return d, err
		},
	})
	return changed, err
}

// deleteRow removes a row with the other rows that names lists. complete, unless nil, completes the
// draft.
func deleteRow[R row](
	ctx context.Context, s *accessWriter, k *rowKind[R], by Principal, id string, ifMatch []string,
	names AccessNames,
	complete func(ctx context.Context, tx Store, current Bundle, d *writePlan) error,
) error {
	if err := k.checkID(id); err != nil {
		return err
	}
	return s.edit(ctx, writeRequest{
		by: by, need: []string{k.write}, doing: "delete " + k.noun, names: k.with(names, id),
		plan: func(ctx context.Context, tx Store, current Bundle) (d writePlan, err error) {
			d.remove = current.keys()
			was := k.find(current, id)
			if was == nil {
				return d, k.missing()
			}
			d.refused = unlessMatches(k.noun, (*was).ETag(), ifMatch)
			if complete != nil {
				err = complete(ctx, tx, current, &d)
			}
			return d, err
		},
	})
}

// RowQuery asks for a part of a list of rows. The zero query asks for the whole list. For the next
// part, set After to the key of the last row.
type RowQuery struct {
	// After is the id of the last row. For a channel it is [Channel.String], for an attachment
	// [AttachmentKey.String]. The row need not exist any longer. "": from the start.
	After string
	Skip  int // the number of rows to leave out first, not negative
	Limit int // the most rows to list, not negative; 0: all
}

// rowList is a list of rows of access for a caller.
type rowList[R any] struct {
	by      Principal
	action  string
	query   RowQuery
	page    AccessPage
	check   func(c *checker) // checks the rest of the query; nil: nothing
	parent  AccessNames      // a row that must exist; empty: none
	missing func() *Error    // the error when parent does not exist
	rows    func(Bundle) []R
	key     func(R) string
	virtual map[string]*R // rows that exist without being stored, by key; nil: none
}

// listRows yields the rows of a list. The error, if any, is the last thing yielded.
func listRows[R any](ctx context.Context, s *accessWriter, l rowList[R]) iter.Seq2[R, error] {
	page, q := l.page, l.query
	page.After, page.Skip, page.Limit = q.After, skipOf(q.Skip), chunkOf(q.Limit)
	if l.virtual != nil { // the store cannot skip them
		page.Skip, page.Limit = 0, listChunk
	}
	allowed := func(page *AccessPage) error {
		var c checker
		c.text("after", page.After, 3*limits.IDLength)
		c.count("skip", q.Skip)
		c.count("limit", q.Limit)
		if l.check != nil {
			l.check(&c)
		}
		if err := c.err(); err != nil {
			return err
		}
		if err := s.authorize(ctx, l.by, l.action); err != nil || l.missing == nil {
			return err
		}
		parent, _, err := s.named(ctx, &l.parent)
		if err == nil && parent.Empty() {
			err = l.missing()
		}
		return err
	}
	read := func(page AccessPage) (rows []R, err error) {
		all, err := s.base.store.ReadAccess(ctx, AccessRead{Page: &page}, func(part Bundle) error {
			rows = append(rows, l.rows(part)...)
			return nil
		})
		s.base.cached.Hear(all.Generation)
		return l.withVirtual(rows, page), err
	}
	goOn := func(page *AccessPage, last R) {
		page.After, page.Skip = l.key(last), 0
		hasDocuments := page.Kind == event.TargetPolicy || page.Kind == event.TargetBankPolicy
		if q.Limit == 0 && !hasDocuments { // documents are long
			page.Limit = min(2*page.Limit, longChunk)
		}
	}
	chunks := lists.Chunks(ctx, page, page.Limit, doing("list access"), allowed, read, goOn)
	return lists.Take(q.Limit, lists.Skip(q.Skip-page.Skip, chunks))
}

// withVirtual adds the virtual rows to a chunk of the stored ones.
func (l *rowList[R]) withVirtual(rows []R, page AccessPage) []R {
	if l.virtual == nil {
		return rows
	}
	compare := func(a, b R) int { return strings.Compare(l.key(a), l.key(b)) }
	for key, row := range l.virtual {
		at, stored := slices.BinarySearchFunc(rows, *row, compare)
		if !stored && key > page.After && (at < len(rows) || len(rows) < page.Limit) {
			rows = slices.Insert(rows, at, *row)
		}
	}
	return rows[:min(len(rows), page.Limit)]
}

// ETag returns the entity tag of a user (RFC 9110, section 8.8.3), quotes included. It is a strong
// tag that follows from the row only, so it is the same in every process. Channels do not count.
func (u User) ETag() string { return etag.Of(u.ID, u.DisplayName, u.Email, u.Inactive) }

// ETag returns the entity tag of a group, as [User.ETag] does. Members do not count.
func (g Group) ETag() string { return etag.Of(g.ID, g.DisplayName) }

// ETag returns the entity tag of a service account, as [User.ETag] does.
func (a ServiceAccount) ETag() string {
	return etag.Of(a.ID, a.DisplayName, a.OwnerUserID, a.ScopingPolicyID, a.Inactive)
}

// ETag returns the entity tag of a policy, as [User.ETag] does. The document counts byte by byte.
func (p Policy) ETag() string { return etag.Of(p.ID, p.DisplayName, string(p.Document)) }

// ETag returns the entity tag of the policy of a bank, as [Policy.ETag] does.
func (b BankPolicy) ETag() string { return etag.Of(b.BankID, string(b.Document)) }

// Bare removes from the rows of b what [AccessRead].Bare leaves out.
func (b Bundle) Bare() {
	for i, u := range b.Users {
		b.Users[i] = User{ID: u.ID, Inactive: u.Inactive}
	}
	for i := range b.Groups {
		b.Groups[i].DisplayName = ""
	}
	for i := range b.ServiceAccounts {
		b.ServiceAccounts[i].DisplayName = ""
	}
	for i := range b.Policies {
		b.Policies[i].DisplayName = ""
	}
}

// normalize checks the form of a group. Whether its members exist shows only in the store's
// transaction.
func (g *Group) normalize(c *checker, at string) {
	c.namedID(at, g.ID, &g.DisplayName, g.absent)
	for i := 0; i < len(g.Members) && !c.full; i++ {
		c.id(at+"/members/"+strconv.Itoa(i), g.Members[i])
	}
}

// normalize checks the form of a service account. Each account needs an owner, whose rights are its
// own. An account and a user may have one id.
func (a *ServiceAccount) normalize(c *checker, at string) {
	c.namedID(at, a.ID, &a.DisplayName, a.absent)
	if a.OwnerUserID != "" || !a.absent.has(noOwner) {
		c.id(at+"/owner_user_id", a.OwnerUserID)
	}
	if a.ScopingPolicyID != "" {
		c.id(at+"/scoping_policy_id", a.ScopingPolicyID)
	}
}

// normalize checks the form of an attachment. checkReferences finds out
// whether the policy and the principal exist.
func (a *Attachment) normalize(c *checker, at string) {
	c.id(at+"/policy_id", a.PolicyID)
	c.grantedTo(at+"/principal_type", at+"/principal_id", a.Principal)
	if a.Priority != int64(int32(a.Priority)) {
		c.add(at+"/priority", "must fit into 32 bits")
	}
}

// normalize checks a bank policy. A bank is the host's: it needs no row, and any name is good.
func (b *BankPolicy) normalize(c *checker, at string) {
	c.foreign(at+"/bank_id", b.BankID)
	if b.Document == nil && b.absent.has(noDocument) {
		return
	}
	b.Document = c.document(at+"/document", b.Document, func(raw []byte) error {
		_, err := c.compiler.Schema().ParseBankDocument(raw)
		return err
	})
}

func (a ServiceAccount) check(own bool) error {
	var c checker
	if own && a.OwnerUserID != "" {
		c.add("/owner_user_id", "must be absent: you are the owner")
	} else if own {
		a.absent = noOwner
	}
	a.normalize(&c, "")
	return c.err()
}

// Write returns the write of all rows of b. Members join their groups, and none leaves.
func (b Bundle) Write() AccessWrite {
	w := AccessWrite{Bundle: b, Targets: b.Targets()}
	for _, g := range b.Groups {
		for _, member := range g.Members {
			w.Join = append(w.Join, Membership{Group: g.ID, User: member})
		}
	}
	return w
}
