package policy_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/policy"
)

// checkLoose checks that a document that the table accepts stays the same through Loose, and reports
// whether it does accept it. What Loose refuses, every table refuses.
func checkLoose(t *testing.T, schema *policy.Schema, raw []byte) bool {
	t.Helper()
	want, refused := schema.ParseDocument(raw)
	loose, err := policy.ParseLoose(raw)
	if err != nil {
		expect.Holds(t, refused != nil, string(raw), " is refused by all: ", err)
		return false
	}
	again := policy.MarshalLoose(loose)
	if same, err := policy.ParseLoose(again); err != nil || !reflect.DeepEqual(same, loose) {
		t.Errorf("%s became %s: %v", raw, again, err)
	}
	got, err := schema.ParseDocument(again)
	expect.Holds(t, (err == nil) == (refused == nil) && reflect.DeepEqual(got, want), string(raw), " became ", string(again), ": ", err, refused)
	return err == nil
}

func TestLooseCorpus(t *testing.T) {
	is := is.New(t)
	files, err := filepath.Glob("testdata/policies/*.json")
	is.NoErr(err)
	accepted, refused := 0, 0
	count := func(raw []byte) {
		if checkLoose(t, policy.Memory, raw) {
			accepted++
		} else {
			refused++
		}
	}
	for _, file := range files {
		c := load(t, file)
		for _, raw := range c.Policies {
			count(raw)
		}
		for _, stored := range c.Documents {
			count(stored.raw())
		}
	}
	is.True(accepted > 50 && refused > 50)
}

func TestLooseRefuses(t *testing.T) {
	const statement = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["a"],"banks":["b"],%}]}`
	for set, want := range map[string]string{
		`"a":true`:                  "/statements/0/a: must be an integer, a text, or a list of texts or of objects",
		`"a":{}`:                    "/statements/0/a: must be an integer, a text, or a list of texts or of objects",
		`"a":1.5`:                   "/statements/0/a: must be an integer",
		`"a":-1`:                    "/statements/0/a: must not be negative",
		`"a":""`:                    "/statements/0/a: must not be empty",
		`"a":["x",""]`:              "/statements/0/a/1: must not be empty",
		`"a":["x",{}]`:              "/statements/0/a/1: must be a string",
		`"a":[{},1]`:                "/statements/0/a/1: must be an object",
		`"A/b":1`:                   "/statements/0/A~1b: is not a name of a parameter",
		`"A":null`:                  "/statements/0/A: is not a name of a parameter",
		`"scope":1`:                 "/statements/0/scope: is not a name of a parameter",
		`"effect":"allow"`:          "/statements/0/effect: is a duplicate key",
		`"c":1,"a":1,"effect":"no"`: "/statements/0/effect: is a duplicate key",
	} {
		_, err := policy.ParseLoose([]byte(strings.Replace(statement, "%", set, 1)))
		expect.Holds(t, err != nil && err.Error() == want, set, ": ", err, ", want ", want)
	}
}
