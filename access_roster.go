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

// roster holds every row of access, and answers like a store with these rows. It is immutable. Its
// memory in addition to the rows is linear in them: it does not list which members a group's
// attachments reach.
type roster struct {
	AccessRows                    // each list sorted by its keys
	direct     map[string][]int32 // of each user, its direct attachments
	memberOf   map[string][]int32 // of each user, its groups that have attachments
	through    [][]int32          // of each group, its attachments
}

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

var noRows = newRoster(AccessRows{})

// reaching returns the attachments that reach a user.
func (r *roster) reaching(user string) []int32 {
	all := slices.Clone(r.direct[user])
	for _, g := range r.memberOf[user] {
		all = append(all, r.through[g]...)
	}
	return all
}

// place returns the index of the row with a key.
func place[R any](sorted []R, key string, of func(R) string) (i int, found bool) {
	return slices.BinarySearchFunc(sorted, key, func(row R, key string) int {
		return strings.Compare(of(row), key)
	})
}

// find returns the row with a key.
func find[R any](sorted []R, key string, of func(R) string) (row R, found bool) {
	i, found := place(sorted, key, of)
	if found {
		row = sorted[i]
	}
	return row, found
}

// orNil returns a pointer to the row, or nil when find has not found it.
func orNil[R any](row R, found bool) *R {
	if !found {
		return nil
	}
	return &row
}

// snapshot returns what [AccessStore].Access returns.
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

// subject returns the subject of decisions about a principal.
func (r *roster) subject(who Identity) policy.Subject {
	return r.snapshot(AccessQuery{Identity: who}).subject(who)
}

// census groups all principals by their policies. It is incomplete when the call ends early. A nil
// call never ends.
func (r *roster) census(call policy.Call) *policy.Census {
	census := &policy.Census{}
	for _, b := range r.BankPolicies {
		census.Banks = append(census.Banks, policy.Named{ID: b.BankID, Document: b.Document})
	}
	// alike has users with the same attachments and the same groups that have attachments.
	alike := map[string][]policy.Member{}
	var keys []string
	for _, u := range r.Users {
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

func (r *roster) add(census *policy.Census, members ...policy.Member) {
	first := Identity{Kind: Kind(members[0].Kind), ID: members[0].ID}
	census.Add(r.subject(first), members...)
}

// with returns the rows after a normalized bundle is applied. Errors: those of [Access.Apply].
func (r *roster) with(bundle Bundle) (after *roster, changed bool, err error) {
	a := newApplication(r.Bundle, bundle)
	write := a.rows()
	if err := a.err(); err != nil {
		return nil, false, err
	}
	return r.under(write), !write.Empty(), nil
}

// under returns the rows with others written over them. Of two rows with one key, the first counts.
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

// upserted returns rows written over others, sorted by their keys.
func upserted[R any, K comparable](write, rows []R, key func(R) K, compare func(a, b K) int) []R {
	if len(write) == 0 {
		return rows
	}
	all := slices.Concat(write, rows)
	slices.SortStableFunc(all, func(a, b R) int { return compare(key(a), key(b)) })
	return slices.CompactFunc(all, func(a, b R) bool { return key(a) == key(b) })
}

// everybody is all rows of access, and their compiled form.
type everybody struct {
	*roster
	world func() *policy.World
}

func (e *everybody) revision() string { return strconv.FormatInt(e.Generation, 10) }

// rosters provides all rows of access.
type rosters struct {
	*guard
	kept *copies.One[*everybody]
}

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
// store.
func (s *rosters) everybody(ctx context.Context) (*everybody, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault("read all access", err)
	}
	return s.kept.Load(ctx, func(int64) (*everybody, int64, error) {
		rows, err := s.store.AllAccess(ctx)
		if err != nil {
			return nil, 0, fault("read all access", err)
		}
		s.copies.Hear(rows.Generation)
		return s.everybodyOf(rows), rows.Generation, nil
	})
}

func (e *everybody) size() int64 { return cache.Size(e.AccessRows) }

// maxEverybody limits the bytes of all cached rows of access, and of their compiled form.
const maxEverybody = 256 << 20

func (s *rosters) everybodyOf(rows AccessRows) *everybody {
	r := newRoster(rows)
	return &everybody{r, sync.OnceValue(func() *policy.World {
		world := s.compiler.World(r.census(nil))
		if cache.Size(r.AccessRows)+world.Size() > maxEverybody {
			s.kept.Clear()
		}
		return world
	})}
}

// overlaid returns all rows of access before and after a bundle, to a caller that may read them.
// wrong is the error that the form of the request has shown already; nil: none.
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
