package oracle_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/extsvc/svc"
)

// scene is a world and one caller in it.
type scene struct {
	*worlds
	o     *oracle
	ctx   context.Context
	s     *svc.Service
	rows  *accessRows
	by    svc.Principal
	draws []func(*scene) attempt
	drawn int // names of imported keys
}

// The ids that worlds have rows of, or not.
var (
	sceneUsers    = []string{"u0", "u1", "u2", "u3", "u4"}
	sceneGroups   = []string{"g0", "g1", "u1"} // a group may have the id of a user
	sceneAccounts = []string{"s0", "u1", "s2"}
	scenePolicies = []string{"p0", "p1", "p2", "p3", "p4", "p5"}
	sceneBuiltins = slices.Sorted(maps.Keys(builtinActions))
	sceneSenders  = []svc.Channel{{Provider: "slack", SenderID: "1"}, {Provider: "slack", SenderID: "2"}, {Provider: "tele", SenderID: "1"}}
)

// writeActions are what writers need.
var writeActions = []string{"iam:users:write", "iam:groups:write", "iam:policies:write", "iam:attachments:write", "iam:service_accounts:manage",
	"iam:service_accounts:write", "iam:service_account_keys:write", "iam:banks:write"}

// unreadable are what a store may have although no caller can write it.
var unreadable = []string{
	`{"version":"2025-01-01","statements":[]}`, `{"version":"2026-03-24","statements":[{"effect":"permit","actions":["bank:*"],"banks":["*"]}]}`,
	`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":[]}]}`, `[]`,
}

func (w *worlds) oneOf(lists ...[]string) string { return w.one(slices.Concat(lists...)) }

// rightsDocument draws a policy: some give nearly all, so that callers may do much.
func (w *worlds) rightsDocument() string {
	var statements []any
	add := func(effect string, actions, banks []string) {
		statements = append(statements, map[string]any{"effect": effect, "actions": actions, "banks": banks})
	}
	switch w.IntN(10) {
	case 0:
		add("allow", []string{"iam:*", "template:*"}, []string{"*"})
	case 1:
		add("allow", []string{"iam:*", "bank:*", "template:*", "tool:*"}, []string{"*"})
	case 2, 3, 4, 5:
		add("allow", append(w.few(writeActions), w.few(writeActions)...), []string{"*"})
	}
	reach := w.IntN(3) // 0: banks alone
	for range 1 + w.IntN(3) {
		effect := "allow"
		if w.IntN(5) == 0 {
			effect = "deny"
		}
		if w.IntN(3) < reach {
			add(effect, w.few(controlActions), []string{"*"})
		} else {
			add(effect, w.few(dataActions), w.few(slices.Concat(rightBanks, bankVariables)))
		}
	}
	return string(encoded(map[string]any{"version": "2026-03-24", "statements": statements}))
}

func (w *worlds) few(list []string) (some []string) {
	for _, i := range w.Perm(len(list))[:1+w.IntN(3)] {
		some = append(some, list[i])
	}
	return some
}

func (w *worlds) openDocument() string {
	public := map[string]any{}
	if w.IntN(2) == 0 {
		public["default"] = map[string]any{"actions": w.few(dataActions)}
	}
	var overrides []any
	for _, c := range [][2]string{{"provider", "slack"}, {"provider", "tele"}, {"channel", "c"}, {"channel", "d"}, {"topic", "t"}, {"topic", "u"}} {
		if w.IntN(3) == 0 {
			actions := append(w.few(dataActions), "iam:*")
			overrides = append(overrides, map[string]any{"scope": c[0], "value": c[1], "actions": actions[:w.IntN(len(actions)+1)]})
		}
	}
	public["overrides"] = overrides
	d := map[string]any{"version": "2026-03-24"}
	if w.IntN(5) > 0 {
		d["public_access"] = public
	}
	return string(encoded(d))
}

// rightsWorld draws rows that a store may have. Its broken documents no caller can write.
func (w *worlds) rightsWorld() svc.Bundle {
	var b svc.Bundle
	for i, id := range sceneUsers[:4+w.IntN(2)] {
		u := svc.User{ID: id, DisplayName: id, Inactive: w.IntN(4) == 0}
		if i < len(sceneSenders) && w.IntN(2) == 0 {
			u.Channels = sceneSenders[i : i+1]
		}
		b.Users = append(b.Users, u)
	}
	for _, id := range sceneGroups[:2+w.IntN(2)] {
		b.Groups = append(b.Groups, svc.Group{ID: id, DisplayName: id, Members: w.some(sceneUsers[:4])})
	}
	for _, id := range scenePolicies[:4+w.IntN(2)] {
		b.Policies = append(b.Policies, svc.Policy{ID: id, DisplayName: id, Document: []byte(w.rightsDocument())})
		if w.IntN(25) == 0 {
			b.Policies[len(b.Policies)-1].Document = []byte(w.one(unreadable))
		}
	}
	if w.IntN(10) == 0 { // from before there were built-in policies
		b.Policies = append(b.Policies, svc.Policy{ID: "bank:readonly", DisplayName: "ours", Document: []byte(w.rightsDocument())})
	}
	for _, id := range sceneAccounts[:1+w.IntN(3)] {
		b.ServiceAccounts = append(b.ServiceAccounts, w.drawnAccount(id))
	}
	for _, key := range w.drawnAttachments(5 + w.IntN(4)) {
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: key.PolicyID, Principal: key.Principal, Priority: w.Int64N(2)})
	}
	for _, bank := range []string{"*", "a", "a::b", "z"} {
		if w.IntN(2) == 0 {
			b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: bank, Document: []byte(w.openDocument())})
			if w.IntN(8) == 0 {
				b.BankPolicies[len(b.BankPolicies)-1].Document = []byte(w.one(unreadable[:1]))
			}
		}
	}
	return b
}

func (w *worlds) drawnAccount(id string) svc.ServiceAccount {
	a := svc.ServiceAccount{ID: id, DisplayName: id, OwnerUserID: w.one(sceneUsers[:4]), Inactive: w.IntN(6) == 0}
	if w.IntN(2) == 0 {
		a.ScopingPolicyID = w.one(scenePolicies[:4])
	}
	return a
}

func (w *worlds) drawnAttachments(n int) (all []svc.AttachmentKey) {
	for range n {
		key := svc.AttachmentKey{PolicyID: w.one(scenePolicies[:3]), Principal: w.principal()}
		if !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	return all
}

func (w *worlds) principal() svc.GrantedTo {
	if w.IntN(2) == 0 {
		return svc.GrantedTo{Type: svc.GrantedToGroup, ID: w.one(sceneGroups[:2])}
	}
	return svc.GrantedTo{Type: svc.GrantedToUser, ID: w.one(sceneUsers[:4])}
}

func (c *scene) caller() svc.Principal {
	if c.IntN(40) == 0 {
		return svc.Host
	}
	by := svc.Principal{Kind: svc.KindUser, ID: c.one(sceneUsers)}
	if c.IntN(4) == 0 {
		by = svc.Principal{Kind: svc.KindServiceAccount, ID: c.one(sceneAccounts)}
	}
	switch c.IntN(6) {
	case 0:
		by.ScopingPolicyID = c.oneOf(scenePolicies, scenePolicies[4:], sceneBuiltins)
	case 1:
		by.Actions = c.few(append(writeActions, "iam:*", "*", "iam:users:*", "iam:groups:*", "iam:banks:grant", "template:*", "bank:*"))
	}
	return by
}

// attempt draws an attempt: mostly one of a caller who has the action for it.
func (c *scene) attempt() (a attempt) {
	for range 1 + c.IntN(20) {
		c.by = c.caller()
		a = c.draws[c.IntN(len(c.draws))](c)
		if a.first == "" && (c.by.Kind == svc.KindHost || c.o.allows(c.o.may(c.rows, c.by), a.need...)) {
			return a
		}
	}
	return a
}

const wrongTag = `"another"`

// tags draws the ETags of a conditional call, and says whether it must be refused.
func (c *scene) tags(right string, found bool) (ifMatch []string, refused string) {
	switch c.IntN(12) {
	case 0:
		if found {
			return []string{wrongTag, right}, ""
		}
	case 1:
		return []string{wrongTag}, string(svc.CodePrecondition)
	}
	return nil, ""
}

func unless(so bool, outcome svc.Code) string {
	if so {
		return ""
	}
	return string(outcome)
}

func has[K comparable, V any](m map[K]V, key K) bool {
	_, found := m[key]
	return found
}

func (w *accessRows) ended(holders ...svc.Identity) {
	maps.DeleteFunc(w.keys, func(_ string, k heldKey) bool { return slices.Contains(holders, k.holder) })
}

func (w *accessRows) dropUser(id string) {
	w.dropPerson(id)
	for name, a := range w.accounts {
		if a.OwnerUserID == id {
			w.dropAccount(name)
		}
	}
}

// dropPerson removes a user without the service accounts, which a bundle may give to others.
func (w *accessRows) dropPerson(id string) {
	delete(w.users, id)
	w.ended(svc.Identity{Kind: svc.KindUser, ID: id})
	for _, g := range w.groups {
		g.Members = slices.DeleteFunc(slices.Clone(g.Members), func(member string) bool { return member == id })
		w.put(svc.Bundle{Groups: []svc.Group{g}})
	}
	w.detach(svc.GrantedTo{Type: svc.GrantedToUser, ID: id})
}

func (w *accessRows) dropAccount(id string) {
	delete(w.accounts, id)
	w.ended(svc.Identity{Kind: svc.KindServiceAccount, ID: id})
}

func (w *accessRows) dropGroup(id string) {
	delete(w.groups, id)
	w.detach(svc.GrantedTo{Type: svc.GrantedToGroup, ID: id})
}

func (w *accessRows) detach(to svc.GrantedTo) {
	maps.DeleteFunc(w.attached, func(key svc.AttachmentKey, _ int64) bool { return key.Principal == to })
}

func (w *accessRows) narrows(policy string) (n int) {
	for _, k := range w.keys {
		if k.narrowedBy == policy {
			n++
		}
	}
	return n
}

func (w *accessRows) changed(b svc.Bundle) *accessRows {
	after := w.clone()
	after.put(b)
	return after
}

// Package oracle_test holds an oracle of the effect rule: nobody gains beyond the writer. It shares no code with the Service and
// uses its public API. The
// worlds draws rows of access; of one seed always the same.
type worlds struct {
	*rand.Rand
	seed uint64
}

func (w *worlds) one(of []string) string { return of[w.IntN(len(of))] }

func (w *worlds) some(of []string) []string {
	out := []string{}
	for range 1 + w.IntN(3) {
		out = append(out, w.one(of))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func encoded(v any) json.RawMessage { return must(json.Marshal(v)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func errorOf[T any](_ T, err error) error { return err }

func digest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}
