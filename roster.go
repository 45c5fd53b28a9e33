package svc

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// roster is every row of access, and answers as the store does that holds them. It is not changed.
type roster struct {
	AccessRows                    // each list sorted by its keys
	reaching   map[string][]int32 // of each user, the attachments that reach it
}

func newRoster(rows AccessRows) *roster {
	r := &roster{AccessRows: rows, reaching: make(map[string][]int32, len(rows.Users))}
	for i, a := range rows.Attachments {
		if _, found := find(rows.Policies, a.PolicyID, Policy.key); !found {
			continue
		}
		if a.Principal.Type == GrantedToUser {
			r.reach(a.Principal.ID, int32(i))
			continue
		}
		if g, found := find(rows.Groups, a.Principal.ID, Group.key); found {
			for _, member := range g.Members {
				r.reach(member, int32(i))
			}
		}
	}
	return r
}

func (r *roster) reach(user string, attachment int32) {
	r.reaching[user] = append(r.reaching[user], attachment)
}

// find returns the row of a key.
func find[R any](sorted []R, key string, of func(R) string) (row R, found bool) {
	i, found := slices.BinarySearchFunc(sorted, key, func(row R, key string) int { return strings.Compare(of(row), key) })
	if found {
		row = sorted[i]
	}
	return row, found
}

// orNil returns a row that find found.
func orNil[R any](row R, found bool) *R {
	if !found {
		return nil
	}
	return &row
}

// snapshot is what [AccessStore].Access returns.
func (r *roster) snapshot(q AccessQuery) AccessSnapshot {
	a := AccessSnapshot{Generation: r.Generation, BankPolicy: orNil(find(r.BankPolicies, q.BankID, BankPolicy.key))}
	a.Narrowing = orNil(find(r.Policies, q.ScopingPolicyID, Policy.key))
	switch q.Identity.Kind {
	case KindUser:
		a.User = orNil(find(r.Users, q.Identity.ID, User.key))
	case KindServiceAccount:
		if a.ServiceAccount = orNil(find(r.ServiceAccounts, q.Identity.ID, ServiceAccount.key)); a.ServiceAccount != nil {
			a.User = orNil(find(r.Users, a.ServiceAccount.OwnerUserID, User.key))
			a.Scoping = orNil(find(r.Policies, a.ServiceAccount.ScopingPolicyID, Policy.key))
		}
	case "":
		if i := slices.IndexFunc(r.Users, func(u User) bool { return slices.Contains(u.Channels, q.Channel) }); i >= 0 {
			a.User = new(r.Users[i])
		}
	}
	if a.User != nil {
		for _, i := range r.reaching[a.User.ID] {
			attachment := r.Attachments[i]
			of, _ := find(r.Policies, attachment.PolicyID, Policy.key)
			a.Grants = append(a.Grants, Grant{Policy: of, Principal: attachment.Principal, Priority: attachment.Priority})
		}
	}
	return a
}

// census groups everybody by their policies.
func (r *roster) census() *policy.Census {
	census := &policy.Census{}
	for _, b := range r.BankPolicies {
		census.Banks = append(census.Banks, policy.Named{ID: b.BankID, Document: b.Document})
	}
	alike := map[string][]policy.Member{} // users whom the same attachments reach
	var keys []string
	for _, u := range r.Users {
		key := []byte{'+'}
		if u.Inactive {
			key[0] = '-'
		}
		for _, i := range r.reaching[u.ID] {
			key = binary.LittleEndian.AppendUint32(key, uint32(i))
		}
		if alike[string(key)] == nil {
			keys = append(keys, string(key))
		}
		alike[string(key)] = append(alike[string(key)], policy.Member{Kind: policy.User, ID: u.ID})
	}
	for _, key := range keys {
		r.add(census, alike[key]...)
	}
	for _, a := range r.ServiceAccounts {
		r.add(census, policy.Member{Kind: policy.ServiceAccount, ID: a.ID})
	}
	return census
}

func (r *roster) add(census *policy.Census, members ...policy.Member) {
	first := Identity{Kind: Kind(members[0].Kind), ID: members[0].ID}
	census.Add(r.snapshot(AccessQuery{Identity: first}).subject(first), members...)
}

// with returns the rows as they are once a bundle, which is normal, is applied. Errors: those of [Service.Apply].
func (r *roster) with(bundle Bundle) (after *roster, changed bool, err error) {
	a := newApplication(r.Bundle, bundle)
	write := a.rows()
	if err := a.err(); err != nil {
		return nil, false, err
	}
	return r.under(write), !write.Empty(), nil
}

// under returns the rows with others written over them; of two with one key the first counts.
func (r *roster) under(write Bundle) *roster {
	return newRoster(AccessRows{Generation: r.Generation, Bundle: Bundle{
		Users:           upserted(write.Users, r.Users, User.key, strings.Compare),
		Groups:          upserted(write.Groups, r.Groups, Group.key, strings.Compare),
		ServiceAccounts: upserted(write.ServiceAccounts, r.ServiceAccounts, ServiceAccount.key, strings.Compare),
		Policies:        upserted(write.Policies, r.Policies, Policy.key, strings.Compare),
		Attachments:     upserted(write.Attachments, r.Attachments, Attachment.key, AttachmentKey.Compare),
		BankPolicies:    upserted(write.BankPolicies, r.BankPolicies, BankPolicy.key, strings.Compare),
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
