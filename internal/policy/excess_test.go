package policy_test

import (
	gocontext "context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// on returns a statement for other banks.
func on(st policytest.Statement, banks ...string) policytest.Statement {
	st.Banks = banks
	return st
}

func TestExceeds(t *testing.T) {
	give := func(action, bank string) policy.Excess { return policy.Excess{Action: action, Bank: bank} }
	take := func(action string) policy.Excess { return policy.Excess{Action: action, Bank: "*", Taken: true} }
	reader := user(allow("iam:*", "bank:recall"))
	for _, tc := range []struct {
		name          string
		by            policy.Grantor
		before, after policy.Subject
		want          policy.Excess
	}{
		{"nothing changes", policy.Grantor{}, reader, reader, policy.Excess{}},
		{"a right that the grantor has", policy.Grantor{Subject: reader}, user(), user(allow("bank:recall")), policy.Excess{}},
		{"a right that it lacks", policy.Grantor{Subject: reader}, user(), user(allow("bank:retain")), give("bank:retain", "*")},
		{"more than it has of a right", policy.Grantor{Subject: reader}, user(), user(allow("bank:*")), give("bank:*", "*")},
		{"on some banks", policy.Grantor{Subject: user(on(allow("bank:*"), "a::*"))}, user(), user(on(allow("bank:*"), "a::b::*", "a")), give("bank:*", "a")},
		{"what recall covers", policy.Grantor{Subject: reader}, user(), user(allow("bank:memories:list")), policy.Excess{}},
		{"what the party has already", policy.Grantor{}, user(allow("bank:*")), user(allow("bank:*"), allow("bank:recall")), policy.Excess{}},
		{"parameters alone", policy.Grantor{}, user(allow("bank:*")), user(policytest.Statement{Effect: "allow", Actions: []string{"bank:*"}, Banks: []string{"*"}, LLMModel: "m"}), policy.Excess{}},
		{"a deny that goes", policy.Grantor{Subject: user(allow("bank:recall"))}, user(allow("bank:*"), deny("bank:retain")), user(allow("bank:*")), give("bank:retain", "*")},
		{"data-plane rights with Banks", policy.Grantor{Banks: true}, user(), user(allow("bank:*")), policy.Excess{}},
		{"control-plane rights with Banks", policy.Grantor{Banks: true}, user(), user(allow("iam:users:read")), give("iam:users:read", "*")},
		{"vouched", policy.Grantor{Subject: user(), Vouched: []string{"iam:users:*"}}, user(), user(allow("iam:users:read")), policy.Excess{}},
		{"vouched for part", policy.Grantor{Subject: user(), Vouched: []string{"iam:users:*"}}, user(), user(allow("iam:*")), give("iam:*", "*")},
		{"a star is vouched", policy.Grantor{Subject: user(), Vouched: []string{"*"}}, user(), user(allow("iam:*", "template:x")), policy.Excess{}},
		{"a star is not the data plane", policy.Grantor{Subject: user(), Vouched: []string{"*", "bank:*"}}, user(), user(allow("bank:retain")), give("bank:retain", "*")},
		{"a deny of the grantor", policy.Grantor{Subject: user(deny("iam:users:read")), Vouched: []string{"*"}}, user(), user(allow("iam:*")), give("iam:users:read", "*")},
		{"a closed grantor", policy.Grantor{Subject: closed(reader), Vouched: []string{"*"}}, user(), user(allow("iam:*")), give("iam:*", "*")},
		{"a grantor that cannot be read", policy.Grantor{Subject: unread(reader), Vouched: []string{"*"}}, user(), user(allow("iam:*")), give("iam:*", "*")},
		{"control-plane rights on one bank", policy.Grantor{}, user(), user(on(allow("iam:*"), "a", "a::*")), policy.Excess{}},
		{"rights that a deny takes", policy.Grantor{Subject: user(allow("iam:users:*"))}, user(allow("iam:*")), user(allow("iam:*"), deny("iam:groups:*")), take("iam:groups:*")},
		{"rights that the grantor may take", policy.Grantor{Subject: user(allow("iam:users:*"))}, user(allow("iam:*")), user(allow("iam:*"), deny("iam:users:read")), policy.Excess{}},
		{"data-plane rights may be taken", policy.Grantor{}, user(allow("bank:*")), user(), policy.Excess{}},
		{"rights of a document that breaks", policy.Grantor{}, user(allow("template:*")), unread(user(allow("template:*"))), take("template:*")},
		{"opening what is closed", policy.Grantor{}, closed(user(allow("bank:*"))), user(allow("bank:*")), give("bank:*", "*")},
		{"within the grantor's narrowing", policy.Grantor{Subject: scoped(user(allow("bank:*")), allow("bank:recall"))}, user(), user(allow("bank:recall")), policy.Excess{}},
		{"beyond the grantor's narrowing", policy.Grantor{Subject: scoped(user(allow("bank:*")), allow("bank:recall"))}, user(), user(allow("bank:*")), give("bank:*", "*")},
		{"a scoping policy that goes", policy.Grantor{Subject: reader}, scoped(user(allow("bank:*")), allow("bank:recall")), user(allow("bank:*")), give("bank:*", "*")},
		{"another scoping policy", policy.Grantor{Subject: reader}, scoped(user(allow("bank:*")), allow("bank:x")), scoped(user(allow("bank:*")), allow("bank:y")), give("bank:y", "*")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is := is.New(t)
			got, exceeds := compiler.Exceeds(&tc.by, &tc.before, &tc.after, nil)
			is.Equal(got, tc.want)
			is.Equal(exceeds, tc.want != policy.Excess{})
		})
	}
}

// TestExceedsSender: the contexts of its provider decide what is new to a sender.
func TestExceedsSender(t *testing.T) {
	open := func(access string) []policy.Named {
		return []policy.Named{{ID: "a", Document: []byte(`{"version":"2026-03-24","public_access":` + access + `}`)}}
	}
	everywhere := open(`{"default":{"actions":["bank:recall"]}}`)
	onSlack := open(`{"overrides":[{"scope":"provider","value":"slack","actions":["bank:recall"]}]}`)
	butInNews := open(`{"default":{"actions":["bank:recall"]},"overrides":[{"scope":"topic","value":"news","actions":[]}]}`)
	inNews := open(`{"overrides":[{"scope":"topic","value":"news","actions":["bank:recall","iam:*"]}]}`)
	recalls := user(on(allow("bank:recall"), "a"))
	for _, tc := range []struct {
		name          string
		banks         []policy.Named
		before, after *policy.Subject
		want          policy.Excess
	}{
		{"has it in public", everywhere, nil, &recalls, policy.Excess{}},
		{"has it in public on its provider", onSlack, nil, &recalls, policy.Excess{}},
		{"lacks it in a topic", butInNews, nil, &recalls, policy.Excess{Action: "bank:memories:get", Bank: "a", Context: policy.Context{Provider: "slack", Topic: "news"}}},
		{"gets it in a topic", inNews, new(user()), nil, policy.Excess{Action: "bank:memories:get", Bank: "a", Context: policy.Context{Provider: "slack", Topic: "news"}}},
		{"had it", inNews, &recalls, nil, policy.Excess{}},
		{"gives up the control plane", nil, new(user(allow("iam:users:read"))), nil, policy.Excess{Action: "iam:users:read", Bank: "*", Taken: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is := is.New(t)
			got, exceeds := compiler.ExceedsSender(&policy.Grantor{Subject: user()}, "slack",
				policy.Mapping{Subject: tc.before, Banks: tc.banks}, policy.Mapping{Subject: tc.after, Banks: tc.banks})
			is.Equal(got, tc.want)
			is.Equal(exceeds, tc.want != policy.Excess{})
		})
	}
}

// TestExceedsFailsClosed: a call that has ended finds an excess, and no administrator.
func TestExceedsFailsClosed(t *testing.T) {
	is := is.New(t)
	call, end := gocontext.WithCancel(t.Context())
	apart, all := compiler.Apart(call), user(allow("iam:*", "bank:*"))
	_, exceeds := apart.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
	is.True(!exceeds)
	is.True(apart.Administers(all))
	end()
	apart = compiler.Apart(call)
	_, exceeds = apart.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
	is.True(exceeds)
	is.True(!apart.Administers(all))
}
