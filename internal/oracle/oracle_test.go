package oracle_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
)

// The vocabulary of drawn documents.
var (
	controlActions = []string{
		"iam:*", "iam:users:*", "iam:users:read", "iam:users:write", "iam:groups:*", "iam:groups:write", "iam:policies:read", "iam:policies:write",
		"iam:attachments:write", "iam:service_accounts:*", "iam:service_accounts:manage", "iam:service_accounts:read", "iam:service_accounts:write",
		"iam:service_account_keys:write", "iam:api_keys:read", "iam:api_keys:write", "iam:banks:*", "iam:banks:write", "iam:banks:grant",
		"template:*", "template:admin", "template:list", "template:create", "template:install", "template:manage", "template:source"}
	dataActions = []string{"bank:*", "bank:recall", "bank:retain", "bank:reflect", "bank:create", "bank:memories:*", "bank:memories:list", "tool:*", "tool:x"}
	rightBanks  = []string{"*", "a::*", "a::b::*", "a", "a::b", "z"}
	// bankVariables are bank patterns of drawn documents, and variableBanks the banks that tell their values apart.
	bankVariables = []string{"${user}", "a::${user}", "${group}::*"}
	variableBanks = []string{"u0", "u1", "u2", "u3", "u4", "a::u0", "a::u1", "a::u2", "a::u3", "a::u4", "g0::~", "g1::~", "u1::~"}
)

// builtinActions are the actions of the built-in policies, as the contract lists them.
var builtinActions = map[string][]string{
	"bank:readwrite": {"bank:recall", "bank:reflect", "bank:retain"}, "bank:readonly": {"bank:recall", "bank:reflect"},
	"bank:retain-only": {"bank:retain"}, "bank:admin": {"bank:*"}, "iam:admin": {"iam:*"}, "template:admin": {"template:*", "bank:create"},
	"template:user": {"template:list", "template:create", "template:install", "template:manage", "template:source", "bank:create"},
	"iam:self-service": {"iam:api_keys:read", "iam:api_keys:write", "iam:service_accounts:read", "iam:service_accounts:write",
		"iam:service_account_keys:write"},
}

var builtinDocuments = func() map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for id, actions := range builtinActions {
		all[id] = encoded(map[string]any{"version": "2026-03-24",
			"statements": []any{map[string]any{"effect": "allow", "actions": actions, "banks": []string{"*"}}}})
	}
	return all
}()

// right is a request that somebody may be allowed.
type right struct{ action, bank string }

// rights is a set of indices of everyRight.
type rights [6]uint64

// everyRight has what tells drawn documents apart: each pattern read as a string, a member of each pattern that no document names, and
// outsiders. Control-plane actions are asked on bank "*" alone.
var everyRight, controlRights, iamRights = func() (all []right, control, iam rights) {
	for _, action := range withFresh(controlActions) {
		all = append(all, right{action, "*"})
		control.add(len(all) - 1)
		if strings.HasPrefix(action, "iam:") {
			iam.add(len(all) - 1)
		}
	}
	for _, action := range withFresh(dataActions, "bank:memories:get", "iam", "other") {
		for _, bank := range withFresh(rightBanks, append(variableBanks, "other")...) {
			all = append(all, right{action, bank})
		}
	}
	return all, control, iam
}()

func withFresh(patterns []string, more ...string) []string {
	all := append(slices.Clone(patterns), more...)
	for _, p := range patterns {
		if prefix, is := strings.CutSuffix(p, "*"); is {
			all = append(all, prefix+"~")
		}
	}
	return all
}

func (r *rights) add(i int) { r[i/64] |= 1 << (i % 64) }

func (r rights) and(o rights) rights {
	for i := range r {
		r[i] &= o[i]
	}
	return r
}

func (r rights) or(o rights) rights {
	for i := range r {
		r[i] |= o[i]
	}
	return r
}

func (r rights) without(o rights) rights {
	for i := range r {
		r[i] &^= o[i]
	}
	return r
}

func those(is func(right) bool) (r rights) {
	for i, x := range everyRight {
		if is(x) {
			r.add(i)
		}
	}
	return r
}

// oracle decides by matching strings. It shares no code with the service. A rule in ignored does not count, which is how the tests see
// that each rule matters. An oracle remembers what documents say, so each goroutine has its own.
type oracle struct {
	ignored   string
	documents map[string]*statements
	openings  map[[2]string]*opened
	places    []svc.Context
}

func newOracle(ignored string) *oracle {
	o := &oracle{ignored: ignored, documents: map[string]*statements{}, openings: map[[2]string]*opened{}}
	for _, provider := range []string{"slack", "tele", "web"} {
		for _, channel := range []string{"", "c", "d"} {
			for _, topic := range []string{"", "t", "u"} {
				if ignored != "contexts" || channel+topic == "" {
					o.places = append(o.places, svc.Context{Provider: provider, Channel: channel, Topic: topic})
				}
			}
		}
	}
	return o
}

func (o *oracle) counts(rule string) bool { return o.ignored != rule }

type statements struct {
	broken      bool
	allow, deny rights
}

type patterns struct{ Actions, Banks []string }

func covered(pattern, text string) bool {
	if prefix, is := strings.CutSuffix(pattern, "*"); is {
		return strings.HasPrefix(text, prefix)
	}
	return pattern == text
}

func coveredAction(pattern, action string) bool {
	return covered(pattern, action) || pattern == "bank:recall" && (action == "bank:memories:list" || action == "bank:memories:get")
}

func (p patterns) cover(r right) bool {
	return slices.ContainsFunc(p.Actions, func(a string) bool { return coveredAction(a, r.action) }) &&
		slices.ContainsFunc(p.Banks, func(b string) bool { return covered(b, r.bank) })
}

// read returns what a document says of a user whom it reaches by a group, by the rule table of the design. group "": by none.
func (o *oracle) read(document json.RawMessage, user, group string) *statements {
	bound := strings.NewReplacer("${user}", user, "${group}", cmp.Or(group, "no group")).Replace(string(document))
	s := o.documents[bound]
	if s != nil {
		return s
	}
	var d struct {
		Version    string
		Statements []struct {
			Effect string
			patterns
		}
	}
	s = &statements{}
	s.broken = json.Unmarshal([]byte(bound), &d) != nil || d.Version != "2026-03-24"
	for _, st := range d.Statements {
		s.broken = s.broken || len(st.Actions) == 0 || len(st.Banks) == 0 || slices.Contains(st.Actions, "*")
		switch covers := those(st.cover); st.Effect {
		case "allow":
			s.allow = s.allow.or(covers)
		case "deny":
			s.deny = s.deny.or(covers)
		default:
			s.broken = true
		}
	}
	o.documents[bound] = s
	return s
}

// opened is what unmapped senders may do on one bank, by place, and what nobody may do there.
type opened struct {
	at   []rights
	shut rights
}

// open returns what a bank policy gives to unmapped senders.
func (o *oracle) open(bank, document string) *opened {
	key := [2]string{bank, document}
	if known := o.openings[key]; known != nil {
		return known
	}
	var d struct {
		Version string
		Public  *struct {
			Default   *patterns
			Overrides []struct {
				Scope, Value string
				patterns
			}
		} `json:"public_access"`
	}
	p := &opened{}
	broken := json.Unmarshal([]byte(document), &d) != nil || d.Version != "2026-03-24"
	if broken { // it is closed to everybody
		p.shut = those(func(r right) bool { return r.bank == bank }).without(controlRights)
	}
	for _, place := range o.places {
		var gives patterns
		if d.Public != nil && !broken {
			if d.Public.Default != nil {
				gives = *d.Public.Default
			}
			for _, scope := range []string{"provider", "channel", "topic"} { // the last that matches is the closest
				value := map[string]string{"provider": place.Provider, "channel": place.Channel, "topic": place.Topic}[scope]
				for _, override := range d.Public.Overrides {
					if override.Scope == scope && override.Value == value {
						gives = override.patterns
					}
				}
			}
		}
		gives.Banks = []string{"*"}
		there := func(r right) bool { return r.bank == bank && gives.cover(r) }
		p.at = append(p.at, those(there).without(controlRights))
	}
	o.openings[key] = p
	return p
}

type heldKey struct { // not revoked
	holder     svc.Identity
	narrowedBy string
	rotated    bool // it has a successor
}

// accessRows are all rows of a world. Writes replace values, so copies may share them.
type accessRows struct {
	users    map[string]svc.User
	groups   map[string]svc.Group
	accounts map[string]svc.ServiceAccount
	policies map[string]svc.Policy
	attached map[svc.AttachmentKey]int64
	banks    map[string]string
	keys     map[string]heldKey
}

func rowsOf(b svc.Bundle) *accessRows {
	w := &accessRows{map[string]svc.User{}, map[string]svc.Group{}, map[string]svc.ServiceAccount{}, map[string]svc.Policy{},
		map[svc.AttachmentKey]int64{}, map[string]string{}, map[string]heldKey{}}
	w.put(b)
	return w
}

func (w *accessRows) put(b svc.Bundle) {
	for _, u := range b.Users {
		if u.Channels == nil {
			u.Channels = w.users[u.ID].Channels
		}
		u.Channels = slices.SortedFunc(slices.Values(u.Channels), func(a, b svc.Channel) int { return strings.Compare(a.String(), b.String()) })
		w.users[u.ID] = u
	}
	for _, g := range b.Groups {
		if g.Members == nil {
			g.Members = w.groups[g.ID].Members
		}
		g.Members = slices.Compact(slices.Sorted(slices.Values(g.Members)))
		w.groups[g.ID] = g
	}
	for _, a := range b.ServiceAccounts {
		w.accounts[a.ID] = a
	}
	for _, p := range b.Policies {
		w.policies[p.ID] = p
	}
	for _, a := range b.Attachments {
		w.attached[svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}] = a.Priority
	}
	for _, p := range b.BankPolicies {
		w.banks[p.BankID] = string(p.Document)
	}
}

func (w *accessRows) clone() *accessRows {
	return &accessRows{maps.Clone(w.users), maps.Clone(w.groups), maps.Clone(w.accounts), maps.Clone(w.policies), maps.Clone(w.attached),
		maps.Clone(w.banks), maps.Clone(w.keys)}
}

// equal compares the rows that a bundle has, which are not keys.
func (w *accessRows) equal(o *accessRows) bool {
	a, b := *w, *o
	a.keys, b.keys = nil, nil
	return reflect.DeepEqual(a, b)
}

// document returns a policy, stored or built in; nil: there is none.
func (w *accessRows) document(id string) json.RawMessage {
	if p, stored := w.policies[id]; stored {
		return p.Document
	}
	return builtinDocuments[id]
}

func (w *accessRows) knows(policy string) bool { return w.document(policy) != nil }

// reaches reports whether what is attached to a principal is the user's.
func (w *accessRows) reaches(to svc.GrantedTo, user string) bool {
	if to.Type == svc.GrantedToGroup {
		return has(w.users, user) && slices.Contains(w.groups[to.ID].Members, user)
	}
	return has(w.users, user) && to.ID == user
}

// power is what a bearer may do, as if it and its owner were active.
type power struct {
	has    rights
	once   rights // what it may have once its documents are repaired and there again
	denied rights // what no host may vouch for
	row    bool   // the bearer and its owner have rows
	active bool   // the bearer's own row says so
	owner  bool   // the owner's row says so
	broken bool   // a document does not parse
	gone   bool   // a policy that narrows it does not exist
}

func (o *oracle) power(w *accessRows, who svc.Identity, narrowedBy string) (p power) {
	user, within := who.ID, []string{narrowedBy}
	p.active = true
	if who.Kind == svc.KindServiceAccount {
		row, found := w.accounts[who.ID]
		if !found {
			return power{}
		}
		user, within, p.active = row.OwnerUserID, append(within, row.ScopingPolicyID), !row.Inactive
	}
	row, found := w.users[user]
	if !found {
		return power{}
	}
	p.row, p.owner = true, !row.Inactive
	if who.Kind == svc.KindUser {
		p.active = p.owner
	}
	for key := range w.attached {
		if w.reaches(key.Principal, user) && (key.Principal.Type != svc.GrantedToGroup || o.counts("groups")) {
			group := ""
			if key.Principal.Type == svc.GrantedToGroup {
				group = key.Principal.ID
			}
			s := o.read(w.document(key.PolicyID), user, group)
			p.has, p.denied, p.broken = p.has.or(s.allow), p.denied.or(s.deny), p.broken || s.broken
		}
	}
	for _, id := range within {
		if id == "" {
			continue
		}
		if p.gone = p.gone || !w.knows(id); p.gone {
			continue
		}
		s := o.read(w.document(id), user, "")
		p.has, p.denied, p.broken = p.has.and(s.allow), p.denied.or(s.deny), p.broken || s.broken
	}
	p.once = p.has.without(p.denied)
	if p.broken {
		p.once = controlRights
	}
	if p.has = p.has.without(p.denied).without(o.shut(w)); p.broken || p.gone {
		p.has = rights{}
	}
	return p
}

func (o *oracle) shut(w *accessRows) (r rights) {
	for bank, document := range w.banks {
		r = r.or(o.open(bank, document).shut)
	}
	return r
}

// may returns what a caller may do, with what its host vouches for.
func (o *oracle) may(w *accessRows, by svc.Principal) rights {
	p := o.power(w, by.Identity(), by.ScopingPolicyID)
	if p.row && (!p.active || !p.owner || p.broken || p.gone) {
		return rights{}
	}
	if !p.row && o.closed(w, by.Identity()) {
		return rights{}
	}
	if by.ScopingPolicyID != "" || !o.counts("vouching") {
		return p.has
	}
	vouched := those(func(r right) bool {
		return slices.ContainsFunc(by.Actions, func(pattern string) bool { return coveredAction(pattern, r.action) })
	})
	return p.has.or(vouched.and(controlRights).without(p.denied))
}

// closed reports whether a principal without all rows has one: an account without an owner.
func (o *oracle) closed(w *accessRows, who svc.Identity) bool {
	_, found := w.accounts[who.ID]
	return who.Kind == svc.KindServiceAccount && found
}

func (o *oracle) public(w *accessRows, place int) (r rights) {
	for bank, document := range w.banks {
		r = r.or(o.open(bank, document).at[place])
	}
	return r
}

// The oracle notices a service that lacks one of its rules: without the rule, the oracle disagrees.
func TestTheOracleNoticesEachRule(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	documents := []func(*scene) attempt{(*scene).patchPolicy}
	for rule, draws := range map[string][]func(*scene) attempt{
		"ceiling": nil, "broken ceiling": nil, "ceiling of keys": nil, "effect of keys": nil, "grant": nil, "taken": nil, "the inactive": nil,
		"accounts": nil, "senders": nil, "public": nil, "contexts": nil, "last administrator": nil, "own denies": nil, "groups": nil, "vouching": nil,
		"activation": {(*scene).patchUser}, "narrowed keys": documents, "own narrowing": documents, // which matter in few attempts
	} {
		t.Run(rule, func(t *testing.T) {
			_, err := trials{ignored: rule, draws: draws}.run(t, 100_000) // some rules matter in one attempt of ten thousand
			is.New(t).True(err != nil)                                    // the oracle and the service disagree
		})
	}
}
