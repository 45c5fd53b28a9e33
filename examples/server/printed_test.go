package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/matryer/is"
)

// hostile has an escape sequence, a C1 control, a line that looks like one of ours, and a bidi character.
const hostile = "x\x1b[1A\x1b[2K\u009b31m\r\nroot\tadmin\u202e"

// No command for people prints what a terminal obeys, whoever has written it into a row.
func TestNoRowControlsATerminal(t *testing.T) {
	t.Parallel()
	quoted := string(must(json.Marshal(hostile)))
	statement := `{"effect": "allow", "actions": [` + quoted + `], "banks": [` + quoted + `, "b"], "llm_model": ` + quoted + `}`
	policy := `{"version": "2026-03-24", "statements": [` + statement + `]}`
	bank := `{"version": "2026-03-24", "public_access": {"overrides": [{"scope": "topic", "value": ` + quoted + `, "actions": ["bank:recall"]}]}}`
	bundle := func(more string) string {
		return writeFile(t, "bundle.json", `{"users": [{"id": "u", "display_name": `+quoted+`, "email": `+quoted+`}],
			"groups": [{"id": "g", "display_name": `+quoted+`}],
			"service_accounts": [{"id": "a", "owner_user_id": "u", "display_name": `+quoted+`}],
			"policies": [{"id": "p", "display_name": `+quoted+`, "document": `+policy+`}],
			"bank_policies": [{"bank_id": "b", "document": `+bank+`}],
			"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "u"}`+more+`]}`)
	}
	db := []string{"-db", newDB(t)}
	is.New(t).NoErr(startServer(t, db...).stop(t))
	does(t, append(db, "apply", bundle(""))...)
	does(t, append(db, "key", "issue", "-user", "u", "-description", hostile)...)
	tests := writeFile(t, "tests.json", `{"tests": [{"user_id": "u", "action": `+quoted+`, "bank": "b", "allowed": false}]}`)
	changed := bundle(`, {"policy_id": "p", "principal_type": "group", "principal_id": "g"}`)
	shown := 0
	for _, args := range [][]string{
		{"user", "list"}, {"user", "show", "u"}, {"group", "list"}, {"group", "show", "g"}, {"account", "list"},
		{"account", "show", "a"}, {"policy", "list"}, {"policy", "show", "p"}, {"attachment", "list"}, {"bank", "list"},
		{"bank", "show", "b"}, {"key", "list"}, {"audit"}, {"lint", "-known", "y"}, {"who-can", "-bank", "b"},
		{"what-can", "-user", "u"}, {"why", "-user", "u", "-bank", "b", "-action", hostile}, {"test", tests},
		{"diff", "-prune", writeFile(t, "empty.json", `{"users": [{"id": "u"}]}`)}, {"diff", changed},
		{"apply", writeFile(t, "wrong.json", `{`+quoted+`: 1}`)},
	} {
		var stdout, stderr output
		exitCode(run(t.Context(), append(db, args...), &stdout, &stderr), &stderr)
		text := stdout.String() + stderr.String()
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
		}); i >= 0 || strings.Contains(stdout.String(), "\nroot") {
			t.Errorf("%s: %q", args, text)
		}
		if strings.Contains(text, `x\u001b[1A`) {
			shown++
		}
	}
	is.New(t).True(shown >= 12)
}
