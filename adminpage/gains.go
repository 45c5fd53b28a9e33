package adminpage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// preview is what a change of access does, as the table "Who gains or loses" shows it.
type preview struct {
	Sum        string  // a sentence
	Rows       []*gain // the first maxListed
	Strategies []strategyChange
	More       int            // the changes left out
	Turned     []keptQuestion // the first maxShown kept questions with another answer
	MoreTurned int
}

// gain is a row: principals that gain or lose the same.
type gain struct {
	What, Action string
	Limits       string   // the parameters that change; "": none
	Banks        []string // the first maxShown
	MoreBanks    int
	Count        string   // how many principals, in words
	Names        []string // the first of them
	principals   int
}

// strategyChange is a row of the table of strategies.
type strategyChange struct{ Bank, Where, Before, After string }

// maxShown is the most principals, banks or statements that a row names, and maxNamed the most
// bytes of the names of principals: those of the longest name.
const (
	maxShown = 20
	maxNamed = 512
)

var words = map[svc.ChangeKind]string{
	svc.NewlyAllowed: "gains", svc.NewlyDenied: "loses", svc.OtherParameters: "changed limits",
}

// previewOf prepares a difference for the page.
func previewOf(diff svc.AccessDiff) (p preview) {
	p.More = diff.Omitted
	rows := append(gains(diff.Principals), publicGains(diff.Public)...)
	order := []string{words[svc.NewlyAllowed], words[svc.OtherParameters], words[svc.NewlyDenied]}
	slices.SortStableFunc(rows, func(a, b *gain) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.What), slices.Index(order, b.What)),
			cmp.Compare(b.principals, a.principals), strings.Compare(a.Action, b.Action))
	})
	p.Sum = sum(diff, rows)
	for _, t := range diff.Turned {
		q := askedBy(t)
		p.Turned = append(p.Turned, keptQuestion{
			Who: q.Who, Action: q.Action, Bank: q.Bank, Address: q.Address(),
			Expected: answerWord(t.Allowed), Is: answerWord(!t.Allowed),
		})
	}
	p.Turned, p.MoreTurned = head(p.Turned, maxShown)
	rows, more := head(rows, maxListed)
	strategies, moreStrategies := head(diff.Strategies, maxListed)
	p.Rows, p.More = rows, p.More+more+moreStrategies
	for _, s := range strategies {
		p.Strategies = append(p.Strategies, strategyChange{
			shorten(s.Bank, maxField), where(s.Context), orNone(s.Before), orNone(s.After)})
	}
	return p
}

// gains joins the differences that are the same for the same principals on several banks.
func gains(all []svc.PrincipalsDiff) (rows []*gain) {
	type change struct{ what, action, limits, bank string }
	var order []change
	groups := map[change][]int{}
	for i, p := range all {
		for _, d := range p.Differences {
			if d.Change == svc.Unchanged {
				continue
			}
			c := change{words[d.Change], d.Action, changedLimits(d), d.Bank}
			if groups[c] == nil {
				order = append(order, c)
			}
			groups[c] = append(groups[c], i)
		}
	}
	joined := map[string]int{} // rows by all but the bank
	for _, c := range order {
		who := groups[c]
		key := fmt.Sprintf("%q %q %q %v", c.what, c.action, c.limits, who)
		at, known := joined[key]
		if !known {
			at = len(rows)
			joined[key] = at
			rows = append(rows, newGain(c.what, c.action, c.limits, all, who))
		}
		rows[at].on(c.bank)
	}
	return rows
}

func newGain(what, action, limits string, all []svc.PrincipalsDiff, who []int) *gain {
	var principals []svc.Identity
	for _, i := range who {
		principals = append(principals, all[i].Principals...)
	}
	accounts := 0
	for _, p := range principals {
		if p.Kind == svc.KindServiceAccount {
			accounts++
		}
	}
	var count []string
	for _, c := range []struct {
		n    int
		kind string
	}{{len(principals) - accounts, "user"}, {accounts, "service account"}} {
		if c.n > 0 {
			count = append(count, plural(c.n, c.kind))
		}
	}
	return &gain{
		What: what, Action: shorten(action, maxField), Limits: shorten(limits, maxField),
		Count: strings.Join(count, ", "), Names: names(principals), principals: len(principals),
	}
}

func (g *gain) on(bank string) {
	if len(g.Banks) == maxShown {
		g.MoreBanks++
		return
	}
	g.Banks = append(g.Banks, shorten(bank, maxField))
}

func plural(n int, kind string) string {
	if n == 1 {
		return "1 " + kind
	}
	return fmt.Sprintf("%d %ss", n, kind)
}

func publicGains(all []svc.PublicDiff) (rows []*gain) {
	for _, p := range all {
		for _, d := range p.Differences {
			if d.Change == svc.Unchanged {
				continue
			}
			g := &gain{
				What: words[d.Change], Action: shorten(d.Action, maxField),
				Limits: shorten(changedLimits(d), maxField),
				Count:  "unknown senders, " + where(p.Context),
			}
			g.on(p.Bank)
			rows = append(rows, g)
		}
	}
	return rows
}

func where(c svc.Context) string {
	return shorten(cmp.Or(c.Topic, c.Channel, c.Provider, "anywhere"), maxField)
}

// changedLimits names the parameters that differ, with their values before and after.
func changedLimits(d svc.Difference) string {
	if d.Change != svc.OtherParameters {
		return ""
	}
	var changed []string
	after := map[string]string{}
	for name, value := range d.After.All() {
		after[name] = encoded(value)
	}
	for name, value := range d.Before.All() {
		if before := encoded(value); before != after[name] {
			changed = append(changed, fmt.Sprintf("%s: %s → %s", name, before, after[name]))
		}
	}
	return strings.Join(changed, ", ")
}

func encoded(value any) string {
	if value == nil {
		return "none"
	}
	text, _ := json.Marshal(value) // texts, lists and numbers always encode
	return shorten(string(text), maxField/4)
}

// sum says in one sentence what a change does. Principals with equal policies are one element of
// the difference, so nobody is counted twice.
func sum(diff svc.AccessDiff, rows []*gain) string {
	principals := 0
	for _, p := range diff.Principals {
		principals += len(p.Principals)
	}
	most := mostChanged(diff.Principals)
	switch {
	case len(rows) == 0 && len(diff.Strategies) == 0 && diff.Omitted == 0:
		return "Nobody gains or loses anything."
	case principals == 0:
		return "No principal gains or loses anything; unknown senders or strategies do."
	case most == nil:
		return fmt.Sprintf("Changes what %s may do.", plural(principals, "principal"))
	}
	return fmt.Sprintf("Changes what %s may do: %s.",
		plural(principals, "principal"), strings.Join(most, ", "))
}

// mostChanged says how many principals lose or gain an action on some bank. It has the three
// changes of the most principals, losses first.
func mostChanged(all []svc.PrincipalsDiff) (most []string) {
	counts := map[string]int{} // by the word and the action
	for _, p := range all {
		seen := map[string]bool{}
		for _, d := range p.Differences {
			c := words[d.Change] + " " + d.Action
			lostOrGained := d.Change == svc.NewlyDenied || d.Change == svc.NewlyAllowed
			if lostOrGained && !seen[c] {
				seen[c] = true
				counts[c] += len(p.Principals)
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(b[0], a[0]), // loses, gains
			cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	order, _ = head(order, 3)
	for _, c := range order {
		verb, action, _ := strings.Cut(c, " ")
		if counts[c] > 1 {
			verb = strings.TrimSuffix(verb, "s")
		}
		most = append(most, fmt.Sprintf("%d %s %s", counts[c], verb, shorten(action, maxField)))
	}
	return most
}

// names returns the ids of principals, the first of them.
func names(all []svc.Identity) (ids []string) {
	size := 0
	for i, who := range all {
		if size += len(who.ID); i == maxShown || size > maxNamed {
			return append(ids, fmt.Sprintf("and %d more", len(all)-i))
		}
		id := who.ID
		if who.Kind == svc.KindServiceAccount {
			id += " (service account)"
		}
		ids = append(ids, id)
	}
	return ids
}

func orNone(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}
