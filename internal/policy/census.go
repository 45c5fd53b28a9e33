package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Census holds the principals to examine together, and the policies of banks. Each policy has one
// document in the whole census.
type Census struct {
	Parties []Party  // no two have equal policies; use Add
	Banks   []Named  // those to compare; Diff finds the same in others
	Shut    []string // what [Schema.Shut] returns for all banks

	byKey map[string]int
}

// Party is a group of principals with equal policies: all of them have the same rights.
type Party struct {
	Subject Subject
	Members []Member

	key string
}

// Member is one principal of a census.
type Member struct {
	Kind Kind
	ID   string
}

// Compare orders users before service accounts, then by id.
func (m Member) Compare(other Member) int {
	return cmp.Or(
		strings.Compare(string(other.Kind), string(m.Kind)),
		strings.Compare(m.ID, other.ID),
	)
}

// Add adds principals that share one subject.
func (c *Census) Add(s Subject, members ...Member) {
	if c.byKey == nil {
		c.byKey = map[string]int{}
	}
	key := s.key()
	i, known := c.byKey[key]
	if !known {
		i = len(c.Parties)
		c.byKey[key] = i
		c.Parties = append(c.Parties, Party{Subject: s, key: key})
	}
	c.Parties[i].Members = append(c.Parties[i].Members, members...)
}

// key is equal for subjects with equal policies. The groups that grant them and the id of the user
// matter only to documents that may name them.
func (s *Subject) key() string {
	parts := []string{string(s.Kind), strconv.FormatBool(s.Closed != "")}
	for _, n := range s.Scoping {
		parts = append(parts, "scoping "+strconv.Quote(n.ID))
	}
	for _, n := range s.Narrowing {
		parts = append(parts, "narrowing "+strconv.Quote(n.ID))
	}
	personal := func(n Named) bool { return MayName(UserVariable, n.Document) }
	if slices.ContainsFunc(s.policies(), personal) {
		parts = append(parts, "user "+strconv.Quote(s.UserID))
	}
	var ways []string
	for _, g := range gather(s.Grants) {
		direct, priority := strconv.FormatBool(g.Group == ""), strconv.FormatInt(g.Priority, 10)
		way := strconv.Quote(g.PolicyID) + direct + priority
		if MayName(GroupVariable, g.Document) {
			way += " " + strconv.Quote(g.Group)
		}
		ways = append(ways, way)
	}
	return strings.Join(append(parts, slices.Compact(ways)...), "\x00")
}

// documents returns the document of each policy in the census.
func (c *Census) documents() map[string][]byte {
	all := map[string][]byte{}
	for i := range c.Parties {
		for _, n := range c.Parties[i].Subject.policies() {
			all[n.ID] = n.Document
		}
	}
	return all
}

// policies returns the grants and narrowing policies of a subject, with repeats.
func (s *Subject) policies() []Named {
	var all []Named
	for _, g := range s.Grants {
		all = append(all, Named{g.PolicyID, g.Document})
	}
	return append(all, s.narrowing()...)
}

// view compiles a party and caches only its documents. A nil or closed party is denied everything.
func (c *Compiler) view(p *Party, shut []string) view {
	v := view{as: first, shut: shut, call: c.call}
	if p != nil && p.Subject.Closed == "" {
		v.table = c.gather(p.Subject, gather(p.Subject.Grants))
	}
	return v
}
