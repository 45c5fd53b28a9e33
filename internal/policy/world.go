package policy

import (
	"maps"
	"reflect"
	"slices"

	"github.com/extsvc/svc/internal/cache"
)

// How many answers a World caches. Each takes a bit for every principal, and the matching
// statements.
const (
	keptReaches = 1 << 8
	reachBytes  = 8 << 20 // of all cached answers; a single answer may take more
)

// World is a compiled census that answers who may do something. It is immutable and safe for
// concurrent use. Use [Compiler.World].
type World struct {
	index
	users, accounts []string    // sorted; numbers count through users, then accounts
	statements      []owned     // in the order of the index
	policies        []held      // by id
	narrowed        []narrowing // each member with each policy that narrows it
	barred          bitset      // the members with a policy that does not parse
	bankPolicies    map[string]*Bank
	shut            []string
	reaches         *memo[cell, reach]
}

// held is a policy with the members that have it as one of their own.
type held struct {
	id      string
	holders bitset
	broken  bool // the policy does not parse
}

// narrowing is a member and a policy that narrows it.
type narrowing struct{ member, policy int32 }

// owned is a statement and its policy.
type owned struct {
	policy    int32
	statement int
	effect    Effect
}

// World compiles a census without its closed parties.
func (c *Compiler) World(census *Census) *World {
	closed := func(p Party) bool { return p.Subject.Closed != "" }
	open := &Census{Parties: slices.DeleteFunc(slices.Clone(census.Parties), closed)}
	w := &World{bankPolicies: map[string]*Bank{}, shut: census.shut()}
	for i := range census.Banks {
		w.bankPolicies[census.Banks[i].ID] = CompileBank(&census.Banks[i])
	}
	members := w.admit(open)
	policies := c.gatherPolicies(w, open.documents(), len(members))
	for i := range open.Parties {
		for _, m := range open.Parties[i].Members {
			w.give(members[m], &open.Parties[i].Subject, policies)
		}
	}
	w.reaches = newMemo[cell, reach](w.room(), nil, nil)
	return w
}

// reachSize returns the most bytes that an answer takes.
func (w *World) reachSize() int64 {
	cited := int(reflect.TypeFor[Cited]().Size())
	return cache.Allocated(8*len(w.barred)) + cache.Allocated(len(w.statements)*cited)
}

// room returns how many answers fit into reachBytes, at least 1.
func (w *World) room() int {
	n := keptReaches
	for n > 1 && int64(n)*w.reachSize() > reachBytes {
		n /= 2
	}
	return n
}

// Size estimates the bytes of the World, including all answers that it may cache later.
func (w *World) Size() int64 {
	n := cache.Size(w.index) + cache.Size(w.users) + cache.Size(w.accounts)
	n += cache.Size(w.statements) + cache.Size(w.policies) + cache.Size(w.narrowed)
	n += cache.Size(w.barred) + cache.Size(w.shut)
	return n + w.banksSize() + int64(w.room())*w.reachSize()
}

func (w *World) banksSize() (n int64) {
	for id, b := range w.bankPolicies {
		n += cache.Allocated(len(id)) + b.Share().Bytes() + 64
	}
	return n
}

// admit gives each member a number.
func (w *World) admit(census *Census) map[Member]int32 {
	for i := range census.Parties {
		for _, m := range census.Parties[i].Members {
			if m.Kind == ServiceAccount {
				w.accounts = append(w.accounts, m.ID)
			} else {
				w.users = append(w.users, m.ID)
			}
		}
	}
	slices.Sort(w.users)
	slices.Sort(w.accounts)
	numbers := make(map[Member]int32, len(w.users)+len(w.accounts))
	for i, id := range w.users {
		numbers[Member{User, id}] = int32(i)
	}
	for i, id := range w.accounts {
		numbers[Member{ServiceAccount, id}] = int32(len(w.users) + i)
	}
	w.barred = bitsets(1, len(numbers))[0]
	return numbers
}

// gatherPolicies gives each policy a number, and indexes the statements.
func (c *Compiler) gatherPolicies(
	w *World,
	documents map[string][]byte,
	members int,
) map[string]int32 {
	numbers := make(map[string]int32, len(documents))
	holders := bitsets(len(documents), members)
	var statements []*Statement
	for i, id := range slices.Sorted(maps.Keys(documents)) {
		parsed := c.parse(documents[id])
		numbers[id] = int32(i)
		w.policies = append(w.policies, held{id, holders[i], parsed.fault != nil})
		if parsed.fault != nil {
			continue
		}
		for n := range parsed.document.Statements {
			st := &parsed.document.Statements[n]
			statements = append(statements, st)
			w.statements = append(w.statements, owned{int32(i), n, st.Effect})
		}
	}
	w.index = newIndex(statements, nil)
	return numbers
}

// give adds the policies of a subject to a member.
func (w *World) give(member int32, s *Subject, policies map[string]int32) {
	for i := range s.Grants {
		p := &w.policies[policies[s.Grants[i].PolicyID]]
		p.holders.set(member)
		if p.broken {
			w.barred.set(member)
		}
	}
	for _, n := range s.narrowing() {
		number := policies[n.ID]
		w.narrowed = append(w.narrowed, narrowing{member, number})
		if w.policies[number].broken {
			w.barred.set(member)
		}
	}
}

// Shut returns the banks whose policies do not parse, sorted. It leaves out banks whose ids look
// like patterns.
func (w *World) Shut() []string { return w.shut }
