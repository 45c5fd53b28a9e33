package contract_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// corpus is the part of a file of worked decisions that this test reads.
type corpus struct {
	Policies     map[string]json.RawMessage
	BankPolicies map[string]json.RawMessage `json:"bank_policies"`
	Cases        []struct {
		Name     string
		Decision string
		Who      struct {
			Kind, ID, Closed string
			Grants           []struct {
				Policy, Group string
				Priority      int64
			}
			Scoping any // one id, or several
		}
		Asks struct{ Action, Bank, Provider, Channel, Topic string }
	}
}

// object is a JSON object.
type object map[string]any

// simulation returns the request for a numbered case. It returns false for a case that cannot be
// stored or requested.
func (c corpus) simulation(number int) (object, bool) {
	this := c.Cases[number]
	who, asks := this.Who, this.Asks
	query := object{"bank": asks.Bank, "action": asks.Action, "channel": asks.Channel, "topic": asks.Topic}
	user, accounts, narrowing := who.ID, []object{}, texts(who.Scoping)
	used := slices.Clone(narrowing)
	switch who.Kind {
	case "user":
		query["user_id"] = user
	case "service_account":
		user, query["sa_id"] = "owner", who.ID
		account := object{"id": who.ID, "owner_user_id": user}
		if len(narrowing) > 0 {
			account["scoping_policy_id"], narrowing = narrowing[0], narrowing[1:]
		}
		accounts = append(accounts, account)
	case "unmapped":
		user = "somebody"
	}
	if query["sender"] = asks.Provider + ":nobody"; asks.Provider == "" {
		query["sender"] = "elsewhere:nobody"
	}
	if len(narrowing) > 0 {
		query["scoping_policy_id"] = narrowing[0]
	}
	groups, attachments := map[string]object{}, []object{}
	for _, g := range who.Grants {
		kind, id := "user", user
		if g.Group != "" {
			kind, id = "group", g.Group
			groups[id] = object{"id": id, "members": []string{user}}
		}
		attachments = append(attachments, object{"policy_id": g.Policy, "principal_type": kind, "principal_id": id, "priority": g.Priority})
		used = append(used, g.Policy)
	}
	bundle := object{
		"users": []object{{"id": user}}, "service_accounts": accounts, "groups": slices.AppendSeq([]object{}, maps.Values(groups)),
		"policies": documents("id", c.Policies, used), "attachments": attachments,
		"bank_policies": documents("bank_id", c.BankPolicies, []string{asks.Bank}),
	}
	return object{"bundle": bundle, "query": query}, who.Closed == "" && asks.Action != "" && len(narrowing) < 2
}

// documents returns the documents of some names.
func documents(key string, all map[string]json.RawMessage, names []string) []object {
	rows := []object{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if document, there := all[name]; there {
			rows = append(rows, object{key: name, "document": document})
		}
	}
	return rows
}

func texts(value any) []string {
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		var all []string
		for _, one := range value {
			all = append(all, one.(string))
		}
		return all
	}
	return nil
}

// TestResolutions asks for all worked decisions over HTTP. The document must have all answers, and
// the answers must have every trace code of the document.
func TestResolutions(t *testing.T) {
	files := must(filepath.Glob("../../internal/policy/testdata/policies/*.json"))
	s := newStage(t)
	s.play(empty)
	asked, codes := 0, map[string]bool{"document_invalid": true} // of documents that cannot be stored
	for _, name := range files {
		var c corpus
		must(0, json.Unmarshal(must(os.ReadFile(name)), &c))
		for i, this := range c.Cases {
			request, good := c.simulation(i)
			if !good {
				continue
			}
			a := s.send("admin", "POST", "/debug/simulate", string(must(json.Marshal(request))))
			if a.status != 200 {
				continue
			}
			asked++
			var answer struct {
				Decision string
				Trace    []struct{ Code string }
			}
			must(0, json.Unmarshal(a.body, &answer))
			if answer.Decision != this.Decision {
				t.Errorf("%s: %s: %q, want %q: %s", filepath.Base(name), this.Name, answer.Decision, this.Decision, a.body)
			}
			for _, entry := range answer.Trace {
				codes[entry.Code] = true
			}
		}
	}
	if asked < 180 {
		t.Errorf("only %d were asked", asked)
	}
	for _, code := range s.contract.Enum("components", "schemas", "TraceEntry", "properties", "code") {
		if !codes[code] {
			t.Errorf("%s is in the document, and in no trace", code)
		}
	}
}
