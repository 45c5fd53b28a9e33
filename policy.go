package svc

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/policy"
)

// ActionRecall is the default action of a [Question].
const ActionRecall = "bank:recall"

// Question asks what a principal or sender may do. ServiceAccountID takes precedence over UserID,
// UserID over Sender; one of them is required. Bank, Channel, Topic and the id of a Sender have 1
// to MaxIDLength printable characters, and may contain slashes. All other fields are ids.
type Question struct {
	Bank             string // required
	Action           string // "" means ActionRecall
	ServiceAccountID string
	UserID           string
	Sender           string // "provider:id", split at the first colon; also the context's provider
	Channel, Topic   string // the context, for overrides; "": none
	// ScopingPolicyID names a policy that narrows the user or service account, as a key's does. "":
	// none.
	ScopingPolicyID string
}

// Policies answers questions about access: what a principal may do, which principals may do
// something, and what a change would do.
type Policies struct {
	*base
	*guard
	*rosters
}

// Resolution is a decision and its reasons.
type Resolution struct {
	// TenantID is a name to show: the user's id, "sa:<id>" or "_unmapped". A user may have an id of
	// that form, so decide by PrincipalType and ResolvedUserID.
	TenantID          string
	PrincipalType     Kind    // KindUser, KindServiceAccount or KindUnmapped
	ResolvedUserID    *string // the user, or the service account's owner; nil: unknown
	Outcome           Outcome
	Reason            string          // a sentence
	Parameters        Parameters      // zero when denied
	BankPolicy        json.RawMessage // the bank's policy document; nil: none
	EffectiveStrategy *string         // nil: none, or denied
	Revision          string          // of the store's state: equal revisions give equal answers
	Trace             []TraceEntry    // in the order in which policies were gathered
}

// Resolve decides what a principal or sender may do on a bank, with which parameters, and why. It
// reads one snapshot of the store. An unknown or inactive user or service account is a denial, not
// an error. by needs [ActionUsersRead]. Errors: CodeInvalid, CodeForbidden.
func (s *Policies) Resolve(ctx context.Context, by Principal, q Question) (Resolution, error) {
	asked, err := q.check()
	if err != nil {
		return Resolution{}, err
	}
	if err := s.authorize(ctx, by, ActionUsersRead); err != nil {
		return Resolution{}, err
	}
	snapshot, err := s.store.Access(ctx, asked)
	if err != nil {
		return Resolution{}, fault("read access", err)
	}
	return resolve(s.compiler, snapshot, asked, q, math.MaxInt)
}

// resolve explains the decision of a checked query. It refuses a subject that more than most
// statements reach.
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
		return Resolution{}, invalid(
			"", fmt.Sprintf("more than %d statements reach the subject", most),
		)
	}
	result := rights.Explain(policy.Request{
		Action: orElse(q.Action, ActionRecall), Bank: q.Bank,
		Context: policy.Context{Provider: provider, Channel: q.Channel, Topic: q.Topic},
		Policy:  policy.CompileBank(snapshot.bankPolicy()),
	})
	return snapshot.resolution(who, result), nil
}

// check returns what to read for a query.
func (q Question) check() (AccessQuery, error) {
	var c checker
	asked := AccessQuery{BankID: q.Bank}
	if q.Bank == "" {
		c.add("bank", "is required")
	} else {
		c.foreign("bank", q.Bank)
	}
	if q.Action != "" {
		c.id("action", q.Action)
	}
	provider, sender, _ := strings.Cut(q.Sender, ":")
	if q.Sender != "" {
		c.sender("sender", provider, sender)
	}
	c.context(q)
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
	default:
		c.add("user_id", "is required, or sa_id or sender")
	}
	if q.ScopingPolicyID != "" {
		c.id("scoping_policy_id", q.ScopingPolicyID)
		if asked.ScopingPolicyID = q.ScopingPolicyID; asked.Identity == (Identity{}) {
			c.add("scoping_policy_id", "narrows a user_id or an sa_id")
		}
	}
	return asked, c.err()
}

// context refuses an invalid channel or topic.
func (c *checker) context(q Question) {
	if q.Channel != "" {
		c.lookupForeign("channel", q.Channel)
	}
	if q.Topic != "" {
		c.lookupForeign("topic", q.Topic)
	}
}

// sender refuses a sender other than "provider:id", where provider is an id and id a foreign name.
func (c *checker) sender(field, provider, id string) {
	if provider == "" || id == "" {
		c.add(field, `must be "provider:id"`)
	} else if problem := idProblem(provider); problem != "" {
		c.add(field, "must have a provider that is an id, which "+problem)
	} else {
		c.lookupForeign(field, id)
	}
}

func (a AccessSnapshot) resolution(who Identity, result policy.Result) Resolution {
	r := Resolution{
		TenantID: who.ID, PrincipalType: who.Kind,
		Outcome: Outcome(result.Outcome), Reason: result.Reason,
		Parameters:        Parameters(result.Parameters),
		EffectiveStrategy: result.Strategy,
		Revision:          strconv.FormatInt(a.Generation, 10), Trace: traced(result.Trace),
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

var hostMay = Decision{policy.Always("allowed: the host application may do everything")}

// Decide decides whether a principal may do an action on a bank, and with which parameters. It uses
// the same code as [Policies.Resolve].
//
// Call it for every request that a host serves. It answers from the cache, so most calls take well
// under a microsecond and make no store call. Changes by this process count at once; changes by
// others count within a second or so (PostgreSQL: milliseconds). When the store was not reached for
// 5 seconds, each call reads it.
//
// A user without a row has no stored rights. On bank "*", the actions that the host vouches for
// ([Principal].Actions) count as well.
//
// An error never means allow. Errors: CodeInvalid (an empty action, an impossible bank),
// CodeUnavailable.
func (s *Service) Decide(
	ctx context.Context, p Principal, action, bank string, in Context,
) (d Decision, err error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fault("decide", err)
	}
	if p.Kind == KindHost {
		return hostMay, nil
	}
	if action == "" {
		return Decision{}, invalid("action", "is required")
	}
	who := p.holder()
	now, known := s.copies.Again(&d.of, &who, action, bank, (*policy.Context)(&in))
	if !known {
		d.of, err = s.guard.decide(ctx, who, action, bank, (*policy.Context)(&in), now)
		if err != nil {
			return Decision{}, err
		}
	}
	if len(p.Actions) > 0 {
		d.of = d.of.Vouch(p.vouched())
	}
	return d, nil
}

// decide decides without vouched actions, and notes the bank's policy as of now. now 0: it notes
// nothing.
func (s *guard) decide(
	ctx context.Context, who copies.Holder, action, bank string, in *policy.Context, now cache.Moment,
) (policy.Decision, error) {
	holder, policyOf, err := s.standing(ctx, who, bank)
	if err != nil {
		return policy.Decision{}, err
	}
	d := holder.Rights.Decide(action, bank, in, policyOf)
	if now != 0 {
		holder.Rights.Note(action, bank, policyOf, uint64(now))
	}
	return d, nil
}
