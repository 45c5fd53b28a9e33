package svc_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// overlay draws a bundle to put over another, one in three of which cannot be applied.
func (w *worlds) overlay(base svc.Bundle) svc.Bundle {
	overlay := w.variant(base)
	overlay.Users = slices.Clip(overlay.Users[:w.IntN(len(overlay.Users))])
	overlay.Attachments = slices.Clip(overlay.Attachments[:w.IntN(len(overlay.Attachments))])
	switch w.IntN(12) {
	case 0:
		overlay.Groups = append(overlay.Groups, svc.Group{ID: "new", Members: []string{"nobody"}})
	case 1:
		overlay.ServiceAccounts = append(overlay.ServiceAccounts, svc.ServiceAccount{ID: "new", OwnerUserID: "u0", ScopingPolicyID: "none"})
	case 2:
		overlay.Users = append(overlay.Users, svc.User{ID: "new", Channels: []svc.Channel{{Provider: "slack", SenderID: "4"}}})
	case 3:
		overlay.Policies = append(overlay.Policies, svc.Policy{ID: "new", Document: []byte(`{"version":"1"}`)})
	case 4:
		overlay.Users = append(overlay.Users, svc.User{ID: "new", Channels: []svc.Channel{{Provider: "web", SenderID: "1"}}})
		overlay.Attachments = append(overlay.Attachments, svc.Attachment{PolicyID: "p0", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "new"}})
	}
	return overlay
}

func (w *worlds) query() svc.Question {
	q := svc.Question{Bank: w.one(askedBanks), Action: w.one(askedActions), Channel: w.one([]string{"", "c"}), Topic: w.one([]string{"", "t"})}
	switch w.IntN(4) {
	case 0:
		q.UserID = w.one([]string{"u0", "u1", "u2", "u3", "u4", "nobody", "new"})
	case 1:
		q.ServiceAccountID = w.one([]string{"s0", "s1", "s2", "nobody", "new"})
	default:
		q.Sender = w.one([]string{"slack:0", "slack:1", "slack:2", "slack:9", "web:1"})
	}
	return q
}

// Simulate answers as Resolve does once the bundle is applied to a copy, refuses what Apply refuses, and writes nothing.
func TestSimulateIsApplyAndResolve(t *testing.T) {
	seen := map[string]int{}
	forEachWorld(t, 60, func(t *testing.T, w *worlds) {
		base, spoiled := w.bundle(), w.spoiled()
		overlay := w.overlay(base)
		h, applied := w.host(t, base), w.host(t, base)
		h.write(t, spoiled)
		applied.write(t, spoiled)
		before := whole(t, h)
		refused := applied.Access.Apply(t.Context(), svc.Host, overlay)
		for range 20 {
			q := w.query()
			got, err := h.Policies.Simulate(t.Context(), svc.Host, overlay, q)
			if refused != nil {
				if err == nil || err.Error() != refused.Error() || svc.ErrorCode(err) != svc.ErrorCode(refused) {
					t.Errorf("simulated: %v, applied: %v", err, refused)
				}
				seen[string(svc.ErrorCode(err))]++
				continue
			}
			want, resolveErr := applied.Policies.Resolve(t.Context(), svc.Host, q)
			if err != nil || resolveErr != nil {
				t.Fatal(err, resolveErr)
			}
			revision := before.revision
			if want.Revision != before.revision {
				revision += "+simulated"
			}
			if got.Revision != revision {
				t.Errorf("revision %q, was %q, is %q", got.Revision, before.revision, want.Revision)
			}
			got.Revision = want.Revision
			if a, b := string(encoded(got)), string(encoded(want)); a != b {
				t.Errorf("%+v:\nsimulated %s\nresolved  %s", q, a, b)
			}
			seen[string(got.Outcome)]++
		}
		if after := whole(t, h); after != before {
			t.Errorf("something was written:\n%v\n%v", before, after)
		}
	})
	for _, kind := range []string{"allow", "explicit_deny", "implicit_deny", "invalid_request", "already_exists"} {
		if seen[kind] < 20 {
			t.Error("the worlds are not varied", seen)
		}
	}
}

type stored struct{ revision, rows string }

// whole is all that a host's store holds.
func whole(t *testing.T, h *host) stored {
	t.Helper()
	rows := allAccess(t, h.store)
	return stored{sprintf("%d", rows.Generation), string(encoded(rows))}
}

func TestSimulateWithoutChange(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, world)
	same, err := svc.ParseBundle([]byte(world))
	is.NoErr(err)
	for _, overlay := range []svc.Bundle{{}, same} {
		for _, q := range []svc.Question{{Bank: "notes", UserID: "alice"}, {Bank: "notes", Sender: "telegram:1"}, {Bank: "notes", ServiceAccountID: "ci"}} {
			simulated, err := h.Policies.Simulate(t.Context(), svc.Host, overlay, q)
			is.NoErr(err)
			resolved, err := h.Policies.Resolve(t.Context(), svc.Host, q)
			is.NoErr(err)
			is.Equal(simulated, resolved) // the revision, too
		}
	}
}

func TestSimulateRefuses(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	q := svc.Question{Bank: "b", UserID: "a"}
	_, err := h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, svc.Question{Bank: "b"})
	wantCode(t, err, svc.CodeInvalid, "user_id")
	_, err = h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{}}}, q)
	wantCode(t, err, svc.CodeInvalid, "/users/0/id")
	_, err = h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{}}}, svc.Question{})
	is.True(strings.Contains(err.Error(), "/users/0/id") && strings.Contains(err.Error(), "bank: is required")) // everything at once
	_, err = h.Policies.Simulate(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "a"}, svc.Bundle{}, q)
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Policies.Simulate(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "a"}, svc.Bundle{}, svc.Question{})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid) // what is wrong with a request comes first
}

// A resolution is the caller's own: what it does to one does not show in the next.
func TestSimulateHandsOutItsOwn(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, world)
	q := svc.Question{Bank: "notes", Sender: "telegram:1"}
	first, err := h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, q)
	is.NoErr(err)
	text := string(encoded(first))
	for i := range first.BankPolicy {
		first.BankPolicy[i] = ' '
	}
	*first.ResolvedUserID = "other"
	second, err := h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, q)
	is.NoErr(err)
	is.Equal(string(encoded(second)), text)
	is.True(json.Valid(second.BankPolicy))
}
