package svc

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/policy"
)

// AccessRows holds every row of access, and their generation.
type AccessRows struct {
	Generation int64
	Bundle
}

// allAccess reads every row of access. Rows are sorted by their keys.
func allAccess(ctx context.Context, store AccessStore) (rows AccessRows, err error) {
	read, err := store.ReadAccess(ctx, AccessRead{}, func(part Bundle) error {
		rows.Users = append(rows.Users, part.Users...)
		for _, g := range part.Groups {
			if n := len(rows.Groups); n > 0 && rows.Groups[n-1].ID == g.ID {
				last := &rows.Groups[n-1]
				last.Members = append(last.Members, g.Members...)
			} else {
				rows.Groups = append(rows.Groups, g)
			}
		}
		rows.ServiceAccounts = append(rows.ServiceAccounts, part.ServiceAccounts...)
		rows.Policies = append(rows.Policies, part.Policies...)
		rows.Attachments = append(rows.Attachments, part.Attachments...)
		rows.BankPolicies = append(rows.BankPolicies, part.BankPolicies...)
		return nil
	})
	slices.SortFunc(rows.Attachments, func(a, b Attachment) int { return a.key().Compare(b.key()) })
	rows.Generation = read.Generation
	return rows, err
}

// roster holds every row of access, and answers like a store with these rows. It is immutable, so
// that callers share it. Its memory in addition to the rows is linear in them: it does not list
// which members a group's attachments reach, which could be members times attachments.
type roster struct {
	// Each list is sorted by its keys, as allAccess returns it. place relies on that.
	AccessRows
	// direct has, for each user, the indexes of its own attachments.
	direct map[string][]int32
	// memberOf has, for each user, the indexes of its groups. It leaves out groups without
	// attachments: they give no rights.
	memberOf map[string][]int32
	// through has, for each group, the indexes of its attachments; nil: none.
	through [][]int32
}

// newRoster indexes rows. It leaves out an attachment whose policy or group is missing: Lint makes
// rosters of bundles that Apply refuses. A member need not be a user, because no answer starts from
// it.
func newRoster(rows AccessRows) *roster {
	r := &roster{
		AccessRows: rows, direct: map[string][]int32{},
		memberOf: make(map[string][]int32, len(rows.Users)),
		through:  make([][]int32, len(rows.Groups)),
	}
	for i, a := range rows.Attachments {
		if _, found := find(rows.Policies, a.PolicyID, Policy.key); !found {
			continue
		}
		if a.Principal.Type == GrantedToUser {
			r.direct[a.Principal.ID] = append(r.direct[a.Principal.ID], int32(i))
		} else if g, found := place(rows.Groups, a.Principal.ID, Group.key); found {
			r.through[g] = append(r.through[g], int32(i))
		}
	}
	// Only groups with attachments: a member's other groups would cost memory and give nothing.
	for g, attached := range r.through {
		if attached == nil {
			continue
		}
		for _, member := range rows.Groups[g].Members {
			r.memberOf[member] = append(r.memberOf[member], int32(g))
		}
	}
	return r
}

// noRows is the state of access of an empty store, at generation 0. A bundle that is the whole
// state is applied to it.
var noRows = newRoster(AccessRows{})

// reaching returns the attachments that reach a user: its own, then those of its groups. One policy
// may reach it in several ways, each of which counts.
func (r *roster) reaching(user string) []int32 {
	all := slices.Clone(r.direct[user])
	for _, g := range r.memberOf[user] {
		all = append(all, r.through[g]...)
	}
	return all
}

// place returns the index of the row with a key, in a list that is sorted by that key. Without a
// row, i is where it would stand. Keys are unique: of two equal ones, it could return either.
func place[R any](sorted []R, key string, of func(R) string) (i int, found bool) {
	return slices.BinarySearchFunc(sorted, key, func(row R, key string) int {
		return strings.Compare(of(row), key)
	})
}

// find returns the row with a key, in a list that is sorted by that key. The row shares its lists
// with the roster.
func find[R any](sorted []R, key string, of func(R) string) (row R, found bool) {
	i, found := place(sorted, key, of)
	if found {
		row = sorted[i]
	}
	return row, found
}

// orNil returns a pointer to the row, or nil when find has not found it. The pointer is to a copy:
// the caller cannot change the roster's row, but shares its lists.
func orNil[R any](row R, found bool) *R {
	if !found {
		return nil
	}
	return &row
}

// snapshot returns what [AccessStore].Access returns, for a query without KeyID: rosters have no
// keys. So one function turns rows into a decision, whether they come from a store or from a
// roster. A sender costs a look at every user. Grants are in no order, as those of a store.
func (r *roster) snapshot(q AccessQuery) AccessSnapshot {
	a := AccessSnapshot{
		Generation: r.Generation, BankPolicy: orNil(find(r.BankPolicies, q.BankID, BankPolicy.key)),
	}
	a.Narrowing = orNil(find(r.Policies, q.ScopingPolicyID, Policy.key))
	switch q.Identity.Kind {
	case KindUser:
		a.User = orNil(find(r.Users, q.Identity.ID, User.key))
	case KindServiceAccount:
		a.ServiceAccount = orNil(find(r.ServiceAccounts, q.Identity.ID, ServiceAccount.key))
		if a.ServiceAccount != nil {
			a.User = orNil(find(r.Users, a.ServiceAccount.OwnerUserID, User.key))
			a.Scoping = orNil(find(r.Policies, a.ServiceAccount.ScopingPolicyID, Policy.key))
		}
	// Stores find a channel by an index. Simulate alone asks a roster for a sender, once for each
	// call.
	case "":
		i := slices.IndexFunc(r.Users, func(u User) bool {
			return slices.Contains(u.Channels, q.Channel)
		})
		if i >= 0 {
			a.User = new(r.Users[i])
		}
	}
	if a.User != nil {
		for _, i := range r.reaching(a.User.ID) {
			attachment := r.Attachments[i]
			of, _ := find(r.Policies, attachment.PolicyID, Policy.key)
			a.Grants = append(
				a.Grants,
				Grant{Policy: of, Principal: attachment.Principal, Priority: attachment.Priority},
			)
		}
	}
	return a
}

// subject returns the subject of decisions about a principal, narrowed by a scoping policy. "": it
// is not narrowed. The subject is closed for an unknown or inactive principal: unlike a decision,
// an analysis has no host that could vouch for a user without a row.
func (r *roster) subject(who Identity, narrowedBy string) policy.Subject {
	snapshot := r.snapshot(AccessQuery{Identity: who, ScopingPolicyID: narrowedBy})
	subject := snapshot.subject(who)
	snapshot.narrow(&subject, narrowedBy)
	return subject
}

// census groups all principals by their policies. It is incomplete when the call ends early: check
// the call's Err. A nil call never ends.
//
// Most users of a large host are alike, so it makes one subject for each group of alike users. Two
// groups may still have equal policies; Census.Add joins those.
func (r *roster) census(call policy.Call) *policy.Census {
	census := &policy.Census{}
	for _, b := range r.BankPolicies {
		census.Banks = append(census.Banks, policy.Named{ID: b.BankID, Document: b.Document})
	}
	// alike has users with the same attachments and the same groups that have attachments. keys has
	// its keys in the order of users, so that every census of these rows is the same.
	alike := map[string][]policy.Member{}
	var keys []string
	for _, u := range r.Users {
		// The key has the number of groups first, so that no group reads like an attachment.
		key := []byte{'+'}
		if u.Inactive {
			key[0] = '-'
		}
		key = binary.LittleEndian.AppendUint32(key, uint32(len(r.memberOf[u.ID])))
		for _, i := range r.memberOf[u.ID] {
			key = binary.LittleEndian.AppendUint32(key, uint32(i))
		}
		for _, i := range r.direct[u.ID] {
			key = binary.LittleEndian.AppendUint32(key, uint32(i))
		}
		if alike[string(key)] == nil {
			keys = append(keys, string(key))
		}
		alike[string(key)] = append(alike[string(key)], policy.Member{Kind: policy.User, ID: u.ID})
	}
	for _, key := range keys {
		if call != nil && call.Err() != nil {
			return census
		}
		r.add(census, alike[key]...)
	}
	for _, a := range r.ServiceAccounts {
		r.add(census, policy.Member{Kind: policy.ServiceAccount, ID: a.ID})
	}
	return census
}

// add adds members that share one subject, that of the first of them. There is at least one.
func (r *roster) add(census *policy.Census, members ...policy.Member) {
	first := Identity{Kind: Kind(members[0].Kind), ID: members[0].ID}
	census.Add(r.subject(first, ""), members...)
}

// with returns the rows after a normalized bundle is applied. It decides as Apply does and writes
// nothing. changed reports whether Apply would write. r stays as it is: other callers use it.
// Errors: those of [Access.Apply] about the bundle.
func (r *roster) with(bundle Bundle) (after *roster, changed bool, err error) {
	a := newApplication(r.Bundle, bundle)
	write := a.rows()
	if err := a.err(); err != nil {
		return nil, false, err
	}
	return r.under(write), !write.Empty(), nil
}

// under returns the rows with others written over them. Of two rows with one key, the first counts.
// The result shares lists with both, and the Generation stays: it is not one of the store any more.
func (r *roster) under(write Bundle) *roster {
	return newRoster(AccessRows{Generation: r.Generation, Bundle: Bundle{
		Users:  upserted(write.Users, r.Users, User.key, strings.Compare),
		Groups: upserted(write.Groups, r.Groups, Group.key, strings.Compare),
		ServiceAccounts: upserted(
			write.ServiceAccounts, r.ServiceAccounts, ServiceAccount.key, strings.Compare,
		),
		Policies: upserted(write.Policies, r.Policies, Policy.key, strings.Compare),
		Attachments: upserted(
			write.Attachments, r.Attachments, Attachment.key, AttachmentKey.Compare,
		),
		BankPolicies: upserted(
			write.BankPolicies, r.BankPolicies, BankPolicy.key, strings.Compare,
		),
	}})
}

// upserted returns rows written over others, sorted by their keys. The sort is stable and write
// comes first, so of equal keys the written row stays. It changes neither list.
func upserted[R any, K comparable](write, rows []R, key func(R) K, compare func(a, b K) int) []R {
	if len(write) == 0 {
		return rows
	}
	all := slices.Concat(write, rows)
	slices.SortStableFunc(all, func(a, b R) int { return compare(key(a), key(b)) })
	return slices.CompactFunc(all, func(a, b R) bool { return key(a) == key(b) })
}

// everybody is all rows of access, and their compiled form. Callers share it, and it does not
// change: a write makes another one.
type everybody struct {
	*roster
	// world compiles the rows at its first call and returns the same World afterwards. Only WhoCan
	// and WhatCan need it.
	world func() *policy.World
}

// revision is the Revision of answers from these rows, as in a [Resolution].
func (e *everybody) revision() string { return strconv.FormatInt(e.Generation, 10) }

// rosters provides all rows of access. It caches them until a row of access changes. Decisions do
// not use it: they read the rows of one principal, and must not wait for a compilation.
type rosters struct {
	*guard
	kept *copies.One[*everybody]
}

// newRosters returns rosters that follow the changes of access, those of other processes included.
// Changes of templates, sources and keys drop nothing. Call it before the first use of g: onChange
// has no lock.
func newRosters(g *guard) *rosters {
	r := &rosters{g, copies.NewOne(g.copies, maxEverybody, (*everybody).size)}
	g.onChange(func(changed Target, _ int64) {
		switch changed.Kind {
		case TargetTemplate, TargetSource, TargetAPIKey:
		default:
			r.kept.Clear()
		}
	})
	return r
}

// everybody returns all rows of access: from the cache where it can be trusted, else from the
// store, in one call and one snapshot. Of concurrent callers one reads. Hear comes before the rows
// are kept: a decision after this answer must not be made from older rows.
func (s *rosters) everybody(ctx context.Context) (*everybody, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault("read all access", err)
	}
	return s.kept.Load(ctx, func(int64) (*everybody, int64, error) {
		rows, err := allAccess(ctx, s.store)
		if err != nil {
			return nil, 0, fault("read all access", err)
		}
		s.copies.Hear(rows.Generation)
		return s.everybodyOf(rows), rows.Generation, nil
	})
}

// size is that of the rows alone. The World is weighed when it is made.
func (e *everybody) size() int64 { return cache.Size(e.AccessRows) }

// maxEverybody limits the bytes of all cached rows of access, and of their compiled form. Above it,
// each question reads all rows from the store. It is an estimate, and not counted in the limits of
// the cache of decisions.
const maxEverybody = 256 << 20

// everybodyOf returns rows with their compiled form still to be made. The rows are cached before
// their World is. When both together are too large, the first caller of world drops them from the
// cache.
func (s *rosters) everybodyOf(rows AccessRows) *everybody {
	r := newRoster(rows)
	return &everybody{r, sync.OnceValue(func() *policy.World {
		world := s.compiler.World(r.census(nil))
		// The caller still gets its answer, and the next one reads the rows and compiles them
		// again.
		if cache.Size(r.AccessRows)+world.Size() > maxEverybody {
			s.kept.Clear()
		}
		return world
	})}
}

// overlaid returns all rows of access before and after a bundle, to a caller that may read them.
// wrong is the error that the form of the request has shown already; nil: none.
//
// A caller without the right learns only wrong: the rows of the bundle are checked afterwards,
// because their errors cost more and because those of references would show which rows exist.
func (s *rosters) overlaid(
	ctx context.Context, by Principal, compiler *policy.Compiler, overlay Bundle, wrong error,
) (before, after *roster, changed bool, err error) {
	if err := s.authorize(ctx, by, ActionUsersRead); err != nil {
		if wrong != nil {
			return nil, nil, false, wrong
		}
		return nil, nil, false, err
	}
	overlay, err = overlay.normalize(compiler)
	// The faults of the question and of the bundle come together, so that a caller can mend all at
	// once.
	if err := errors.Join(wrong, err); err != nil {
		return nil, nil, false, err
	}
	all, err := s.everybody(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	after, changed, err = all.with(overlay)
	return all.roster, after, changed, err
}
