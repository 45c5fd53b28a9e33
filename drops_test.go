package svc_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const dropsWorld = `{
	"users": [{"id": "alice"}, {"id": "bob"}, {"id": "carol"}],
	"groups": [{"id": "staff", "members": ["alice", "carol"]}, {"id": "bare", "members": ["bob"]}],
	"service_accounts": [{"id": "bot", "owner_user_id": "alice", "scoping_policy_id": "scope"}],
	"policies": [{"id": "p", "document": ` + allowRecall + `}, {"id": "q", "document": ` + allowRecall + `},
		{"id": "scope", "document": ` + allowRecall + `}, {"id": "narrow", "document": ` + allowRecall + `},
		{"id": "unused", "document": ` + allowRecall + `}],
	"attachments": [{"policy_id": "p", "principal_type": "group", "principal_id": "staff"},
		{"policy_id": "q", "principal_type": "user", "principal_id": "bob"}]}`

const (
	allowRecall = `{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["*"]}]}`
	allowMore   = `{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:*"], "banks": ["*"]}]}`
)

// What is written makes the Service read those again whose rights it may change, and nobody else:
// in the process that writes, and in another.
func TestWriteDropsWhomItReaches(t *testing.T) {
	alice, bob, carol, bot := user("alice"), user("bob"), user("carol"), account("bot")
	narrowed := svc.Principal{Kind: svc.KindUser, ID: "alice", ScopingPolicyID: "narrow"}
	who := map[string]svc.Principal{"alice": alice, "narrowed": narrowed, "bob": bob, "carol": carol, "bot": bot}
	for _, c := range []struct{ what, bundle, read string }{
		{"nothing", `{"users": [{"id": "alice"}]}`, ""},
		{"a display name", `{"users": [{"id": "alice", "display_name": "A", "email": "a@b.example"}]}`, ""},
		{"names of other rows", `{"groups": [{"id": "staff", "display_name": "S"}], "policies": [{"id": "p", "display_name": "P", "document": ` + allowRecall + `}],
			"service_accounts": [{"id": "bot", "display_name": "B", "owner_user_id": "alice", "scoping_policy_id": "scope"}]}`, ""},
		{"new rows", `{"users": [{"id": "dave", "channels": [{"provider": "p", "sender_id": "1"}]}], "groups": [{"id": "new", "members": ["dave"]}], "policies": [{"id": "new", "document": ` + allowMore + `}],
			"attachments": [{"policy_id": "new", "principal_type": "group", "principal_id": "new"}]}`, ""},
		{"a user", `{"users": [{"id": "alice", "is_active": false}]}`, "alice bot narrowed"},
		{"a user of no account", `{"users": [{"id": "carol", "is_active": false}]}`, "carol"},
		{"a channel", `{"users": [{"id": "carol", "channels": [{"provider": "p", "sender_id": "2"}]}]}`, ""},
		{"who joins", `{"groups": [{"id": "staff", "members": ["alice", "bob", "carol"]}]}`, "bob"},
		{"who leaves", `{"groups": [{"id": "staff", "members": ["alice"]}]}`, "carol"},
		{"a policy", `{"policies": [{"id": "p", "document": ` + allowMore + `}]}`, "alice bot carol narrowed"},
		{"a policy of one", `{"policies": [{"id": "q", "document": ` + allowMore + `}]}`, "bob"},
		{"a scoping policy", `{"policies": [{"id": "scope", "document": ` + allowMore + `}]}`, "bot"},
		{"a narrowing policy", `{"policies": [{"id": "narrow", "document": ` + allowMore + `}]}`, "narrowed"},
		{"a policy of nobody", `{"policies": [{"id": "unused", "document": ` + allowMore + `}]}`, ""},
		{"an account", `{"service_accounts": [{"id": "bot", "owner_user_id": "alice"}]}`, "bot"},
		{"an attachment to a user", `{"attachments": [{"policy_id": "unused", "principal_type": "user", "principal_id": "alice"}]}`, "alice bot narrowed"},
		{"a group's first attachment", `{"attachments": [{"policy_id": "unused", "principal_type": "group", "principal_id": "bare"}]}`, "bob"},
		{"a bank", `{"bank_policies": [{"bank_id": "other", "document": {"version": "2026-03-24"}}]}`, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			is := is.New(t)
			read := readAgain(t, who, c.bundle)
			if read != [2]string{c.read, c.read} {
				// Two banks in one set of the cache are dropped together. With other services, and so
				// another hash, they are not.
				read = readAgain(t, who, c.bundle)
			}
			is.Equal(read, [2]string{c.read, c.read})
		})
	}
}

// readAgain returns the names of those whom the process that applies a bundle reads again, and of those whom another one does.
func readAgain(t *testing.T, who map[string]svc.Principal, bundle string) (names [2]string) {
	is := is.New(t)
	h, store := watched(t)
	h.apply(t, dropsWorld)
	there := &watchedStore{Store: h.store}
	other := newHost(t, func(c *svc.Config) { c.Store = there })
	for _, p := range who {
		h.warm(t, store, p, "notes")
		other.warm(t, there, p, "notes")
	}
	h.apply(t, bundle)
	h.apply(t, `{"bank_policies": [{"bank_id": "marker", "document": {"version": "2026-03-24", "public_access": {"default": {"actions": ["bank:recall"]}}}}]}`)
	eventually(t, func() bool { // the other process has followed so far
		d, err := other.Decide(t.Context(), svc.Unmapped, "bank:recall", "marker", svc.Context{})
		is.NoErr(err)
		return d.Allowed()
	})
	for i, at := range []struct {
		*watchedStore
		*host
	}{{store, h}, {there, other}} {
		var read []string
		for _, name := range slices.Sorted(maps.Keys(who)) {
			before := at.reads.Load()
			_, err := at.Decide(t.Context(), who[name], "bank:recall", "notes", svc.Context{})
			is.NoErr(err)
			if at.reads.Load() > before {
				read = append(read, name)
			}
		}
		names[i] = strings.Join(read, " ")
	}
	return names
}
