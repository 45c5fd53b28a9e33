//go:build linux

package crash

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// told reports whether an event goes into the ledger: one for each mutation of the store. A deletion is
// one mutation, and one more for each holder whose keys it revokes. A person has one key of each holder.
func told(event svc.Event) bool {
	kind := event.Target.Kind
	if isPerson(object(event.Target)) {
		switch event.Action {
		case event.TemplateDeleted, event.SourceRemoved:
			return false // with its user
		case event.APIKeyRevoked:
			return true
		case event.AccessRemoved:
			return kind == event.TargetUser || kind == event.TargetGroup || kind == event.TargetPolicy
		}
		return kind != event.TargetGroup || len(rowOf(event.Was).Members) == 0 // else its user leaves
	}
	return event.Action != event.AccessWritten || kind == event.TargetPolicy
}

// row is what an event says of a row of access.
type row struct{ Members, Channels []json.RawMessage }

func rowOf(text json.RawMessage) (r row) {
	_ = json.Unmarshal(text, &r) // nil has no members
	return r
}

// tale is what the records tell of people: how many of each part there are.
type tale map[string]map[string]int

func (t tale) clone() tale {
	other := tale{}
	for id, counts := range t {
		other[id] = maps.Clone(counts)
	}
	return other
}

// add adds a record, in any order. It returns what is wrong with the record.
func (t tale) add(r svc.AuditRecord) (wrong string) {
	id := object(r.Target)
	if !isPerson(id) {
		return ""
	}
	counts := t[id]
	if counts == nil {
		counts = map[string]int{}
		t[id] = counts
	}
	part := map[event.TargetKind]string{
		event.TargetUser: "user", event.TargetGroup: "group", event.TargetServiceAccount: "account", event.TargetPolicy: "policy",
		event.TargetAttachment: "attachment", event.TargetAPIKey: "key", event.TargetTemplate: "template", event.TargetSource: "source",
	}[r.Target.Kind]
	if r.Target.Holder.Kind == svc.KindServiceAccount {
		part = "account-key"
	}
	switch r.Action {
	case event.APIKeyIssued, event.TemplateCreated, event.SourceRegistered:
		counts[part]++
	case event.APIKeyRevoked, event.TemplateDeleted, event.SourceRemoved:
		counts[part]--
	case event.AccessWritten, event.AccessRemoved:
		if r.Was == nil {
			counts[part]++
		}
		if r.Is == nil {
			counts[part]--
		}
		was, is := rowOf(r.Was), rowOf(r.Is)
		counts["member"] += len(is.Members) - len(was.Members)
		counts["channel"] += len(is.Channels) - len(was.Channels)
		if (r.Is == nil) != (r.Action == event.AccessRemoved) || r.Was == nil && r.Is == nil {
			return fmt.Sprintf("record %d, %s of %s: was %s, is %s", r.Number, r.Action, id, r.Was, r.Is)
		}
	default:
		return fmt.Sprintf("record %d: %s of %s", r.Number, r.Action, id)
	}
	return ""
}

// state returns the state of a person that the records tell.
func (t tale) state(id string) string {
	p := parts{}
	for part, n := range t[id] {
		if n == 1 {
			p[part] = true
		} else if n != 0 {
			p[fmt.Sprint(n, " × ", part)] = true
		}
	}
	return p.String()
}

// checkTale compares what the records tell of people with the rows.
func (l *ledger) checkTale(told tale, found observation) {
	for id := range l.objects {
		state := found.states[id]
		if state == "" {
			state = absent
		}
		if tells := told.state(id); isPerson(id) && tells != state {
			l.problemLocked("torn: %s: the records tell %s, %s is there", id, tells, state)
		}
	}
}
