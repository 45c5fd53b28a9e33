package policytest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// World holds random principals, the policies that reach them, and banks. One seed always gives the
// same World. It is small and has few names, so patterns cover each other, ranks tie and values are
// equal. Its lists can be written to a store. Principals are the expected result.
type World struct {
	Users        []User
	Groups       []Group
	Accounts     []Account
	Policies     []Policy
	Attachments  []Attachment
	BankPolicies []policy.Named // by the id of the bank

	Principals []Principal

	*rand.Rand
}

// User is a user.
type User struct {
	ID       string
	Inactive bool
}

// Group is a group of users.
type Group struct {
	ID      string
	Members []string
}

// Account is a service account.
type Account struct {
	ID, Owner string
	Scoping   string // "": not narrowed
	Inactive  bool
}

// Policy is an access policy. One that does not parse has no Statements.
type Policy struct {
	policy.Named
	Statements []Statement
}

// Attachment gives a policy to a user, or else to a group.
type Attachment struct {
	Policy, User, Group string
	Priority            int64
}

// Principal is a principal that can ask.
type Principal struct {
	Kind    policy.Kind
	ID      string // "" of an unmapped sender
	Subject policy.Subject
	Odd     bool // no store can hold this principal
}

// NewWorld draws a world.
func NewWorld(seed uint64) *World {
	w := &World{Rand: rand.New(rand.NewPCG(seed, 1))}
	w.drawPolicies()
	w.drawBankPolicies()
	w.drawPeople()
	w.drawAttachments()
	for _, u := range w.Users {
		w.add(policy.User, u.ID, w.user(u))
	}
	for _, a := range w.Accounts {
		w.add(policy.ServiceAccount, a.ID, w.account(a))
	}
	w.addUnknown()
	w.addOdd()
	return w
}

func (w *World) add(kind policy.Kind, id string, s policy.Subject) {
	w.Principals = append(w.Principals, Principal{Kind: kind, ID: id, Subject: s})
}

// addUnknown adds principals without stored data.
func (w *World) addUnknown() {
	w.add(policy.Unmapped, "", policy.Subject{Kind: policy.Unmapped})
	if w.IntN(2) == 0 {
		w.add(policy.User, "nobody", policy.Subject{
			Kind: policy.User, Closed: `user "nobody" is unknown`,
		})
		return
	}
	w.add(policy.ServiceAccount, "nobody", policy.Subject{
		Kind: policy.ServiceAccount, ServiceAccountID: "nobody",
		Closed: `service account "nobody" is unknown`,
	})
}

// addOdd adds principals that no store can hold. The engine must decide for them as well. Some of
// them are almost equal to another principal.
func (w *World) addOdd() {
	first, second, third, account := w.Users[0], w.Users[1], w.Users[2], w.Accounts[0]
	twice := w.user(first)
	for _, g := range twice.Grants {
		g.Priority += w.Int64N(3) - 1
		twice.Grants = append(twice.Grants, g)
	}
	moved := w.user(first)
	for i := range moved.Grants {
		moved.Grants[i].Priority = w.Int64N(3)
	}
	rescoped := w.account(account)
	rescoped.Scoping = w.scopings(1)
	narrowed := w.user(second)
	narrowed.Scoping = w.scopings(1)
	narrower := w.user(second)
	narrower.Scoping = w.scopings(2)
	turned := narrower
	turned.Scoping = []policy.Named{narrower.Scoping[1], narrower.Scoping[0]}
	keyed := w.account(account)
	keyed.Scoping = append(keyed.Scoping, w.scopings(1+w.IntN(2))...)
	lesser := w.user(second)
	lesser.Narrowing = w.scopings(1 + w.IntN(2))
	least := w.account(account)
	least.Narrowing = w.scopings(1)
	free := w.account(w.Accounts[len(w.Accounts)-1])
	free.Narrowing = w.scopings(1)
	robot := w.user(third)
	robot.Kind = policy.Kind(w.one("", "robot", "USER"))
	sender := w.user(third)
	sender.Kind = policy.Unmapped
	w.maybe(3, func() { sender.Closed = "senders are closed" })
	for _, odd := range []Principal{
		{ID: first.ID, Subject: twice},
		{ID: first.ID, Subject: moved},
		{ID: account.ID, Subject: rescoped},
		{ID: second.ID, Subject: narrowed},
		{ID: second.ID, Subject: narrower},
		{ID: second.ID, Subject: turned},
		{ID: second.ID, Subject: lesser},
		{ID: account.ID, Subject: keyed},
		{ID: account.ID, Subject: least},
		{ID: "free", Subject: free},
		{ID: third.ID, Subject: robot},
		{ID: third.ID, Subject: sender},
	} {
		odd.Kind, odd.Odd = odd.Subject.Kind, true
		w.Principals = append(w.Principals, odd)
	}
}

// scopings draws policies that narrow a principal. It prefers policies with many statements,
// because several together allow little.
func (w *World) scopings(n int) (drawn []policy.Named) {
	for range n {
		p, other := pick(w, w.Policies), pick(w, w.Policies)
		if len(other.Statements) > len(p.Statements) {
			p = other
		}
		drawn = append(drawn, p.Named)
	}
	return drawn
}

func (w *World) drawPolicies() {
	for i, id := range []string{"p", "p1", "P", "p#0", "q:*", "z"} {
		p := Policy{Named: policy.Named{ID: id}}
		for range w.IntN(5) {
			p.Statements = append(p.Statements, w.Statement())
		}
		p.Document = Document(p.Statements...)
		if i == 5 && w.IntN(3) == 0 {
			p.Document, p.Statements = []byte(w.one(brokenDocuments...)), nil
		}
		w.Policies = append(w.Policies, p)
	}
}

func (w *World) drawPeople() {
	for _, id := range []string{"alice", "bob", "carol", "sa:ci", "_unmapped"} {
		w.Users = append(w.Users, User{ID: id, Inactive: w.IntN(20) == 0})
	}
	for _, id := range []string{"team", "user", "alice"} {
		g := Group{ID: id}
		for _, u := range w.Users {
			w.maybe(2, func() { g.Members = append(g.Members, u.ID) })
		}
		w.Groups = append(w.Groups, g)
	}
	for _, id := range []string{"ci", "bot", "alice", "free"} {
		a := Account{
			ID:       id,
			Owner:    pick(w, w.Users).ID,
			Scoping:  pick(w, w.Policies).ID,
			Inactive: w.IntN(20) == 0,
		}
		if id == "free" {
			a.Scoping = ""
		}
		w.Accounts = append(w.Accounts, a)
	}
}

// drawAttachments attaches policies, each at most once to a principal.
func (w *World) drawAttachments() {
	for _, p := range w.Policies[:len(w.Policies)-1] {
		for _, u := range w.Users {
			w.maybe(4, func() { w.attach(Attachment{Policy: p.ID, User: u.ID}) })
		}
		for _, g := range w.Groups {
			w.maybe(3, func() { w.attach(Attachment{Policy: p.ID, Group: g.ID}) })
		}
	}
	w.attach(Attachment{Policy: "z", User: "carol"}) // this policy may not parse
}

func (w *World) attach(a Attachment) {
	a.Priority = pick(w, []int64{0, 0, 0, 0, 1, 1, 2, -1, -1 << 63, 1<<63 - 1})
	w.Attachments = append(w.Attachments, a)
}

// user returns the subject of a user.
func (w *World) user(u User) policy.Subject {
	s := policy.Subject{Kind: policy.User, UserID: u.ID, Grants: w.grants(u.ID)}
	if u.Inactive {
		s.Closed = fmt.Sprintf("user %q is inactive", u.ID)
	}
	return s
}

// account returns the subject of a service account.
func (w *World) account(a Account) policy.Subject {
	owner := w.Users[slices.IndexFunc(w.Users, func(u User) bool { return u.ID == a.Owner })]
	s := policy.Subject{
		Kind: policy.ServiceAccount, ServiceAccountID: a.ID, UserID: owner.ID,
		Grants: w.grants(owner.ID),
	}
	if a.Scoping != "" {
		s.Scoping = []policy.Named{w.Policy(a.Scoping).Named}
	}
	if a.Inactive {
		s.Closed = fmt.Sprintf("service account %q is inactive", a.ID)
	} else if owner.Inactive {
		s.Closed = fmt.Sprintf("the owner %q of service account %q is inactive", owner.ID, a.ID)
	}
	return s
}

func (w *World) grants(user string) []policy.Grant {
	var out []policy.Grant
	for _, a := range w.Attachments {
		member := func(g Group) bool { return g.ID == a.Group && slices.Contains(g.Members, user) }
		if a.User == user || slices.ContainsFunc(w.Groups, member) {
			out = append(out, policy.Grant{
				PolicyID: a.Policy, Group: a.Group, Priority: a.Priority,
				Document: w.Policy(a.Policy).Document,
			})
		}
	}
	return out
}

// Policy returns the policy with that id.
func (w *World) Policy(id string) Policy {
	return w.Policies[slices.IndexFunc(w.Policies, func(p Policy) bool { return p.ID == id })]
}

// Statement is a statement in its JSON form. Some unset keys are left out, others are null, which
// means the same.
type Statement struct {
	Effect            string            `json:"effect"`
	Actions           []string          `json:"actions"`
	Banks             []string          `json:"banks"`
	RecallBudget      string            `json:"recall_budget,omitempty"`
	RecallMaxTokens   *int64            `json:"recall_max_tokens,omitempty"`
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups,omitzero"`
	RetainRoles       []string          `json:"retain_roles,omitzero"`
	RetainTags        []string          `json:"retain_tags"`
	RetainEveryNTurns *int64            `json:"retain_every_n_turns"`
	RetainStrategy    string            `json:"retain_strategy,omitempty"`
	LLMModel          string            `json:"llm_model,omitempty"`
	LLMProvider       string            `json:"llm_provider,omitempty"`
	ExcludeProviders  []string          `json:"exclude_providers,omitzero"`
}

// Covers reports whether the statement speaks of a request.
func (s Statement) Covers(action, bank string) bool {
	covers := func(patterns []string, asked string, match func(pattern, asked string) bool) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return match(p, asked) })
	}
	return covers(s.Actions, action, policy.MatchAction) && covers(s.Banks, bank, policy.MatchBank)
}

// Document writes an access policy.
func Document(statements ...Statement) []byte {
	return write(map[string]any{
		"version":    policy.Version,
		"statements": append([]Statement{}, statements...),
	})
}

func write(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
