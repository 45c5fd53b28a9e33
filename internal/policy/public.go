package policy

import (
	"fmt"
	"slices"
	"sync"

	"github.com/extsvc/svc/internal/cache"
)

// Bank is a compiled bank policy. It is immutable. A nil Bank means that the bank has no policy.
// Use [CompileBank].
type Bank struct {
	id       string
	document *BankDocument
	fault    error // why the document does not parse; nil: it parses

	// shut is the verdict for unmapped senders where no opening applies. When the document does
	// not parse, it is the verdict for everybody.
	shut       *verdict
	openings   map[context]*opening // for unmapped senders, by override
	open       *opening             // where no override matches; nil: shut applies
	strategies map[context]int      // the index of each strategy override

	weighed sync.Once
	share   *cache.Share // set by weighed
}

// Broken reports whether the document does not parse: then the bank is closed to everybody.
func (b *Bank) Broken() bool { return b != nil && b.fault != nil }

// openingBytes estimates the bytes of an opening's sentences, without the bank's id.
const openingBytes = 512

// Share returns the memory that caching the policy takes.
func (b *Bank) Share() *cache.Share {
	if b == nil {
		return nil
	}
	b.weighed.Do(func() {
		n := cache.Size(b.document) + cache.Size(b.openings) + cache.Size(b.open) +
			cache.Size(b.strategies) + cache.Size(b.fault)
		if b.fault != nil {
			n += cache.Allocated(len(b.fault.Error()))
		}
		b.share = cache.NewShare(n + int64((len(b.openings)+2)*(openingBytes+4*len(b.id))))
	})
	return b.share
}

// opening is what unmapped senders may do in one context.
type opening struct {
	actions         []string
	allowed, denied *verdict
}

// CompileBank compiles a bank policy. It returns nil for nil, and a Bank that denies everything for
// a document that does not parse.
func (s *Schema) CompileBank(n *Named) *Bank {
	if n == nil {
		return nil
	}
	b := &Bank{id: n.ID, openings: map[context]*opening{}, strategies: map[context]int{}}
	if b.document, b.fault = s.ParseBankDocument(n.Document); b.fault != nil {
		b.shut = closed(fmt.Sprintf("denied: bank policy %q is not valid: %v", b.id, b.fault))
		return b
	}
	for i, o := range b.document.StrategyOverrides {
		b.strategies[o.context()] = i
	}
	access := b.document.PublicAccess
	if access == nil {
		b.shut = closed(fmt.Sprintf("denied: bank policy %q has no public access", b.id))
		return b
	}
	const noDefault = "denied: bank policy %q has no public default, and no override matches"
	b.shut = closed(fmt.Sprintf(noDefault, b.id))
	for i, o := range access.Overrides {
		c := o.context()
		words := fmt.Sprintf("public override %d (%s) of bank policy %q", i, c, b.id)
		b.openings[c] = s.newOpening(words, o.PublicDefault)
	}
	if access.Default != nil {
		words := fmt.Sprintf("the public default of bank policy %q", b.id)
		b.open = s.newOpening(words, *access.Default)
	}
	return b
}

func (s *Schema) newOpening(words string, grant PublicDefault) *opening {
	return &opening{
		actions: grant.Actions,
		allowed: &verdict{
			outcome:    Allow,
			parameters: grant.Parameters,
			own:        s.strategyOf(grant.Parameters),
			reason:     because("allowed by " + words),
		},
		denied: &verdict{outcome: ImplicitDeny, final: true, reason: func(action, _ string) string {
			return fmt.Sprintf("denied: %s does not allow %q", words, action)
		}},
	}
}

// On returns the policy that counts for an action. That of controlBank gives and takes no
// control-plane rights: unmapped senders have none, and administrators must be able to mend it.
func (b *Bank) On(action string) *Bank {
	if b != nil && b.id == controlBank && administrative(action) {
		return nil
	}
	return b
}

// and returns the verdict of a subject's policies, restricted by the bank's policy. A bank policy
// that does not parse may hold anything, so it denies.
func (b *Bank) and(v *verdict) *verdict {
	if b == nil || b.fault == nil || v.final || v.outcome == ExplicitDeny {
		return v
	}
	return b.shut
}

var unopened = &verdict{outcome: ImplicitDeny, final: true, reason: func(_, bank string) string {
	return fmt.Sprintf("denied: bank %q has no policy that opens it to unmapped senders", bank)
}}

// public decides for an unmapped sender: only the bank's public access counts. The most specific
// override that matches is final, even when it lists nothing.
func (b *Bank) public(action string, in *Context) *verdict {
	if b == nil {
		return unopened
	}
	o := b.inForce(in)
	if o == nil {
		return b.shut
	}
	if covers(o.actions, action) {
		return o.allowed
	}
	return o.denied
}

// inForce returns the public access in force in a context. nil: there is none.
func (b *Bank) inForce(in *Context) *opening {
	if c, ok := mostSpecific(b.openings, in); ok {
		return b.openings[c]
	}
	return b.open
}

// actionsIn returns the action patterns of the public access in force in a context.
func (b *Bank) actionsIn(in *Context) []string {
	if b == nil {
		return nil
	}
	if o := b.inForce(in); o != nil {
		return o.actions
	}
	return nil
}

// append appends a text that is equal for openings that allow the same with the same parameters. A
// nil opening is nothing.
func (o *opening) append(b []byte) []byte {
	if o == nil {
		return b
	}
	for _, action := range o.actions {
		b = appendText(b, action)
	}
	return o.allowed.parameters.append(append(b, '|'))
}

// strategy returns the bank's strategy: that of the most specific override that matches, or else
// the default. nil: there is none. override is the override's index, -1 for the default.
func (b *Bank) strategy(in *Context) (strategy *string, override int) {
	if b == nil || b.document == nil {
		return nil, -1
	}
	if c, ok := mostSpecific(b.strategies, in); ok {
		override = b.strategies[c]
		return &b.document.StrategyOverrides[override].Strategy, override
	}
	return b.document.DefaultStrategy, -1
}

// mostSpecific returns the matching override for the most specific part of the context. A valid
// override has no empty value, so an unknown part of the context matches nothing.
func mostSpecific[T any](overrides map[context]T, in *Context) (context, bool) {
	if len(overrides) > 0 {
		for _, c := range in.parts() {
			if _, ok := overrides[c]; ok {
				return c, true
			}
		}
	}
	return context{}, false
}

// parts returns the parts of a context that overrides match, the most specific first.
func (in *Context) parts() [3]context {
	return [...]context{{Topic, in.Topic}, {Channel, in.Channel}, {Provider, in.Provider}}
}

// matches compares byte by byte.
func (c context) matches(in *Context) bool {
	parts := in.parts()
	return slices.Contains(parts[:], c)
}

func (c context) String() string { return fmt.Sprintf("%s %q", c.scope, c.value) }

// bank records a bank policy that does not parse.
func (r *recorder) bank(b *Bank) {
	if b != nil && b.fault != nil {
		reason := "the document is not valid: " + b.fault.Error()
		r.add(&attachedBy{policy: b.id, via: "bank"}, -1, EffectDeny, CodeDocumentInvalid, reason)
	}
}

// public records each override of public access, and its default.
func (r *recorder) public(b *Bank) {
	if r.bank(b); b == nil || b.document == nil || b.document.PublicAccess == nil {
		return
	}
	access := b.document.PublicAccess
	chosen, found := mostSpecific(b.openings, &r.request.Context)
	for i, o := range access.Overrides {
		switch c := o.context(); {
		case found && c == chosen:
			r.opening(b, i, o.PublicDefault)
		case c.matches(&r.request.Context):
			r.closedOpening(b, i, CodePublicLessSpecific, "a more specific override is in force")
		default:
			reason := fmt.Sprintf("is for %s only", c)
			r.closedOpening(b, i, CodePublicContextNotMatched, reason)
		}
	}
	switch {
	case access.Default == nil:
	case found:
		r.closedOpening(b, -1, CodePublicLessSpecific, "a more specific override is in force")
	default:
		r.opening(b, -1, *access.Default)
	}
}

func (r *recorder) closedOpening(b *Bank, i int, code, reason string) {
	r.add(&attachedBy{policy: b.id, via: "public"}, i, EffectAllow, code, reason)
}

// opening records the public access that is in force.
func (r *recorder) opening(b *Bank, i int, grant PublicDefault) {
	by := &attachedBy{policy: b.id, via: "public"}
	e := r.add(by, i, EffectAllow, CodePublicActionNotMatched, "")
	action, ok := firstAction(grant.Actions, r.request.Action)
	if !ok {
		e.Reason = fmt.Sprintf("is in force, and no action pattern covers %q", r.request.Action)
		return
	}
	e.Matched, e.ActionPattern, e.Sets = true, &action, grant.Parameters.clone()
	e.Code = CodePublicAllowed
	e.Reason = fmt.Sprintf("allows %q to unmapped senders", r.request.Action)
}

// strategy records where the bank's strategy comes from.
func (r *recorder) strategy(b *Bank) {
	strategy, i := b.strategy(&r.request.Context)
	code, reason := CodeBankDefault, "gives the default strategy"
	if i >= 0 {
		c := b.document.StrategyOverrides[i].context()
		code, reason = CodeBankOverride, "gives the strategy for "+c.String()
	}
	e := r.add(&attachedBy{policy: b.id, via: "bank"}, i, EffectAllow, code, reason)
	if e.Matched = true; r.schema.strategy >= 0 {
		e.Sets = make(Parameters, len(r.schema.list))
		e.Sets[r.schema.strategy] = *strategy
	}
}
