package policytest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// long is a name longer than any block that a string comparison reads in one step.
var long = strings.Repeat("long:", 20)

var (
	// actionPatterns and bankPatterns cover each other, nearly cover each other, and hold
	// characters that are special elsewhere.
	actionPatterns = []string{
		"bank:recall", "bank:recall", "bank:recall", "bank:recall",
		"bank:*", "bank:*", "bank:*", "bank:*", "bank:*", "bank:memories:*", "bank:memories:list",
		"bank:memories:get", "bank:memories:", "bank:retain", "bank:recall:*", "bank::*", ":*",
		"bank", "b", "b:*", "bänk:\u0000:*",
		"iam:*", "iam:users:*", "iam:users:read", "iam:users:write", "iam:users:",
		"template:*", "template:admin", "\"%s\"", "bank: recall",
		long, long + ":*",
	}
	bankPatterns = []string{
		"*", "*", "*", "*", "*", "*", "*", "project::*", "project::*", "project::*",
		"project::notes::*", "project::notes", "project::notes", "project::plans",
		"project", "project:", "project::", "project::notes::2026", "project:::*", "::*", "::",
		"p::*", "p", "näme::*", "%s", long, long + "::*",
		"${user}", "project::${group}", "${group}::*", "p::${user}::*", "${user}::${group}",
	}
	brokenDocuments = []string{
		``, `{`, `null`, `{"version":"2027-01-01","statements":[]}`, `{"version":"2026-03-24"}`,
		`{"version":"2026-03-24","statements":[` +
			`{"effect":"maybe","actions":["bank:*"],"banks":["*"]}]}`,
		`{"version":"2026-03-24","statements":[` +
			`{"effect":"deny","actions":["bank:*"],"banks":["*"]},` +
			`{"effect":"allow","actions":["*"],"banks":["*"]}]}`,
	}
	brokenBankDocuments = []string{
		`[]`, `{"version":null}`,
		`{"version":"2026-03-24","public_access":{"default":{"actions":["*"]}}}`,
		`{"version":"2026-03-24",` +
			`"strategy_overrides":[{"scope":"user","value":"a","strategy":"s"}]}`,
	}
	contexts = []string{"slack", "general", "news", "Slack"}
)

// Statement draws a statement. One in ten denies.
func (w *World) Statement() Statement {
	s := Statement{Effect: "allow", Actions: w.some(actionPatterns), Banks: w.some(bankPatterns)}
	if w.IntN(10) == 0 {
		s.Effect = "deny"
		w.maybe(2, func() { s.Actions = s.Actions[:1] })
		return s
	}
	w.maybe(2, func() { s.RecallBudget = w.one("low", "mid", "high") })
	w.maybe(2, func() { s.RecallMaxTokens = new(w.Int64N(4)) })
	w.maybe(2, func() { s.RetainEveryNTurns = new(w.Int64N(4)) })
	w.maybe(2, func() { s.RetainRoles = w.list("user", "assistant", "tool") })
	w.maybe(3, func() { s.RetainTags = w.list("a", "B", "ä", "aa") })
	w.maybe(3, func() { s.RetainStrategy = w.one("deep", "quick", "daily") })
	w.maybe(2, func() { s.LLMModel = w.one("m1", "m2", "m3") })
	w.maybe(3, func() { s.LLMProvider = w.one("x", "y") })
	w.maybe(3, func() { s.ExcludeProviders = w.list("x", "y") })
	w.maybe(3, func() {
		s.RecallTagGroups = []json.RawMessage{}
		for range w.IntN(3) {
			group := w.one(
				`{"a":1}`, `{"a":1.0}`, `{"b":["x","y"]}`, `{"b":["y","x"]}`,
				`{}`, `{"a":1,"c":null}`, `{"c":null,"a":1}`,
			)
			s.RecallTagGroups = append(s.RecallTagGroups, json.RawMessage(group))
		}
	})
	return s
}

func (w *World) drawBankPolicies() {
	for _, id := range []string{"project::notes", "project", "p", "*"} {
		raw := w.bankDocument()
		w.maybe(16, func() { raw = []byte(w.one(brokenBankDocuments...)) })
		w.BankPolicies = append(w.BankPolicies, policy.Named{ID: id, Document: raw})
	}
}

func (w *World) bankDocument() []byte {
	type object map[string]any
	d := object{"version": policy.Version}
	w.maybe(2, func() { d["default_strategy"] = w.one("calm", "deep") })
	w.maybe(2, func() {
		overrides := []object{}
		for _, o := range w.overrides() {
			strategy := w.one("s1", "s2", "s3")
			overrides = append(overrides, object{
				"scope": o.scope, "value": o.value, "strategy": strategy,
			})
		}
		d["strategy_overrides"] = overrides
	})
	access := func(o object) object {
		o["actions"] = w.some(actionPatterns[:10])
		w.maybe(6, func() { o["actions"] = []string{} })
		w.maybe(2, func() { o["recall_budget"] = w.one("low", "mid", "high") })
		w.maybe(2, func() { o["recall_max_tokens"] = w.IntN(1000) })
		return o
	}
	if w.IntN(5) > 0 {
		public := object{}
		w.maybe(2, func() { public["default"] = access(object{}) })
		overrides := []object{}
		for _, o := range w.overrides() {
			overrides = append(overrides, access(object{"scope": o.scope, "value": o.value}))
		}
		public["overrides"] = overrides
		d["public_access"] = public
	}
	return write(d)
}

// overrides draws the contexts of overrides, without repeats.
func (w *World) overrides() []override {
	scopes := []policy.Scope{policy.Provider, policy.Channel, policy.Topic}
	var out []override
	for range w.IntN(5) {
		o := override{pick(w, scopes), w.one(contexts...)}
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

// Principal draws a principal.
func (w *World) Principal() Principal { return pick(w, w.Principals) }

// Namesake draws a principal with the same id, which may have nearly the same rights.
func (w *World) Namesake(p Principal) Principal {
	other := func(o Principal) bool { return o.ID != p.ID }
	return pick(w, slices.DeleteFunc(slices.Clone(w.Principals), other))
}

// Request draws a request: usually one that a statement may cover, sometimes an arbitrary one.
func (w *World) Request() Request {
	q := Request{Action: w.Action(), Bank: w.Bank()}
	w.maybe(2, func() { q.Provider = w.one(contexts...) })
	w.maybe(2, func() { q.Channel = w.one(contexts...) })
	w.maybe(2, func() { q.Topic = w.one(contexts...) })
	w.maybe(2, func() { q.Bank = pick(w, w.BankPolicies).ID })
	q.BankPolicy = w.BankPolicy(q.Bank)
	return q
}

// BankPolicy returns the policy of a bank, or nil when it has none.
func (w *World) BankPolicy(bank string) *policy.Named {
	i := slices.IndexFunc(w.BankPolicies, func(n policy.Named) bool { return n.ID == bank })
	if i < 0 {
		return nil
	}
	return &w.BankPolicies[i]
}

// Action draws an action of a request.
func (w *World) Action() string {
	if w.IntN(3) > 0 {
		return w.one(
			"bank:recall", "bank:recall", "bank:retain", "bank:memories:list",
			"bank:memories:get", "bank:memories:delete", "iam:users:read",
		)
	}
	return w.text(actionPatterns)
}

// Bank draws a bank of a request.
func (w *World) Bank() string {
	if w.IntN(3) > 0 {
		return w.one(
			"project::notes", "project::notes", "project", "project::notes::2026",
			"project::plans", "project::tasks", "p::x", "nowhere", "*",
			"alice", "project::team", "team::x", "p::alice::x", "alice::team", "bob::alice",
		)
	}
	return w.text(bankPatterns)
}

// text draws an arbitrary string, close to one of the patterns.
func (w *World) text(patterns []string) string {
	p := w.one(patterns...)
	prefix := strings.TrimSuffix(p, "*")
	switch w.IntN(9) {
	case 0:
		return p // in a request, a pattern is a literal
	case 1:
		return prefix // with nothing after it
	case 2:
		return prefix + w.noise(4)
	case 3:
		return prefix + w.one(patterns...)
	case 4:
		return prefix[:w.IntN(len(prefix)+1)] // may end within a character
	case 5:
		return prefix + strings.Repeat(w.one(":", "::", "*", "a"), w.IntN(300))
	case 6:
		return strings.ToUpper(p)
	case 7:
		return w.noise(2) + p
	}
	return w.noise(8)
}

// noise draws bytes; most of them are special somewhere.
func (w *World) noise(most int) string {
	b := make([]byte, w.IntN(most+1))
	for i := range b {
		b[i] = ":::**ab%\"\\\x00\xff\xc3\xa4 "[w.IntN(15)]
	}
	return string(b)
}

// maybe calls do once in so many times.
func (w *World) maybe(once int, do func()) {
	if w.IntN(once) == 0 {
		do()
	}
}

func (w *World) one(of ...string) string { return pick(w, of) }

func pick[T any](w *World, of []T) T { return of[w.IntN(len(of))] }

// some draws one to three strings.
func (w *World) some(of []string) []string {
	out := []string{}
	for range 1 + w.IntN(3) {
		out = append(out, w.one(of...))
	}
	return out
}

// list draws up to three strings, sometimes with repeats.
func (w *World) list(of ...string) []string {
	out := []string{}
	for range w.IntN(4) {
		out = append(out, w.one(of...))
	}
	return out
}

// Text draws one of the texts.
func (w *World) Text(of ...string) string { return w.one(of...) }
