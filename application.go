package svc

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// application is one bundle on its way into a store that holds certain rows.
type application struct {
	checker
	bundle Bundle

	users           map[string]User // those of the store
	groups          map[string]Group
	serviceAccounts map[string]ServiceAccount
	policies        map[string]Policy
	attachments     map[AttachmentKey]Attachment
	bankPolicies    map[string]BankPolicy
}

func newApplication(current, bundle Bundle) *application {
	return &application{
		bundle:          bundle,
		users:           index(current.Users, User.key),
		groups:          index(current.Groups, Group.key),
		serviceAccounts: index(current.ServiceAccounts, ServiceAccount.key),
		policies:        index(current.Policies, Policy.key),
		attachments:     index(current.Attachments, Attachment.key),
		bankPolicies:    index(current.BankPolicies, BankPolicy.key),
	}
}

func index[R any, K comparable](rows []R, key func(R) K) map[K]R {
	m := make(map[K]R, len(rows))
	for _, row := range rows {
		m[key(row)] = row
	}
	return m
}

// rows returns the rows that differ from the store's, after checking what they refer to.
func (a *application) rows() Bundle {
	a.checkReferences()
	a.checkChannels()
	a.completeLists()
	b := a.bundle
	return Bundle{
		Users:           differing(b.Users, a.users, User.key),
		Groups:          differing(b.Groups, a.groups, Group.key),
		ServiceAccounts: differing(b.ServiceAccounts, a.serviceAccounts, ServiceAccount.key),
		Policies:        differing(b.Policies, a.policies, Policy.key),
		Attachments:     differing(b.Attachments, a.attachments, Attachment.key),
		BankPolicies:    differing(b.BankPolicies, a.bankPolicies, BankPolicy.key),
	}
}

func differing[R any, K comparable](rows []R, current map[K]R, key func(R) K) []R {
	return slices.DeleteFunc(slices.Clone(rows), func(row R) bool {
		there, found := current[key(row)]
		return found && reflect.DeepEqual(there, row)
	})
}

// completeLists fills in the channels and members that the bundle leaves as they are, and sorts the others.
func (a *application) completeLists() {
	a.bundle.Users, a.bundle.Groups = slices.Clone(a.bundle.Users), slices.Clone(a.bundle.Groups)
	for i := range a.bundle.Users {
		if u := &a.bundle.Users[i]; u.Channels == nil {
			u.Channels = append([]Channel{}, a.users[u.ID].Channels...)
		} else {
			u.Channels = sorted(u.Channels, Channel.compare)
		}
	}
	for i := range a.bundle.Groups {
		if g := &a.bundle.Groups[i]; g.Members == nil {
			g.Members = append([]string{}, a.groups[g.ID].Members...)
		} else {
			g.Members = sorted(g.Members, strings.Compare)
		}
	}
}

func (ch Channel) compare(other Channel) int {
	return cmp.Or(strings.Compare(ch.Provider, other.Provider), strings.Compare(ch.SenderID, other.SenderID))
}

// sorted returns a sorted copy, each element once, never nil.
func sorted[T comparable](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// checkChannels refuses a channel that would belong to two users: of those in the store, those whose channels the bundle
// replaces lose them first.
func (a *application) checkChannels() {
	replaced := map[string]bool{}
	for _, user := range a.bundle.Users {
		replaced[user.ID] = user.Channels != nil
	}
	holder := map[Channel]string{}
	for id, user := range a.users {
		for _, channel := range user.Channels {
			if !replaced[id] {
				holder[channel] = id
			}
		}
	}
	for i, user := range a.bundle.Users {
		if a.full {
			return
		}
		for j, channel := range user.Channels {
			if other, held := holder[channel]; held && other != user.ID {
				a.check(taken("/users/"+strconv.Itoa(i)+"/channels/"+strconv.Itoa(j), "is a channel of user "+quote(other)+" already"))
			}
			holder[channel] = user.ID
		}
	}
}

// checkReferences refuses what names a row that is neither in the bundle nor in the store.
func (a *application) checkReferences() {
	users, groups, policies := index(a.bundle.Users, User.key), index(a.bundle.Groups, Group.key), index(a.bundle.Policies, Policy.key)
	for i, g := range a.bundle.Groups {
		for j, member := range g.Members {
			if a.full {
				return
			}
			exists(a, "/groups/"+strconv.Itoa(i)+"/members/"+strconv.Itoa(j), "user", member, users, a.users)
		}
	}
	for i, account := range a.bundle.ServiceAccounts {
		at := "/service_accounts/" + strconv.Itoa(i)
		exists(a, at+"/owner_user_id", "user", account.OwnerUserID, users, a.users)
		if account.ScopingPolicyID != "" {
			exists(a, at+"/scoping_policy_id", "policy", account.ScopingPolicyID, policies, a.policies)
		}
	}
	for i, attachment := range a.bundle.Attachments {
		if a.full {
			return
		}
		at := "/attachments/" + strconv.Itoa(i)
		exists(a, at+"/policy_id", "policy", attachment.PolicyID, policies, a.policies)
		if attachment.Principal.Type == GrantedToUser {
			exists(a, at+"/principal_id", "user", attachment.Principal.ID, users, a.users)
		} else {
			exists(a, at+"/principal_id", "group", attachment.Principal.ID, groups, a.groups)
		}
	}
}

func exists[R any](a *application, at, noun, id string, bundled, stored map[string]R) {
	_, inBundle := bundled[id]
	_, inStore := stored[id]
	if !inBundle && !inStore {
		a.add(at, "names a "+noun+" that does not exist: "+quote(id))
	}
}
