package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
)

// Generators have no type for a value of several types. The document of OpenAPI 3.0 is made by rules
// that know no other schemas.
func TestSchemasAreSimple(t *testing.T) {
	visit(readDocument(t), "", func(at string, object map[string]any) {
		if types, are := object["type"].([]any); are && (len(types) != 2 || types[1] != "null") {
			t.Errorf("%s: %v is not one type, or null", at, types)
		}
		for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
			if parts, are := object[keyword].([]any); are && len(parts) != 2 {
				t.Errorf("%s: %s has %d parts and not 2", at, keyword, len(parts))
			}
		}
	})
}

func readDocument(t *testing.T) any {
	return must(jsonschema.UnmarshalJSON(bytes.NewReader(httpapi.OpenAPI("/ext/svc"))))
}

func visit(value any, at string, do func(at string, object map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		do(at, value)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			visit(value[key], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), do)
		}
	case []any:
		for i, element := range value {
			visit(element, fmt.Sprint(at, "/", i), do)
		}
	}
}

// Every parameter, header, request and answer with a body has an example that fits its schema.
func TestExamplesFit(t *testing.T) {
	document, examples := readDocument(t), 0
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	must(0, compiler.AddResource("https://svc.example/openapi.json", document))
	visit(document, "", func(at string, object map[string]any) {
		if _, has := object["schema"]; !has {
			return
		}
		schema := compiler.MustCompile("https://svc.example/openapi.json#" + at + "/schema")
		values := map[string]any{}
		if example, has := object["example"]; has {
			values["example"] = example
		}
		several, _ := object["examples"].(map[string]any)
		for name, example := range several {
			values[name] = example.(map[string]any)["value"]
		}
		if len(values) == 0 {
			t.Errorf("%s has no example", at)
		}
		for name, value := range values {
			if examples++; schema.Validate(value) != nil {
				t.Errorf("%s: %s: %v", at, name, schema.Validate(value))
			}
		}
	})
	if examples < 80 {
		t.Errorf("only %d examples", examples)
	}
}

// Every definition is used.
func TestNothingIsDefinedInVain(t *testing.T) {
	document := readDocument(t)
	used := map[string]bool{}
	visit(document, "", func(_ string, object map[string]any) {
		if ref, is := object["$ref"].(string); is {
			used[ref] = true
		}
	})
	for kind, all := range document.(map[string]any)["components"].(map[string]any) {
		for name := range all.(map[string]any) {
			if kind != "securitySchemes" && !used["#/components/"+kind+"/"+name] {
				t.Errorf("%s %s is not used", kind, name)
			}
		}
	}
}

// Texts end like sentences, and no line of the file is too long.
func TestDocumentReadsWell(t *testing.T) {
	visit(readDocument(t), "", func(at string, object map[string]any) {
		text, is := object["description"].(string)
		if is && !strings.Contains(at, "/examples/") && !strings.HasSuffix(text, ".") && !strings.HasSuffix(at, "/properties") {
			t.Errorf("%s: %q is no sentence", at, text)
		}
	})
	for i, line := range bytes.Split(httpapi.OpenAPI("/ext/svc"), []byte("\n")) {
		if len(line) > 300 && !bytes.Contains(line, []byte(`"description"`)) {
			t.Errorf("line %d is %d bytes long", i+1, len(line))
		}
	}
}

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
			Scoping []string
		}
		Asks struct{ Action, Bank, Provider, Channel, Topic string }
	}
}

type object map[string]any

// simulation returns the request for a numbered case. It returns false for a case that cannot be stored or requested.
func (c corpus) simulation(number int) (object, bool) {
	this := c.Cases[number]
	who, asks := this.Who, this.Asks
	query := object{"bank": asks.Bank, "action": asks.Action, "channel": asks.Channel, "topic": asks.Topic}
	user, accounts, narrowing := who.ID, []object{}, who.Scoping
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

func documents(key string, all map[string]json.RawMessage, names []string) []object {
	rows := []object{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if document, there := all[name]; there {
			rows = append(rows, object{key: name, "document": document})
		}
	}
	return rows
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

// TestMutations changes the examples of the document in every place, one at a time. The server must
// answer 400 to what the document refuses. The document must refuse what the server answers with
// 400, as far as a schema can say it.
func TestMutations(t *testing.T) {
	longtest.Test(t, "mutations of each example")
	s := newStage(t)
	tried, c := map[bool]int{}, s.play(stocked)
	for _, sample := range s.contract.Samples() {
		for _, m := range slices.Concat(mutatedTargets(sample), mutatedHeaders(sample), mutatedBodies(sample)) {
			target := c.withKeys(m.target)
			refused := s.contract.Refuses(sample.Method, target, m.body, m.headers...) != nil
			a := s.send(entitled(target), sample.Method, target, m.body, m.headers...)
			if tried[refused]++; refused != (a.status == 400) && (refused || !a.unsaid()) {
				t.Errorf("%s: %.300s: answered %d, and refused by the document: %v", m.what, a.request, a.status, refused)
			}
			if a.status < 400 && sample.Method != "GET" { // a failed request has changed nothing
				c = s.play(stocked)
			}
		}
	}
	if tried[true] < 300 || tried[false] < 100 {
		t.Errorf("too few were tried: %v", tried)
	}
}

// inWords lists rules that the document gives only in words, as answers state them.
var inWords = []string{
	"is required, unless sa_id or sender is given", "must name at most one of user_id, sa_id and sender",
	"is required: the URL has no path to take a name from", "is required: the service account is new", "is required: the row is new",
	"names an unknown policy", "must be given with principal_", "that does not exist", "must be a cursor from a Link of this list", "must hold no control, format or bidi characters",
}

// unsaid reports whether an answer refuses something that no schema can express.
func (a answer) unsaid() bool {
	return slices.ContainsFunc(inWords, func(words string) bool { return strings.Contains(string(a.body), words) })
}

// mutation is a changed request.
type mutation struct {
	what, target, body string
	headers            []contract.Value
}

// mutatedTargets changes each parameter of a sample.
func mutatedTargets(sample contract.Sample) []mutation {
	var all []mutation
	add := func(what string) {
		all = append(all, mutation{what: what, target: sample.Target(true), body: sample.Body})
	}
	for i, segment := range sample.Path {
		if segment.Name == "" {
			continue
		}
		sample.Path = slices.Clone(sample.Path)
		for what, text := range map[string]string{
			"slash": "a/b", "backslash": `a\b`, "dot": ".", "dots": "..", "long": strings.Repeat("ü", 129), "just": strings.Repeat("ü", 128),
			"NUL": "a\x00", "bidi": "a\u202eb", "DEL": "\x7f",
		} {
			sample.Path[i].Text = text
			add(what)
		}
		sample.Path[i] = segment
	}
	unknown := sample
	unknown.Query = append(slices.Clone(sample.Query), contract.Value{Name: "unknown", Text: "x"})
	all = append(all, mutation{what: "unknown key", target: unknown.Target(true), body: sample.Body})
	for i, parameter := range sample.Query {
		sample.Query = slices.Clone(sample.Query)
		for what, text := range map[string]string{
			"empty": "", "slash": "a/b", "long": strings.Repeat("x", 1100), "NUL": "a\x00", "true": "TrUe", "one": "1", "two": "2", "colon": ":x",
			"zero": "0", "padded": "0007", "most": "1000", "more": "1001", "fraction": "1.0", "plus": "+7",
		} {
			sample.Query[i].Text = text
			add(parameter.Name + " " + what)
		}
		sample.Query[i] = parameter
		sample.Query = append(sample.Query, parameter)
		add(parameter.Name + " twice")
		sample.Query = slices.Delete(slices.Clone(sample.Query[:len(sample.Query)-1]), i, i+1)
		add(parameter.Name + " missing")
		sample.Query = slices.Insert(sample.Query, i, parameter)
	}
	return all
}

// mutatedHeaders changes each header of a sample. All are lists of entity tags.
func mutatedHeaders(sample contract.Sample) []mutation {
	var all []mutation
	for _, header := range sample.Header {
		tag := header.Text
		for _, header.Text = range []string{
			"", "x", "*", " * ", `*, "x"`, `"x", *`, `"`, `""`, `W/"x"`, `w/"x"`, "W/*", "W/", `"a b"`, "\"a\tb\"", `"a,b"`, `"ü"`, ",", " ,, " + tag + "\t, ,",
			tag + tag, tag + " x", `"x" ,W/` + tag, strings.Repeat(`"x",`, 100), strings.Repeat(`"x",`, 101),
		} {
			all = append(all, mutation{"tags " + header.Text, sample.Target(true), sample.Body, []contract.Value{header}})
		}
	}
	return all
}

// mutatedBodies changes each value in the body of a sample.
func mutatedBodies(sample contract.Sample) []mutation {
	if sample.Body == "" {
		return nil
	}
	var all []mutation
	target := sample.Target(false)
	if sample.BodyType != "application/json" {
		for what, body := range map[string]string{
			"no token": "token_type_hint=a", "an empty token": "token=", "a long token": "token=" + strings.Repeat("x", 5000), "two tokens": "token=a&token=b",
			"two hints": "token=a&token_type_hint=a&token_type_hint=b", "an unknown parameter": "token=a&b=c", "two of an unknown": "token=a&b=c&b=c",
			"two without a name": "token=a&=1&=2", "two of a pointer": "token=a&/b&/b", "an escape": "token=%zz", "a semicolon": "token=a;b=c", "JSON": sample.Target(false),
			"NUL": "token=a%00", "a loud one": "TOKEN=a", "bad UTF-8": "token=%ff", "a line break": "token=a\r\nb",
		} {
			all = append(all, mutation{what: what, target: target, body: body})
		}
		return all
	}
	var root any
	if err := json.Unmarshal([]byte(sample.Body), &root); err != nil {
		panic(err)
	}
	mutate(root, "", func(what string, spoiled any) {
		all = append(all, mutation{what: strings.TrimPrefix(what, "."), target: target, body: string(must(json.Marshal(spoiled)))})
	})
	return all
}

// others holds values of every type.
var others = []any{
	nil, true, 7, -1, 1.5, 1e300, "", "x", "a/b", "a*", "a:b", "a\x00", strings.Repeat("x", 5000),
	[]any{}, []any{nil}, []any{"x", 7}, []any{strings.Repeat("x", 200)}, slices.Repeat([]any{"x"}, 101), map[string]any{}, map[string]any{"x": 1},
}

// mutate calls do with copies of a value, each changed in one place.
func mutate(value any, what string, do func(what string, spoiled any)) {
	for i, other := range others {
		do(fmt.Sprint(what, " is other ", i), other)
	}
	switch value := value.(type) {
	case map[string]any:
		with := func(key string, other any) map[string]any {
			copied := maps.Clone(value)
			copied[key] = other
			return copied
		}
		do(what+" has a key too many", with("unknown", 1))
		for key, member := range value {
			without := maps.Clone(value)
			delete(without, key)
			do(what+"."+key+" is missing", without)
			without[strings.ToUpper(key)] = member
			do(what+"."+key+" is loud", without)
			mutate(member, what+"."+key, func(what string, spoiled any) { do(what, with(key, spoiled)) })
		}
	case []any:
		for i, element := range value {
			mutate(element, what, func(what string, spoiled any) {
				copied := slices.Clone(value)
				copied[i] = spoiled
				do(what, copied)
			})
		}
	}
}
