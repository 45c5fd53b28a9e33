package oracle_test

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/extsvc/svc"
)

// The outcomes of an attempt: one of these, or the code of another refusal.
const (
	done          = "done"
	lacksAction   = "403 for the action"
	aboveCeiling  = "403 for a right of whoever changes"
	beyondCaller  = "403 for what somebody gains or loses"
	refusedAtOnce = "403 for what the caller is"
)

// attempt is one call of the service. A nil after changes nothing.
type attempt struct {
	name    string
	call    func(by svc.Principal) error
	first   string   // refuses whatever the caller may do
	need    []string // actions
	wrong   string   // the outcome of what is missing or named wrongly
	after   *accessRows
	refused string // the outcome after all checks of rights
	dry     bool   // nothing is written
	key     *keyAttempt
}

// keyAttempt is an attempt on the keys of a holder.
type keyAttempt struct {
	holder  svc.Identity
	reduces bool // it gives the bearer nothing
}

// outcome is what must come of an attempt.
func (o *oracle) outcome(before *accessRows, by svc.Principal, a attempt) string {
	if a.first != "" {
		return a.first
	}
	if by.Kind == svc.KindHost {
		return cmp.Or(a.wrong, a.refused, done)
	}
	may := o.may(before, by)
	if !o.allows(may, a.need...) {
		return lacksAction
	}
	if a.key != nil {
		return o.ofKey(before, by, a)
	}
	if a.wrong != "" {
		return a.wrong
	}
	if a.after != nil {
		if refused := o.judge(before, a.after, may); refused != "" {
			return refused
		}
		if by.ScopingPolicyID != "" && o.counts("own narrowing") && !o.fair(before, a.after, by.Identity(), by.ScopingPolicyID, may) {
			return beyondCaller
		}
		if uncovered := o.may(a.after, by).and(controlRights).without(may); len(by.Actions) > 0 && uncovered != (rights{}) && o.counts("own denies") {
			return beyondCaller
		}
	}
	if a.refused != "" {
		return a.refused
	}
	if a.after != nil && o.counts("last administrator") && o.administered(before) && !o.administered(a.after) {
		return string(svc.CodeLastAdministrator)
	}
	return done
}

// ofKey is outcome for keys. A key lasts longer than the state of a bank, so banks count as if their policies could be read.
func (o *oracle) ofKey(before *accessRows, by svc.Principal, a attempt) string {
	w := *before
	w.banks = nil
	may, own := o.may(&w, by), o.power(&w, a.key.holder, "")
	if a.wrong == string(svc.CodeNotFound) {
		return a.wrong
	}
	if o.counts("ceiling of keys") && own.once.and(controlRights).without(may) != (rights{}) {
		return aboveCeiling
	}
	if !a.key.reduces && o.counts("effect of keys") && !o.gives(may, own.has) {
		return beyondCaller
	}
	return cmp.Or(a.wrong, a.refused, done)
}

func (o *oracle) allows(may rights, actions ...string) bool {
	for _, action := range actions {
		at := slices.Index(everyRight, right{action, "*"})
		if may[at/64]>>(at%64)&1 == 0 {
			return false
		}
	}
	return true
}

func (o *oracle) gives(may, gained rights) bool {
	if o.counts("grant") && o.allows(may, "iam:banks:grant") {
		gained = gained.and(controlRights)
	}
	return gained.without(may) == rights{}
}

func (o *oracle) takes(may, lost rights) bool {
	return !o.counts("taken") || lost.and(controlRights).without(may) == rights{}
}

// withinCeiling reports whether a caller has the control-plane rights of somebody. A broken document may hold any.
func (o *oracle) withinCeiling(of power, may rights) bool {
	has := of.has
	if of.broken && !of.gone && o.counts("broken ceiling") {
		has = of.once
	}
	return has.and(controlRights).without(may) == rights{}
}

// judge compares two worlds by brute force: everybody in either.
func (o *oracle) judge(before, after *accessRows, may rights) string {
	for _, who := range everybody(before, after) {
		if o.altered(before, after, who) && o.counts("ceiling") && !o.withinCeiling(o.power(before, who, ""), may) {
			return aboveCeiling
		}
	}
	for _, who := range everybody(before, after) {
		if !o.fair(before, after, who, "", may) {
			return beyondCaller
		}
	}
	for _, key := range before.keys {
		if key.narrowedBy != "" && o.counts("narrowed keys") && !o.fair(before, after, key.holder, key.narrowedBy, may) {
			return beyondCaller
		}
	}
	for place, at := range o.places {
		if !o.fairAt(before, after, place, at.Provider, may) {
			return beyondCaller
		}
	}
	return ""
}

func everybody(worlds ...*accessRows) (all []svc.Identity) {
	for _, w := range worlds {
		for id := range w.users {
			all = append(all, svc.Identity{Kind: svc.KindUser, ID: id})
		}
		for id := range w.accounts {
			all = append(all, svc.Identity{Kind: svc.KindServiceAccount, ID: id})
		}
	}
	return all
}

func (o *oracle) altered(before, after *accessRows, who svc.Identity) bool {
	if who.Kind == svc.KindUser {
		return !reflect.DeepEqual(before.users[who.ID], after.users[who.ID])
	}
	return before.accounts[who.ID] != after.accounts[who.ID]
}

// fair reports whether a bearer gains and loses only what a caller may give and take.
func (o *oracle) fair(before, after *accessRows, who svc.Identity, narrowedBy string, may rights) bool {
	if who.Kind == svc.KindServiceAccount && !o.counts("accounts") {
		return true
	}
	was, is := o.power(before, who, narrowedBy), o.power(after, who, narrowedBy)
	if !is.active && is.row && !o.counts("the inactive") {
		return true
	}
	gained, lost := is.has.without(was.has), was.has.without(is.has)
	if !was.active && is.active && o.counts("activation") {
		gained = is.has
	}
	if was.active && !is.active {
		lost = was.has
	}
	return o.gives(may, gained) && o.takes(may, lost)
}

// fairAt is fair for mapped senders and for the public at a place.
func (o *oracle) fairAt(before, after *accessRows, place int, provider string, may rights) bool {
	opened := o.public(before, place)
	closing := o.public(after, place)
	if o.counts("public") && !o.gives(may, closing.without(opened)) {
		return false
	}
	senders := map[svc.Channel]bool{}
	for _, w := range []*accessRows{before, after} {
		for _, u := range w.users {
			for _, ch := range u.Channels {
				senders[ch] = true
			}
		}
	}
	for ch := range senders {
		was, is := sentBy(before, ch), sentBy(after, ch)
		if ch.Provider != provider || was == is || !o.counts("senders") {
			continue
		}
		had, has := opened, closing
		if was != "" && (!before.users[was].Inactive || is == "") { // else it gets all that the other user has
			had = o.power(before, svc.Identity{Kind: svc.KindUser, ID: was}, "").has
		}
		if is != "" {
			has = o.power(after, svc.Identity{Kind: svc.KindUser, ID: is}, "").has
		}
		if !o.gives(may, has.without(had)) || !o.takes(may, had.without(has)) {
			return false
		}
	}
	return true
}

func sentBy(w *accessRows, ch svc.Channel) string {
	for _, u := range w.users {
		if slices.Contains(u.Channels, ch) {
			return u.ID
		}
	}
	return ""
}

// administered reports whether an active user is allowed every action over identities and access.
func (o *oracle) administered(w *accessRows) bool {
	for id, u := range w.users {
		if !u.Inactive && iamRights.without(o.power(w, svc.Identity{Kind: svc.KindUser, ID: id}, "").has) == (rights{}) {
			return true
		}
	}
	return false
}
