package roster_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/extsvc/svc/internal/policy/policytest"
	"github.com/extsvc/svc/internal/roster"
)

// large returns a roster of n users, each in two of n/400 groups; 500 policies of 10 statements, 4 to each group.
func large(n int) *roster.Roster {
	r := roster.NewIndexed()
	for i := range n {
		r.SetUser(fmt.Sprintf("user-%011d", i), false)
	}
	groups := n / 400
	for i := range n {
		id := fmt.Sprintf("user-%011d", i)
		r.Join(fmt.Sprint("group-", i%groups), id)
		r.Join(fmt.Sprint("group-", (i*7+i/groups)%groups), id)
	}
	for i := range 500 {
		r.SetPolicy(fmt.Sprint("policy-", i), largeDocument(i))
	}
	for i := range groups {
		for n := range 4 {
			r.Attach(fmt.Sprint("policy-", (i*4+n)%500), roster.Principal{ID: fmt.Sprint("group-", i), Group: true}, 0)
		}
	}
	return r
}

func largeDocument(policy int) []byte {
	var statements []policytest.Statement
	for i := range 10 {
		project := fmt.Sprint("project-", (policy*3+i)%200)
		statements = append(statements, policytest.Statement{
			Effect: "allow", Actions: []string{"bank:recall", "bank:retain"}, Banks: []string{project, fmt.Sprint(project, "::", i, "::*")},
		})
	}
	return policytest.Document(statements...)
}

func BenchmarkRoster(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		var r *roster.Roster
		var before, after runtime.MemStats
		b.Run(fmt.Sprint(n, " users/build"), func(b *testing.B) {
			for b.Loop() {
				r = nil
				runtime.GC()
				runtime.ReadMemStats(&before)
				r = large(n)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/user")
			b.ReportMetric(float64(r.Size())/float64(n), "Size/user")
		})
		i := 0
		for what, change := range map[string]func(){
			"nothing":    func() {},
			"user":       func() { r.SetUser("user-00000000500", i%2 == 0) },
			"new user":   func() { r.SetUser(fmt.Sprint("new-", i), false) },
			"member":     func() { r.Leave("group-1", "user-00000000001"); r.Join("group-1", "user-00000000001") },
			"attachment": func() { r.Attach("policy-7", roster.Principal{ID: "group-1", Group: true}, int64(i)) },
			"policy":     func() { r.SetPolicy("policy-7", largeDocument(7+i%2)) },
		} {
			b.Run(fmt.Sprint(n, " users/who can after ", what), func(b *testing.B) {
				users := 0
				for b.Loop() {
					i++
					change()
					users = len(r.WhoCan("bank:recall", "project-7::1").Users) + len(r.WhoCan("bank:recall", "project-7").Users)
				}
				b.ReportMetric(float64(users), "users")
			})
		}
	}
}
