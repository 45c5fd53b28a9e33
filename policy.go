package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/readcache"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/limits"
)

// Question asks what a principal or sender may do. ServiceAccountID takes precedence over UserID,
// UserID over Sender; one of them is required, unless Me is true. Bank, Channel, Topic and the id
// of a Sender have 1 to [limits.IDLength] printable characters, and may contain slashes. All other
// fields are ids. Fields without precedence are still checked.
type Question struct {
	Bank             string // required
	Action           string // no pattern; "" means action.Recall
	ServiceAccountID string
	UserID           string
	Sender           string // "provider:id", split at the first colon; the provider of the context
	Channel, Topic   string // the rest of the context; "": none
	// Me asks about the caller, as its key narrows it. The four fields that name a subject are then
	// "".
	Me bool
	// ScopingPolicyID names a policy that narrows the user or service account, as a key's does. An
	// unknown one is a denial. With a Sender it is CodeInvalid. "": none.
	ScopingPolicyID string
}

// Resolution is a decision and its reasons. The caller owns it.
type Resolution struct {
	// TenantID is a name to show: the user's id, "sa:<id>" or "_unmapped". A user may have an id of
	// that form, so decide by PrincipalType and ResolvedUserID.
	TenantID      string
	PrincipalType Kind // KindUser, KindServiceAccount or KindUnmapped
	// ResolvedUserID is the user, or the service account's owner, inactive or not. Nil: there is no
	// such row, or the sender is unmapped.
	ResolvedUserID *string
	Outcome        Outcome
	Reason         string     // for a person; its wording may change
	Parameters     Parameters // zero when denied
	// BankPolicy is the bank's policy document, without insignificant white space. Nil: the bank
	// has none, the stored one is not JSON, or a caller that asks about itself lacks iam:banks:read.
	BankPolicy        json.RawMessage
	EffectiveStrategy *string // as [Decision.Strategy]; nil: none, or denied
	// Revision is of the store's state: equal revisions give equal answers. It grows with every
	// write, also of templates and keys, as a decimal number.
	Revision string
	// Trace is in the order in which policies were gathered, with at least one entry for each
	// statement that reaches the principal, so it may be long. Never nil.
	Trace []TraceEntry
}

// Parameter returns one parameter, as [Parameters.Value] does.
func (r Resolution) Parameter(name string) (value any, ok bool) { return r.Parameters.Value(name) }

// Parameters are the values of parameters. The fields are those of [parameter.Memory]: a typed view
// of the parameters with these names and types. In every field, nil means unset; an empty list is
// set. In JSON, the keys of the fields are present, null where unset. A denial has no values.
type Parameters struct {
	RecallBudget    *string           `json:"recall_budget"` // low, mid or high
	RecallMaxTokens *int64            `json:"recall_max_tokens"`
	RecallTagGroups []json.RawMessage `json:"recall_tag_groups"` // as written, but compacted
	// In a decision, lists of texts are sorted byte by byte, without duplicates.
	RetainRoles       []string `json:"retain_roles"`
	RetainTags        []string `json:"retain_tags"`
	RetainEveryNTurns *int64   `json:"retain_every_n_turns"`
	RetainStrategy    *string  `json:"retain_strategy"`
	LLMModel          *string  `json:"llm_model"`
	LLMProvider       *string  `json:"llm_provider"`
	ExcludeProviders  []string `json:"exclude_providers"`
	// Values are all of [Config].Parameters, in that order. Nil: the fields are all.
	Values []ParameterValue `json:"-"`
}

// ParameterValue is a parameter with its value: an int64, a string, a []string or a
// []json.RawMessage. Nil: it is not set.
type ParameterValue struct {
	Name  string
	Value any
}

// All yields every parameter in the order of the table, with its value as in a [ParameterValue].
func (p Parameters) All() iter.Seq2[string, any] {
	if p.Values == nil {
		return policy.Fields(p)
	}
	return func(yield func(string, any) bool) {
		for _, v := range p.Values {
			if !yield(v.Name, v.Value) {
				return
			}
		}
	}
}

// Value returns one parameter, as a [ParameterValue] has it. ok is false when it is not set, or no
// parameter has that name.
func (p Parameters) Value(name string) (value any, ok bool) {
	for of, v := range p.All() {
		if of == name {
			return v, v != nil
		}
	}
	return nil, false
}

// TraceCode is the kind of a [TraceEntry]. Codes are stable: programs may rely on them.
type TraceCode string

// TraceEntry is what one statement contributed to a decision. There are also entries for:
//   - a document that no longer parses (Statement -1, in effect a deny);
//   - each override of public access (Via "public", Statement is its index) and its default (-1);
//   - when the bank policy gives the strategy, the strategy override (Via "bank", Statement is its
//     index) or the default strategy (-1). PolicyID is then that of the bank policy.
type TraceEntry struct {
	PolicyID  string
	Via       string // "user", "group:<id>", "scoping:<service account>", "public" or "bank"
	Statement int    // its index in the document, from 0; -1: see above
	Effect    Effect
	Matched   bool
	// ActionPattern is the first action pattern that matched, and BankPattern the most specific
	// bank pattern that matched. Nil: the entry did not match, or has no such pattern.
	ActionPattern *string
	BankPattern   *string
	Code          TraceCode
	Reason        string     // a sentence
	Sets          Parameters // what a matched entry sets; zero otherwise
	// Lost maps each parameter of this entry that is not in force to the statement
	// ("policy#statement") that won. Never nil; empty in a denial. Entries may share it: do not
	// write to it.
	Lost map[string]string
}

// The trace codes.
const (
	TraceAllowMatched     TraceCode = policy.CodeAllowMatched     // allows the request
	TraceAllowOverridden  TraceCode = policy.CodeAllowOverridden  // allows it, but another denies
	TraceDenyMatched      TraceCode = policy.CodeDenyMatched      // denies the request
	TraceActionNotMatched TraceCode = policy.CodeActionNotMatched // no pattern covers the action
	TraceBankNotMatched   TraceCode = policy.CodeBankNotMatched   // no bank pattern matches
	TraceDocumentInvalid  TraceCode = policy.CodeDocumentInvalid  // the policy no longer parses

	TracePublicAllowed TraceCode = policy.CodePublicAllowed // in force, and allows
	// This public access is in force, but omits the action.
	TracePublicActionNotMatched TraceCode = policy.CodePublicActionNotMatched
	// This public access matches, but a more specific one is in force.
	TracePublicLessSpecific TraceCode = policy.CodePublicLessSpecific
	// This public access is for another provider, channel or topic.
	TracePublicContextNotMatched TraceCode = policy.CodePublicContextNotMatched

	TraceBankOverride TraceCode = policy.CodeBankOverride // the strategy is that of an override
	TraceBankDefault  TraceCode = policy.CodeBankDefault  // the strategy is the bank's default
)

// Policies manages access policies and answers questions about access.
//
// Create, Patch, Delete, Attach and Detach write rows, by the rules of [Users]. The questions are
// what a principal may do, which principals may do something, and what a change would do. They
// write nothing and report no event. For a request that a host serves, call [Service.Decide]
// instead: it needs no right and uses the cache.
//
// Questions about the caller ([Me]) need no action, and the actions that a host vouches for
// ([Principal].Actions) count. In all other questions they do not count, and the caller needs
// [action.UsersRead].
type Policies struct{ *accessWriter }

// Resolve decides what a principal or sender may do on a bank, with which parameters, and why. It
// reads one snapshot of the store in one call, never the cache. An unknown or inactive user or
// service account is a denial, not an error; an unmapped sender has what the bank gives to the
// public. Errors: CodeTooComplex (16 MB of statements).
func (s *Policies) Resolve(ctx context.Context, by Principal, q Question) (Resolution, error) {
	asked, err := q.check()
	if err != nil {
		return Resolution{}, err
	}
	if q.Me {
		asked.Identity, asked.ScopingPolicyID = by.Identity(), possibleID(by.ScopingPolicyID)
		q.ScopingPolicyID = by.ScopingPolicyID
		if err := cmp.Or(authorizeSelf(by), checkID("principal", by.ID)); err != nil {
			return Resolution{}, err
		}
	} else if err := s.authorize(ctx, by, action.UsersRead); err != nil {
		return Resolution{}, err
	}
	snapshot, err := s.store.Access(ctx, asked)
	if err != nil {
		return Resolution{}, fault("read access", err)
	}
	s.cached.Hear(snapshot.Generation)
	r, err := resolve(s.compiler, snapshot, asked, q, math.MaxInt)
	if err == nil && q.Me && r.BankPolicy != nil {
		if err = s.authorize(ctx, by, action.BanksRead); ErrorCode(err) == CodeForbidden {
			r.BankPolicy, err = nil, nil // as for Banks.Policy
		}
	}
	if err != nil || !q.Me || r.Outcome != ImplicitDeny || len(by.vouched()) == 0 {
		return r, err
	}
	action := cmp.Or(q.Action, action.Recall)
	d, _, err := s.decide(ctx, by.holder(), action, q.Bank, &policy.Context{}, 0)
	if d = d.Vouch(by.vouched()); d.Allowed() {
		r.Outcome, r.Reason = Allow, d.Reason()
	}
	return r, err
}

const maxAnswers = 4 << 20 // bytes of parameters and strategies in all answers of one call

// Answer is the answer to a [Question], without the reasons.
type Answer struct {
	Outcome           Outcome
	Parameters        Parameters // zero when denied
	EffectiveStrategy *string    // nil: none, or denied
	ResolvedUserID    *string    // the user, or the service account's owner; nil: unknown
}

// Allowed reports whether the subject may do the action.
func (a Answer) Allowed() bool { return a.Outcome == Allow }

// Parameter returns one parameter, as [Parameters.Value] does.
func (a Answer) Parameter(name string) (value any, ok bool) { return a.Parameters.Value(name) }

// Decide answers up to [limits.Questions] questions, in their order, as [Policies.Resolve] does,
// but from the cache and without a trace: a question takes about a microsecond. Each answer is of
// one state of the store; two answers may be of two.
//
// Errors: CodeInvalid, with pointers such as /1/bank (the second question); CodeTooComplex (all
// parameters take over 4 MB; one question is always answered). An error never means allow.
func (s *Policies) Decide(
	ctx context.Context, by Principal, questions ...Question,
) ([]Answer, error) {
	subjects, err := s.subjects(ctx, by, questions)
	if err != nil {
		return nil, err
	}
	answers, left := make([]Answer, len(questions)), maxAnswers
	for i, q := range questions {
		if answers[i], err = s.answer(ctx, by, q, subjects[i], &left); err != nil {
			return nil, err
		}
		if left < 0 && len(questions) > 1 {
			return nil, tooComplex("ask fewer questions at a time", nil)
		}
	}
	return answers, nil
}

// subjects returns what each question names. It refuses wrong questions, and a caller that may not
// ask them.
func (s *Policies) subjects(
	ctx context.Context, by Principal, questions []Question,
) ([]AccessQuery, error) {
	if len(questions) > limits.Questions {
		return nil, Invalid("", fmt.Sprintf("must be at most %d questions", limits.Questions))
	}
	var c checker
	subjects, mine, others := make([]AccessQuery, len(questions)), false, false
	for i, q := range questions {
		var err error
		subjects[i], err = q.check()
		for _, problem := range Errors(err) {
			c.add(fmt.Sprintf("/%d/%s", i, problem.Field), problem.Message)
		}
		mine, others = mine || q.Me, others || !q.Me
	}
	err := c.err()
	if err == nil && mine {
		err = cmp.Or(authorizeSelf(by), checkID("principal", by.ID))
	}
	if err != nil || !others {
		return subjects, cmp.Or(err, fault("decide", ctx.Err()))
	}
	return subjects, s.authorize(ctx, by, action.UsersRead)
}

// answer decides a checked question, and takes the bytes of the answer from left.
func (s *Policies) answer(
	ctx context.Context, by Principal, q Question, subject AccessQuery, left *int,
) (a Answer, err error) {
	provider, sender, _ := strings.Cut(q.Sender, ":")
	holder := subject.Identity.narrowed(q.ScopingPolicyID)
	if q.Me {
		holder = by.holder()
	} else if subject.Identity == (Identity{}) {
		holder, err = s.sender(ctx, readcache.Sender{Provider: provider, ID: sender})
		if err != nil {
			return Answer{}, err
		}
	}
	in := policy.Context{Provider: provider, Channel: q.Channel, Topic: q.Topic}
	d, user, err := s.decide(ctx, holder, cmp.Or(q.Action, action.Recall), q.Bank, &in, 0)
	if err != nil {
		return Answer{}, err
	}
	if q.Me {
		d = d.Vouch(by.vouched())
	}
	*left -= d.Weight()
	a = Answer{Outcome: Outcome(d.Outcome())}
	a.Parameters = parametersOf(d.Schema(), d.Parameters(), true)
	if strategy, set := d.Strategy(); set {
		a.EffectiveStrategy, *left = &strategy, *left-len(strategy)
	}
	if user != "" {
		a.ResolvedUserID = &user
	}
	return a, nil
}

// sender returns whose rights a sender has: those of the active user with that channel, or those of
// the public.
func (s *Policies) sender(ctx context.Context, of readcache.Sender) (readcache.Holder, error) {
	return s.cached.LoadSender(ctx, of, func() (
		who readcache.Holder, user string, at int64, err error,
	) {
		snapshot, err := s.store.Access(ctx, AccessQuery{
			Channel: Channel{Provider: of.Provider, SenderID: of.ID},
		})
		s.cached.Hear(snapshot.Generation)
		if snapshot.User != nil {
			user = snapshot.User.ID
		}
		who = snapshot.sender().narrowed("")
		return who, user, snapshot.Generation, fault("read access", err)
	})
}

const maxTrace = 16 << 20 // bytes of the policies and, 400 for each statement, of the entries

// resolve explains the decision of a checked query. It refuses a subject that more than most
// statements reach, before it makes the trace, which has an entry for each.
func resolve(
	compiler *policy.Compiler, snapshot AccessSnapshot, asked AccessQuery, q Question, most int,
) (Resolution, error) {
	who := asked.Identity
	if who == (Identity{}) {
		who = snapshot.sender()
	}
	provider, _, _ := strings.Cut(q.Sender, ":")
	subject := snapshot.subject(who)
	snapshot.narrow(&subject, q.ScopingPolicyID)
	rights := compiler.Compile(subject)
	if rights.Size() > most {
		problem := fmt.Sprintf("more than %d statements reach the subject", most)
		return Resolution{}, Invalid("", problem)
	} else if rights.Weight()+400*rights.Size() > maxTrace {
		return Resolution{}, tooComplex("attach large policies in fewer ways", nil)
	}
	result := rights.Explain(policy.Request{
		Action: cmp.Or(q.Action, action.Recall), Bank: q.Bank,
		Context: policy.Context{Provider: provider, Channel: q.Channel, Topic: q.Topic},
		Policy:  compiler.Schema().CompileBank(snapshot.bankPolicy()),
	})
	return snapshot.resolution(who, result, compiler.Schema()), nil
}

func (t AccessTest) question() Question {
	return Question{
		UserID: t.UserID, ServiceAccountID: t.ServiceAccountID, Sender: t.Sender,
		Action: t.Action, Bank: t.Bank, Channel: t.Channel, Topic: t.Topic,
	}
}

// check returns what to read for a query. It checks all fields and reports all faults. Field is the
// name of the query parameter: the HTTP interface and Simulate use it.
func (q Question) check() (AccessQuery, error) {
	var c checker
	asked := AccessQuery{BankID: q.Bank}
	if q.Bank == "" {
		c.add("bank", "is required")
	} else {
		c.foreign("bank", q.Bank)
	}
	if q.Action != "" {
		c.action(q.Action)
	}
	provider, sender, _ := strings.Cut(q.Sender, ":")
	if q.Sender != "" {
		c.sender("sender", provider, sender)
	}
	if q.Channel != "" { // channel and topic are only looked up: an API key is no error
		c.lookupForeign("channel", q.Channel)
	}
	if q.Topic != "" {
		c.lookupForeign("topic", q.Topic)
	}
	if q.UserID != "" {
		c.id("user_id", q.UserID)
	}
	switch {
	case q.ServiceAccountID != "":
		c.id("sa_id", q.ServiceAccountID)
		asked.Identity = Identity{Kind: KindServiceAccount, ID: q.ServiceAccountID}
	case q.UserID != "":
		asked.Identity = Identity{Kind: KindUser, ID: q.UserID}
	case q.Sender != "":
		asked.Channel = Channel{Provider: provider, SenderID: sender}
	case !q.Me:
		c.add("user_id", "is required, unless sa_id or sender is given")
	}
	if q.Me && (asked.Identity != (Identity{}) || q.Sender != "" || q.ScopingPolicyID != "") {
		c.add("user_id", "must be absent: the question is about the caller")
	}
	if q.ScopingPolicyID != "" {
		c.id("scoping_policy_id", q.ScopingPolicyID)
		if asked.ScopingPolicyID = q.ScopingPolicyID; asked.Identity == (Identity{}) {
			c.add("scoping_policy_id", "needs a user_id or an sa_id to narrow")
		}
	}
	return asked, c.err()
}

// action refuses a pattern: a narrower one may deny some of what it covers.
func (c *checker) action(asked string) {
	if c.id("action", asked); strings.HasSuffix(asked, "*") {
		c.add("action", notAnAction)
	}
}

// sender refuses a sender other than "provider:id": an id, and a foreign name that may have colons.
func (c *checker) sender(field, provider, id string) {
	if provider == "" || id == "" {
		c.add(field, `must be "provider:id"`)
	} else if problem := text.IDProblem(provider, limits.IDLength); problem != "" {
		c.add(field, "must have a provider that is an id, which "+problem)
	} else {
		c.lookupForeign(field, id)
	}
}

const notAnAction = "must be an action, not a pattern"

// resolution returns the public form of a result. A sender that is an inactive user shows no user:
// it and its names count as unmapped. A document that is not JSON is left out.
func (a AccessSnapshot) resolution(
	who Identity, result policy.Result, schema *policy.Schema,
) Resolution {
	r := Resolution{
		TenantID: who.ID, PrincipalType: who.Kind,
		Outcome: Outcome(result.Outcome), Reason: result.Reason,
		Parameters:        parametersOf(schema, result.Parameters, true),
		EffectiveStrategy: result.Strategy,
		Revision:          strconv.FormatInt(a.Generation, 10), Trace: traced(result.Trace, schema),
	}
	switch who.Kind {
	case KindServiceAccount:
		r.TenantID = "sa:" + who.ID
	case KindUnmapped:
		r.TenantID = "_unmapped"
	}
	if a.User != nil && who.Kind != KindUnmapped {
		r.ResolvedUserID = &a.User.ID
	}
	if a.BankPolicy != nil && json.Valid(a.BankPolicy.Document) {
		r.BankPolicy = a.BankPolicy.Document
	}
	return r
}

// traced returns the public form of a trace, which shares what the entries point to.
func traced(trace []policy.Entry, schema *policy.Schema) []TraceEntry {
	entries := make([]TraceEntry, len(trace))
	for i := range trace {
		e := &trace[i]
		entries[i] = TraceEntry{
			PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: Effect(e.Effect),
			Matched: e.Matched, ActionPattern: e.ActionPattern, BankPattern: e.BankPattern,
			Code: TraceCode(e.Code), Reason: e.Reason, Lost: e.Lost,
			Sets: parametersOf(schema, e.Sets, false),
		}
	}
	return entries
}

// parametersOf returns the public form of values, which shares lists with them. Without values it
// is zero, unless it is to name all parameters.
func parametersOf(schema *policy.Schema, values policy.Parameters, all bool) (p Parameters) {
	if values == nil && !all {
		return p
	}
	if schema != policy.Memory {
		p.Values = make([]ParameterValue, 0, schema.Len())
	}
	for name, v := range schema.All(values) {
		if policy.SetField(&p, name, v); p.Values != nil {
			p.Values = append(p.Values, ParameterValue{name, v})
		}
	}
	return p
}
