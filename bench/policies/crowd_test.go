package policies_test

import (
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// crowdSize is the size of each principal of a crowd. Its policies come from a pool ten times as
// large.
var crowdSize = size{20, 10}

// crowd is many principals, some with the same policies.
type crowd struct {
	subjects   []policy.Subject
	statements [][]statement // of each subject
}

// newCrowd returns so many principals with so many different sets of policies.
func newCrowd(principals, sets int) crowd {
	m := newMaker(crowdSize.policies * crowdSize.statements)
	pool := m.policies(10*crowdSize.policies, crowdSize.statements)
	documents := make([][]byte, len(pool))
	for i, p := range pool {
		documents[i] = document(p)
	}
	var c crowd
	for range sets {
		s, statements := policy.Subject{Kind: policy.User}, []statement(nil)
		for _, n := range m.Perm(len(pool))[:crowdSize.policies] {
			s.Grants = append(s.Grants, grant(m.Rand, n, documents[n]))
			statements = append(statements, pool[n]...)
		}
		c.subjects, c.statements = append(c.subjects, s), append(c.statements, statements)
	}
	for i := range principals - sets {
		s := c.subjects[i]
		s.Grants = slices.Clone(s.Grants) // equal, but not the same slice
		c.subjects, c.statements = append(c.subjects, s), append(c.statements, c.statements[i])
	}
	return c
}

// engines compiles the rights of each principal.
func (c crowd) engines(with compiler) []engine {
	out := make([]engine, len(c.subjects))
	for i, s := range c.subjects {
		out[i] = with.compile(s)
	}
	return out
}
