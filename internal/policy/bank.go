package policy

import (
	"fmt"
	"reflect"
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
	Default   *PublicDefault   // nil: nothing
	Overrides []PublicOverride // no two have the same scope and value
}

// PublicDefault applies where no override matches.
type PublicDefault struct {
	Actions    []string // patterns; none: nothing is allowed
	Parameters Parameters
}

// PublicOverride applies to one provider, channel or topic. It replaces the default and adds
// nothing to it.
type PublicOverride struct {
	Scope Scope
	Value string
	PublicDefault
}

// context is the scope and value that an override matches.
type context struct {
	scope Scope
	value string
}

func (o StrategyOverride) context() context { return context{o.Scope, o.Value} }
func (o PublicOverride) context() context   { return context{o.Scope, o.Value} }

// ParseBankDocument parses a bank policy. It refuses everything that the rules do not allow, with a
// *strictjson.Error whose pointer is relative to the document. A null key counts as absent. Only
// version is required.
func (s *Schema) ParseBankDocument(raw []byte) (*BankDocument, error) {
	in := reflect.New(s.bankDocument)
	if err := strictjson.Unmarshal(raw, maxDepth, in.Interface()); err != nil {
		return nil, err
	}
	version := in.Elem().Field(0).Interface().(*string)
	d := &BankDocument{
		DefaultStrategy:   in.Elem().Field(1).Interface().(*string),
		StrategyOverrides: in.Elem().Field(2).Interface().([]StrategyOverride),
		PublicAccess:      s.readPublic(in.Elem().Field(3)),
	}
	err := firstError(
		checkVersion(version),
		checkText("/default_strategy", d.DefaultStrategy),
		checkStrategies("/strategy_overrides", d.StrategyOverrides),
		s.checkPublic("/public_access", d.PublicAccess),
	)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// readPublic returns the public access that a field of the JSON form points to.
func (s *Schema) readPublic(at reflect.Value) *PublicAccess {
	if at.IsNil() {
		return nil
	}
	access, byDefault, overrides := &PublicAccess{}, at.Elem().Field(0), at.Elem().Field(1)
	if !byDefault.IsNil() {
		from := byDefault.Elem()
		access.Default = &PublicDefault{from.Field(0).Interface().([]string), s.read(from)}
	}
	for i := range overrides.Len() {
		from := overrides.Index(i)
		access.Overrides = append(access.Overrides, PublicOverride{
			Scope: Scope(from.Field(0).String()), Value: from.Field(1).String(),
			PublicDefault: PublicDefault{from.Field(2).Interface().([]string), s.read(from)},
		})
	}
	return access
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

func (s *Schema) checkPublic(at string, p *PublicAccess) error {
	if p == nil {
		return nil
	}
	if p.Default != nil {
		if err := s.checkDefault(at+"/default", p.Default); err != nil {
			return err
		}
	}
	at += "/overrides"
	for i, o := range p.Overrides {
		at := at + "/" + strconv.Itoa(i)
		err := firstError(o.context().check(at), s.checkDefault(at, &o.PublicDefault))
		if err != nil {
			return err
		}
	}
	return checkDistinct(at, p.Overrides)
}

func (s *Schema) checkDefault(at string, p *PublicDefault) error {
	return firstError(
		checkPatterns(at+"/actions", p.Actions, validAction),
		under(at, s.check(p.Parameters)),
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
