package svc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// foreignNames are names of banks, channels, topics and senders, which are not ours to choose.
var foreignNames = []string{
	"b c/ü", `a\b`, "/", `\`, "//", "a/b/c", "a/../b", "../..", "%2F", "?x=1&y", "a/b::c", " ", "\"'", "日本/語", "e\u0301", strings.Repeat("/", 128),
	strings.Repeat("\U0001f600", 128), strings.Repeat("\U00020000", 128),
}

// unprintable are no names of anything.
var unprintable = []string{
	strings.Repeat("a", 129), strings.Repeat("\U0001f600", 129), "a\x00", "a\nb", "\x7f", "\u0085", "\u200b", "a\u202eb", "\ufeff", "\u2028", "\u2029", "\xff", "a\xc3",
}

// foreignBundle lets alice, and the public, recall from a bank at one place.
func foreignBundle(name string) svc.Bundle {
	quoted := string(encoded(name))
	return svc.Bundle{
		Users: []svc.User{{ID: "alice", Channels: []svc.Channel{{Provider: "chat", SenderID: name}}}},
		Policies: []svc.Policy{{ID: "recall", Document: json.RawMessage(`{"version":"2026-03-24","statements":[
			{"effect":"allow","actions":["bank:recall"],"banks":[` + quoted + `]}]}`)}},
		Attachments: []svc.Attachment{{PolicyID: "recall", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}}},
		BankPolicies: []svc.BankPolicy{{BankID: name, Document: json.RawMessage(`{"version":"2026-03-24",
			"strategy_overrides":[{"scope":"topic","value":` + quoted + `,"strategy":"brief"}],
			"public_access":{"overrides":[{"scope":"channel","value":` + quoted + `,"actions":["bank:recall"]}]}}`)}},
	}
}

// The names of what is not ours hold slashes, wherever they are asked about or stored.
func TestForeignNames(t *testing.T) {
	for _, name := range foreignNames {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			h := newHost(t)
			simulated, err := h.Policies.Simulate(t.Context(), svc.Host, foreignBundle(name), svc.Question{Bank: name, Sender: "chat:" + name, Topic: name})
			is.NoErr(err)
			is.NoErr(h.Access.Apply(t.Context(), svc.Host, foreignBundle(name)))

			mapped, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: name, Sender: "chat:" + name, Topic: name})
			is.NoErr(err)
			is.Equal(mapped.TenantID, "alice")
			is.Equal(mapped.Outcome, svc.Allow)
			is.Equal(*mapped.EffectiveStrategy, "brief")
			is.Equal(simulated.Trace, mapped.Trace)

			public, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: name, Sender: "other:" + name, Channel: name})
			is.NoErr(err)
			is.Equal(public.PrincipalType, svc.KindUnmapped)
			is.Equal(public.Outcome, svc.Allow)

			reach, err := h.Policies.WhoCan(t.Context(), svc.Host, "", name)
			is.NoErr(err)
			is.Equal(reach.Users, []string{"alice"})
			can, err := h.Policies.WhatCan(t.Context(), svc.Host, alice.Identity())
			is.NoErr(err)
			is.Equal(can[0].Bank, name)
			for _, at := range []svc.Context{{}, {Channel: name}} {
				d, err := h.Decide(t.Context(), svc.Unmapped, svc.ActionRecall, name, at)
				is.NoErr(err)
				is.Equal(d.Allowed(), at.Channel == name)
			}
			d, err := h.Decide(t.Context(), alice, svc.ActionRecall, name, svc.Context{Topic: name})
			is.NoErr(err)
			is.True(d.Allowed())
		})
	}
}

// A bank may be called as a segment of a path is not; a sender that belongs to somebody is one.
func TestForeignNamesOfDots(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for _, name := range []string{".", ".."} {
		b := foreignBundle(name)
		wantCode(t, h.Access.Apply(t.Context(), svc.Host, b), svc.CodeInvalid, "/users/0/channels/0/sender_id")
		b.Users[0].Channels = nil
		is.NoErr(h.Access.Apply(t.Context(), svc.Host, b))
		r, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: name, Sender: "chat:" + name, Channel: name})
		is.NoErr(err)
		is.Equal(r.Outcome, svc.Allow)
		is.Equal(r.PrincipalType, svc.KindUnmapped)
	}
}

func TestForeignNamesRefused(t *testing.T) {
	h := newHost(t)
	ask := func(q svc.Question) error { _, err := h.Policies.Resolve(t.Context(), svc.Host, q); return err }
	for _, name := range unprintable {
		wantCode(t, ask(svc.Question{Bank: name, UserID: "a"}), svc.CodeInvalid, "bank")
		wantCode(t, ask(svc.Question{Bank: "b", UserID: "a", Channel: name}), svc.CodeInvalid, "channel")
		wantCode(t, ask(svc.Question{Bank: "b", UserID: "a", Topic: name}), svc.CodeInvalid, "topic")
		wantCode(t, ask(svc.Question{Bank: "b", Sender: "chat:" + name}), svc.CodeInvalid, "sender")
		wantCode(t, ask(svc.Question{Bank: "b", Sender: name + ":1"}), svc.CodeInvalid, "sender")
		_, err := h.Decide(t.Context(), alice, svc.ActionRecall, name, svc.Context{})
		wantCode(t, err, svc.CodeInvalid, "bank")
		_, err = h.Policies.WhoCan(t.Context(), svc.Host, "", name)
		wantCode(t, err, svc.CodeInvalid, "bank")
		wantCode(t, h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: foreignBundle(name).Users}), svc.CodeInvalid, "/users/0/channels/0/sender_id")
		wantCode(t, h.Access.Apply(t.Context(), svc.Host, svc.Bundle{BankPolicies: []svc.BankPolicy{{BankID: name, Document: foreignBundle("b").BankPolicies[0].Document}}}),
			svc.CodeInvalid, "/bank_policies/0/bank_id")
	}
	for _, provider := range []string{"a/b", `a\b`, ".", ".."} { // is an id
		wantCode(t, ask(svc.Question{Bank: "b", Sender: provider + ":1"}), svc.CodeInvalid, "sender")
	}
	_, err := h.Decide(t.Context(), alice, svc.ActionRecall, "", svc.Context{})
	wantCode(t, err, svc.CodeInvalid, "bank")
}
