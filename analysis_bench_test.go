package svc_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// firm draws a bundle of a plausible kind: policies about projects and what is in them, attached to teams that users are members of,
// some to users themselves.
type firm struct {
	*rand.Rand
	users, policies, statements, teams, perTeam int
	everywhere                                  int // one in so many statements is for all banks
}

var (
	verbs  = []string{"recall", "retain", "delete", "export", "share", "memories:list", "memories:get", "memories:put"}
	models = []string{"small", "medium", "large"}
)

func (f firm) bundle() svc.Bundle {
	f.Rand = rand.New(rand.NewPCG(1, 2))
	var b svc.Bundle
	for i := range f.teams {
		b.Groups = append(b.Groups, svc.Group{ID: fmt.Sprint("team-", i)})
	}
	for i := range f.users {
		id := fmt.Sprint("user-", i, "@example.com")
		b.Users = append(b.Users, svc.User{ID: id})
		team := &b.Groups[i%f.teams]
		team.Members = append(team.Members, id)
	}
	for i := range f.policies {
		b.Policies = append(b.Policies, svc.Policy{ID: fmt.Sprint("policy-", i), Document: f.document(i)})
	}
	for i := range f.teams {
		for n := range f.perTeam {
			b.Attachments = append(b.Attachments, svc.Attachment{
				PolicyID: b.Policies[(i*f.perTeam+n)%f.policies].ID, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: b.Groups[i].ID}, Priority: f.Int64N(3),
			})
		}
	}
	return b
}

// scattered gives every tenth user a policy of its own, so that many sets of policies are different.
func (f firm) scattered(b svc.Bundle) svc.Bundle {
	b.Attachments = slices.Clone(b.Attachments)
	for i := 0; i < f.users; i += 10 {
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: b.Policies[i%f.policies].ID, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: b.Users[i].ID}})
	}
	return b
}

func (f firm) document(policy int) []byte {
	d := drawnDocument{Version: "2026-03-24"}
	for range f.statements {
		s := map[string]any{"effect": "allow"}
		switch f.IntN(4) {
		case 0:
			s["actions"] = []string{"bank:*"}
		default:
			s["actions"] = []string{"bank:" + verbs[f.IntN(len(verbs))], "bank:" + verbs[f.IntN(len(verbs))]}
		}
		project := fmt.Sprint("project-", (policy*3+f.IntN(6))%200)
		switch f.IntN(7) {
		case 0, 1, 2:
			s["banks"] = []string{project + "::*", project}
		case 3:
			s["banks"] = []string{project + "::notes::*"}
		default:
			s["banks"] = []string{fmt.Sprint(project, "::", f.IntN(5))}
		}
		if f.IntN(f.everywhere) == 0 {
			s["banks"] = []string{"*"}
		}
		switch f.IntN(10) {
		case 0:
			s["effect"] = "deny"
			s["banks"] = []string{project + "::secret"}
		case 1, 2:
			s["recall_max_tokens"] = 1 << f.IntN(8)
		case 3, 4:
			s["llm_model"] = models[f.IntN(3)]
		case 5:
			s["retain_tags"] = []string{"a", "b"}[:1+f.IntN(2)]
		}
		d.Statements = append(d.Statements, s)
	}
	return encoded(d)
}

// large is 10,000 users, 500 policies of 10 statements.
var large = firm{users: 10_000, policies: 500, statements: 10, teams: 250, perTeam: 4, everywhere: 200}

func benchHost(b *testing.B, bundle svc.Bundle) *svc.Service {
	b.Helper()
	s, err := svc.New(svc.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	if err := s.Access.Apply(b.Context(), svc.Host, bundle); err != nil {
		b.Fatal(err)
	}
	for followed := false; ; followed = svc.Follows(s, 1) {
		if _, err := s.Policies.WhoCan(b.Context(), svc.Host, "", "b"); err != nil {
			b.Fatal(err)
		}
		if followed {
			return s
		}
	}
}

func BenchmarkWhoCan(b *testing.B) {
	bundle := large.scattered(large.bundle())
	everybody := svc.Group{ID: "everybody"}
	for _, u := range bundle.Users {
		everybody.Members = append(everybody.Members, u.ID)
	}
	bundle.Groups = append(bundle.Groups, everybody)
	bundle.Policies = append(bundle.Policies, svc.Policy{ID: "lists", Document: encoded(drawnDocument{"2026-03-24", []map[string]any{
		{"effect": "allow", "actions": []string{"bank:stats"}, "banks": []string{"*"}},
	}})})
	bundle.Attachments = append(bundle.Attachments, svc.Attachment{PolicyID: "lists", Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: "everybody"}})
	s := benchHost(b, bundle)
	ask := func(b *testing.B, action string, bank func(i int) string) {
		b.ReportAllocs()
		users, i := 0, 0
		for b.Loop() {
			r, err := s.Policies.WhoCan(b.Context(), svc.Host, action, bank(i))
			if err != nil {
				b.Fatal(err)
			}
			users, i = users+len(r.Users), i+1
		}
		b.ReportMetric(float64(users)/float64(b.N), "users")
	}
	banks := make([]string, 5000)
	for i := range banks {
		banks[i] = fmt.Sprint("project-", i%200, "::", i/200)
	}
	b.Run("the same class again", func(b *testing.B) { ask(b, "bank:recall", func(int) string { return "project-7::1" }) })
	b.Run("always another class", func(b *testing.B) { ask(b, "bank:retain", func(i int) string { return banks[i%len(banks)] }) })
	b.Run("everybody", func(b *testing.B) { ask(b, "bank:stats", func(int) string { return "project-7::1" }) })
	b.Run("everybody, read one by one", func(b *testing.B) {
		length := 0
		for b.Loop() {
			r, err := s.Policies.WhoCan(b.Context(), svc.Host, "bank:stats", "project-7::1")
			if err != nil {
				b.Fatal(err)
			}
			for _, id := range r.Users {
				length += len(id)
			}
		}
	})
}

// BenchmarkFirstWhoCan reads all rows: what the first question costs, and what is kept for each user.
func BenchmarkFirstWhoCan(b *testing.B) {
	for name, bundle := range map[string]svc.Bundle{"teams": large.bundle(), "scattered": large.scattered(large.bundle())} {
		b.Run(name, func(b *testing.B) {
			s := benchHost(b, bundle)
			kept := heap()
			svc.ForgetCopies(s)
			kept -= heap()
			for b.Loop() {
				svc.DropCopies(s)
				if _, err := s.Policies.WhoCan(b.Context(), svc.Host, "", "b"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(kept)/float64(large.users), "B/user")
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// diffed are worlds of 100 policies of 20 statements.
var diffed = []struct {
	name string
	firm
}{
	{"20 teams of 5 policies", firm{users: 1000, policies: 100, statements: 20, teams: 20, perTeam: 5, everywhere: 8}},
	{"one user of 100 policies", firm{users: 1, policies: 100, statements: 20, teams: 1, perTeam: 100, everywhere: 8}},
}

// changed returns the world, and what becomes of it: with one policy that is another, with all, with none.
func (f firm) changed() (before svc.Bundle, after map[string]svc.Bundle) {
	before = f.bundle()
	one, all := before, before
	one.Policies, all.Policies = slices.Clone(before.Policies), slices.Clone(before.Policies)
	f.Rand = rand.New(rand.NewPCG(3, 4))
	for i := range all.Policies {
		all.Policies[i].Document = f.document(i)
	}
	one.Policies[7] = all.Policies[7]
	return before, map[string]svc.Bundle{"one changed": one, "all changed": all, "none changed": before}
}

// BenchmarkDiff compares bundles: all of their documents are parsed for it.
func BenchmarkDiff(b *testing.B) {
	for _, w := range diffed {
		before, changed := w.changed()
		for name, after := range changed {
			b.Run(w.name+"/"+name, func(b *testing.B) {
				benchDiff(b, func() (svc.AccessDiff, error) { return svc.Diff(before, after) })
			})
		}
	}
}

// BenchmarkPreviewApply compares what is stored with what a bundle of policies would make of it: those that are stored were parsed before.
func BenchmarkPreviewApply(b *testing.B) {
	for _, w := range diffed {
		before, changed := w.changed()
		for name, after := range changed {
			b.Run(w.name+"/"+name, func(b *testing.B) {
				s := benchHost(b, before)
				benchDiff(b, func() (svc.AccessDiff, error) {
					return s.Access.Preview(b.Context(), svc.Host, svc.Bundle{Policies: after.Policies}, svc.BundleWrite{})
				})
			})
		}
	}
}

func benchDiff(b *testing.B, diff func() (svc.AccessDiff, error)) {
	b.ReportAllocs()
	differences := 0
	for b.Loop() {
		d, err := diff()
		if err != nil {
			b.Fatal(err)
		}
		differences = 0
		for _, p := range d.Principals {
			differences += len(p.Differences)
		}
	}
	b.ReportMetric(float64(differences), "differences")
}
