package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
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

	byKey   map[digest]int
	written map[string]*written // by policy
	ways    []way               // of the last subject
	bytes   []byte
}

// Party is a group of principals with equal policies: all of them have the same rights.
type Party struct {
	// Subject returns the policies. All grants of a census may be far more than the rows that they
	// come from, so it does not keep them.
	Subject func() Subject
	Members []Member

	key digest
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
func (c *Census) Add(subject func() Subject, members ...Member) {
	if c.byKey == nil {
		c.byKey, c.written = map[digest]int{}, map[string]*written{}
	}
	key := c.key(subject())
	i, known := c.byKey[key]
	if !known {
		i = len(c.Parties)
		c.byKey[key] = i
		c.Parties = append(c.Parties, Party{Subject: subject, key: key})
	}
	c.Parties[i].Members = append(c.Parties[i].Members, members...)
}

// written is a policy with its document.
type written struct {
	sum         digest // of both
	user, group bool   // the document may name the variable
}

func (c *Census) policy(id string, document []byte) *written {
	w, known := c.written[id]
	if !known {
		w = &written{
			user: MayName(UserVariable, document), group: MayName(GroupVariable, document),
		}
		h := sha256.New()
		write(h, id)
		writeBytes(h, document)
		h.Sum(w.sum[:0])
		c.written[id] = w
	}
	return w
}

// way is one in which a policy reaches a subject.
type way struct {
	*written
	priority int64
	direct   bool
	group    string // "" where it does not matter
}

func (w way) compare(other way) int {
	return cmp.Or(
		bytes.Compare(w.sum[:], other.sum[:]), cmp.Compare(w.priority, other.priority),
		compareBools(w.direct, other.direct), strings.Compare(w.group, other.group),
	)
}

// key is equal for subjects with equal policies and documents. The groups that grant them and the
// id of the user matter only to documents that may name them.
func (c *Census) key(s Subject) (key digest) {
	c.ways = c.ways[:0]
	personal := false
	for _, g := range s.Grants {
		w := way{c.policy(g.PolicyID, g.Document), g.Priority, g.Group == "", ""}
		if w.written.group {
			w.group = g.Group
		}
		c.ways, personal = append(c.ways, w), personal || w.user
	}
	slices.SortFunc(c.ways, way.compare)
	c.ways = slices.Compact(c.ways)
	b := strconv.AppendInt(append(c.bytes[:0], s.Kind...), int64(len(c.ways)), 10)
	for _, w := range c.ways {
		b = append(b, w.sum[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(w.priority))
		b = strconv.AppendQuote(strconv.AppendBool(b, w.direct), w.group)
	}
	for i, n := range s.narrowing() {
		w := c.policy(n.ID, n.Document)
		b = strconv.AppendBool(append(b, w.sum[:]...), i < len(s.Scoping))
		personal = personal || w.user
	}
	b = strconv.AppendBool(b, s.Closed != "")
	if personal {
		b = append(b, s.UserID...)
	}
	c.bytes = b
	return sha256.Sum256(b)
}

// view compiles a party and caches only its documents. A nil or closed party is denied everything.
func (c *Compiler) view(p *Party, shut []string) view {
	v := view{as: first, shut: expressible(shut), call: c.call}
	if p != nil {
		if s := p.Subject(); s.Closed == "" {
			v.table = c.gather(s, gather(s.Grants))
		}
	}
	return v
}
