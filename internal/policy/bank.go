package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/extsvc/svc/internal/strictjson"
)

// Scope is the part of a request's context that an override of a bank policy matches.
type Scope string

// The scopes.
const (
	Provider Scope = "provider"
	Channel  Scope = "channel"
	Topic    Scope = "topic"
)

// scopes holds all scopes, the least specific first.
var scopes = []Scope{Provider, Channel, Topic}

// BankDocument is a parsed, valid bank policy.
type BankDocument struct {
	DefaultStrategy   *string            // nil: none
	StrategyOverrides []StrategyOverride // no two have the same scope and value
	PublicAccess      *PublicAccess      // nil: unmapped senders may do nothing
}

// StrategyOverride is the strategy for one provider, channel or topic.
type StrategyOverride struct {
	Scope    Scope  `json:"scope"`
	Value    string `json:"value"`
	Strategy string `json:"strategy"`
}

// PublicAccess is what unmapped senders may do.
type PublicAccess struct {
	Default   *PublicDefault   `json:"default"`   // nil: nothing
	Overrides []PublicOverride `json:"overrides"` // no two have the same scope and value
}

// PublicDefault applies where no override matches.
type PublicDefault struct {
	Actions         []string `json:"actions"` // patterns; none: nothing is allowed
	RecallBudget    *string  `json:"recall_budget"`
	RecallMaxTokens *int64   `json:"recall_max_tokens"`
}

// PublicOverride applies to one provider, channel or topic. It replaces the default and adds
// nothing to it.
type PublicOverride struct {
	Scope           Scope    `json:"scope"`
	Value           string   `json:"value"`
	Actions         []string `json:"actions"` // patterns; none: nothing is allowed
	RecallBudget    *string  `json:"recall_budget"`
	RecallMaxTokens *int64   `json:"recall_max_tokens"`
}

// context is the scope and value that an override matches.
type context struct {
	scope Scope
	value string
}

func (o StrategyOverride) context() context { return context{o.Scope, o.Value} }
func (o PublicOverride) context() context   { return context{o.Scope, o.Value} }

func (o PublicOverride) grant() PublicDefault {
	return PublicDefault{o.Actions, o.RecallBudget, o.RecallMaxTokens}
}

// ParseBankDocument parses a bank policy. It refuses everything that the rules do not allow, with a
// *strictjson.Error whose pointer is relative to the document. A null key counts as absent. Only
// version is required.
func ParseBankDocument(raw []byte) (*BankDocument, error) {
	var d struct {
		Version           *string            `json:"version"`
		DefaultStrategy   *string            `json:"default_strategy"`
		StrategyOverrides []StrategyOverride `json:"strategy_overrides"`
		PublicAccess      *PublicAccess      `json:"public_access"`
	}
	if err := strictjson.Unmarshal(raw, maxDepth, &d); err != nil {
		return nil, err
	}
	err := firstError(
		checkVersion(d.Version),
		checkText("/default_strategy", d.DefaultStrategy),
		checkStrategies("/strategy_overrides", d.StrategyOverrides),
		d.PublicAccess.check("/public_access"),
	)
	if err != nil {
		return nil, err
	}
	return &BankDocument{d.DefaultStrategy, d.StrategyOverrides, d.PublicAccess}, nil
}

func checkStrategies(at string, overrides []StrategyOverride) error {
	for i, o := range overrides {
		at := at + "/" + strconv.Itoa(i)
		err := firstError(o.context().check(at), checkText(at+"/strategy", &o.Strategy))
		if err != nil {
			return err
		}
	}
	return checkDistinct(at, overrides)
}

func (p *PublicAccess) check(at string) error {
	if p == nil {
		return nil
	}
	if p.Default != nil {
		if err := p.Default.check(at + "/default"); err != nil {
			return err
		}
	}
	at += "/overrides"
	for i, o := range p.Overrides {
		at := at + "/" + strconv.Itoa(i)
		grant := o.grant()
		if err := firstError(o.context().check(at), grant.check(at)); err != nil {
			return err
		}
	}
	return checkDistinct(at, p.Overrides)
}

func (p *PublicDefault) check(at string) error {
	return firstError(
		checkPatterns(at+"/actions", p.Actions, ValidAction),
		checkBudget(at+"/recall_budget", p.RecallBudget),
		checkCount(at+"/recall_max_tokens", p.RecallMaxTokens),
	)
}

func (c context) check(at string) error {
	if !slices.Contains(scopes, c.scope) {
		return refuse(at+"/scope", "must be provider, channel or topic")
	}
	return checkText(at+"/value", &c.value)
}

// checkDistinct refuses a second override of the same scope and value: chance would choose between
// the two.
func checkDistinct[T interface{ context() context }](at string, overrides []T) error {
	seen := map[context]int{}
	for i, o := range overrides {
		c := o.context()
		if first, ok := seen[c]; ok {
			detail := fmt.Sprintf("has the scope and value of override %d", first)
			return refuse(fmt.Sprintf("%s/%d", at, i), detail)
		}
		seen[c] = i
	}
	return nil
}
