package policy_test

import (
	"fmt"
	"testing"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// granted returns a user with policies of 4 statements each, all about banks of its own and one about all banks.
func granted(policies int) policy.Subject {
	s := policy.Subject{Kind: policy.User}
	for i := range policies {
		project := fmt.Sprint("project-", i)
		s.Grants = append(s.Grants, policy.Grant{PolicyID: project, Group: fmt.Sprint("team-", i%100), Document: policytest.Document(
			on(allow("bank:recall", "bank:retain"), project, project+"::*"),
			on(allow("bank:*"), project+"::notes::*"),
			on(deny("bank:memories:delete"), project+"::secret"),
			allow(fmt.Sprint("bank:stats:", i%20)),
		)})
	}
	return s
}

// rewriting returns a subject with one policy rewritten, as a write reads it: all other documents are the same bytes.
func rewriting(s policy.Subject, st policytest.Statement) policy.Subject {
	return rewritten(s, func(id string, raw []byte) []byte {
		if id == "project-7" {
			return policytest.Document(
				on(allow("bank:recall", "bank:retain"), "project-7", "project-7::*"), on(allow("bank:*"), "project-7::notes::*"),
				on(deny("bank:memories:delete"), "project-7::secret"), st)
		}
		return raw
	})
}

func BenchmarkExceeds(b *testing.B) {
	party := granted(500)
	admin := user(allow("iam:*"))
	for _, bench := range []struct {
		name          string
		by            policy.Grantor
		before, after *policy.Subject
		want          bool
	}{
		{"500x4/nothing", policy.Grantor{Subject: party}, &party, new(rewriting(party, allow("bank:stats:7"))), false},
		{"500x4/one bank", policy.Grantor{Subject: party}, &party, new(rewriting(party, on(allow("bank:list"), "project-7::*"))), true},
		{"500x4/one bank, allowed", policy.Grantor{Subject: party}, &party, new(rewriting(party, on(allow("bank:recall"), "project-7::x"))), false},
		{"500x4/all banks", policy.Grantor{Subject: party}, &party, new(rewriting(party, allow("bank:recall"))), true},
		{"500x4/all banks, allowed", policy.Grantor{Subject: user(allow("iam:*", "bank:*"))}, &party, new(rewriting(party, allow("bank:*"))), false},
		{"500x4/all banks, Banks", policy.Grantor{Subject: admin, Banks: true}, &party, new(rewriting(party, allow("bank:*"))), false},
		{"500x4/control plane, Banks", policy.Grantor{Subject: admin, Banks: true}, &party, new(rewriting(party, allow("iam:*"))), false},
		{"500x4/opened", policy.Grantor{Subject: party}, nil, &party, false},
		{"500x4/opened, Banks", policy.Grantor{Subject: admin, Banks: true}, nil, &party, false},
		{"5x4/one bank", policy.Grantor{Subject: admin, Banks: true}, new(granted(5)), new(rewriting(granted(10), allow("bank:list"))), false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			apart := policy.NewCompiler(policy.Memory).Apart(b.Context())
			for b.Loop() {
				apart.Limit(policy.MaxSteps)
				if _, exceeds := apart.Exceeds(&bench.by, bench.before, bench.after, nil); exceeds != bench.want {
					b.Fatal(exceeds)
				}
			}
		})
	}
}

// BenchmarkExceedsOfGroup: a policy of a group changes, and each of its 100 members has 25 policies, no two the same ones.
func BenchmarkExceedsOfGroup(b *testing.B) {
	all := granted(500)
	for _, by := range []policy.Grantor{
		{Subject: user(allow("iam:*")), Banks: true}, {Subject: user(allow("iam:*", "bank:*"))}, {Subject: all},
	} {
		st := on(allow("bank:recall"), "project-7::x")
		after := rewriting(all, st)
		parties := make([][2]policy.Subject, 100)
		for i := range parties {
			for n := range 25 {
				at := (7 + n*(i+1)) % 500
				parties[i][0].Kind, parties[i][1].Kind = policy.User, policy.User
				parties[i][0].Grants = append(parties[i][0].Grants, all.Grants[at])
				parties[i][1].Grants = append(parties[i][1].Grants, after.Grants[at])
			}
		}
		b.Run(fmt.Sprint(len(by.Subject.Grants), by.Banks), func(b *testing.B) {
			cached := policy.NewCompiler(policy.Memory)
			for _, g := range all.Grants {
				if err := cached.Check(g.Document); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				apart := cached.Apart(b.Context())
				for i := range parties {
					if e, exceeds := apart.Exceeds(&by, &parties[i][0], &parties[i][1], nil); exceeds {
						b.Fatal(e)
					}
				}
			}
		})
	}
}

func BenchmarkAdministers(b *testing.B) {
	for _, s := range []policy.Subject{user(allow("iam:*")), granted(5), granted(500)} {
		b.Run(fmt.Sprint(len(s.Grants)), func(b *testing.B) {
			apart := policy.NewCompiler(policy.Memory).Apart(b.Context())
			for b.Loop() {
				apart.Limit(policy.MaxSteps)
				apart.Administers(s)
			}
		})
	}
}
