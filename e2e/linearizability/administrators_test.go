package linearizability_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/longtest"
)

// Two administrators, each through a Service of its own, take the rights of an administrator from each other, or each from itself:
// one of them always remains.
func TestAnAdministratorRemains(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		town := settle(t, open(t), sound)
		for range (rounds(t) + 3) / 4 {
			for _, how := range slices.Sorted(maps.Keys(resignations)) {
				for _, other := range []bool{true, false} {
					if wrong := town.resign(how, other); wrong != nil {
						t.Fatal(wrong)
					}
				}
			}
		}
		town.whole()
	})
}

// That finds an administrator who judges without the lock.
func TestLostAdministratorsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	plant := inTransactions(func(tx svc.FullStore) svc.FullStore { return accessUnlocked{tx} })
	town := settle(t, stores["PostgreSQL"](t), plant)
	for n := range soon {
		for _, how := range slices.Sorted(maps.Keys(resignations)) {
			if wrong := town.resign(how, false); wrong != nil {
				t.Logf("found by round %d: %q", n, wrong)
				return
			}
		}
	}
	t.Fatalf("not found: %s", town.tally())
}

// resignations take the rights of an administrator from a user, who is in the group of its name.
var resignations = map[string]func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error{
	"deactivate": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return failure(s.Users.Patch(ctx, by, user, svc.UserPatch{Inactive: new(true)}))
	},
	"delete": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return s.Users.Delete(ctx, by, user)
	},
	"detach": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return s.Policies.Detach(ctx, by, svc.AttachmentKey{PolicyID: "administers-" + user, Principal: toGroup("", user).Principal})
	},
	"leave": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return s.Groups.RemoveMembers(ctx, by, user, user)
	},
	"delete the group": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return s.Groups.Delete(ctx, by, user)
	},
	"change the policy": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return failure(s.Policies.Patch(ctx, by, "administers-"+user, svc.PolicyPatch{Document: policyOf("", bankID).Document}))
	},
	"deny": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		return s.Policies.Attach(ctx, by, toUser("denies", user))
	},
	"prune": func(ctx context.Context, s *svc.Service, by svc.Principal, user string) error {
		rows := leaders()
		rows.Users = slices.DeleteFunc(rows.Users, func(u svc.User) bool { return u.ID == user })
		rows.Groups = slices.DeleteFunc(rows.Groups, func(g svc.Group) bool { return g.ID == user })
		rows.Attachments = slices.DeleteFunc(rows.Attachments, func(a svc.Attachment) bool { return a.Principal.ID == user })
		return s.Access.Write(ctx, by, rows, svc.BundleWrite{Prune: true})
	},
}

// leaders are two administrators, ann and ben.
func leaders() (b svc.Bundle) {
	b.Policies = []svc.Policy{{ID: "denies", Document: []byte(
		`{"version":"2026-03-24","statements":[{"effect":"deny","actions":["iam:users:write"],"banks":["*"]}]}`)}}
	for _, id := range []string{"ann", "ben"} {
		b.Users = append(b.Users, svc.User{ID: id})
		b.Groups = append(b.Groups, svc.Group{ID: id, Members: []string{id}})
		b.Policies = append(b.Policies, svc.Policy{ID: "administers-" + id, Document: []byte(
			`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["iam:*","bank:*"],"banks":["*"]}]}`)})
		b.Attachments = append(b.Attachments, toGroup("administers-"+id, id))
	}
	return b
}

// resign lets two administrators act at once, on the other or on itself, and returns what is wrong.
func (w *town) resign(how string, other bool) (wrong []string) {
	ctx := w.t.Context()
	must(0, w.services[0].Access.Write(ctx, svc.Host, leaders(), svc.BundleWrite{Prune: true}))
	of := []string{"ann", "ben"}
	results := make(chan error, len(of))
	for i, id := range of {
		by, user := svc.Principal{Kind: svc.KindUser, ID: id}, id
		if other {
			user = of[1-i]
		}
		go func() { results <- resignations[how](ctx, w.services[i%len(w.services)], by, user) }()
	}
	for range of {
		err := <-results
		w.answers[how+" "+string(svc.ErrorCode(err))]++
		switch svc.ErrorCode(err) {
		case "", svc.CodeForbidden, svc.CodeLastAdministrator, svc.CodeNotFound, svc.CodeInvalid:
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %v", how, err))
		}
	}
	if !w.administered(ctx, of) {
		wrong = append(wrong, how+": no administrator remains")
	}
	return wrong
}

// administered reports whether one of these users administers, by the rows of the store.
func (w *town) administered(ctx context.Context, users []string) bool {
	w.t.Helper()
	uncached := w.services[0].WithTx(w.store)
	return slices.ContainsFunc(users, func(id string) bool {
		by := svc.Principal{Kind: svc.KindUser, ID: id}
		may := func(action string) bool { return must(uncached.Decide(ctx, by, action, "*", svc.Context{})).Allowed() }
		return may(action.UsersWrite) && may("iam:another")
	})
}
