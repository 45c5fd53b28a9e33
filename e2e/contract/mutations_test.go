package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/internal/longtest"
)

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
