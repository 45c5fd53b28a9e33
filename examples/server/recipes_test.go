package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"strings"
	"testing"
)

// recipe is a section of docs/access.md.
type recipe struct {
	title  string
	blocks []codeBlock
}

// codeBlock are commands ("sh"), or the end of what the commands before it print ("text", "json").
type codeBlock struct{ language, text string }

var (
	heading = regexp.MustCompile(`(?m)^### \d+\. (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
)

// recipes reads the helpers and the recipes of docs/access.md.
func recipes(t *testing.T) (helpers string, all []recipe) {
	t.Helper()
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	starts := heading.FindAllStringSubmatchIndex(page, -1)
	for i, at := range starts {
		end := len(page)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		all = append(all, recipe{page[at[2]:at[3]], codeBlocks(page[at[1]:end])})
	}
	if len(all) != 10 {
		t.Fatalf("docs/access.md has %d recipes", len(all))
	}
	return codeBlocks(page[:starts[0][0]])[0].text, all
}

func codeBlocks(page string) (all []codeBlock) {
	for _, found := range fenced.FindAllStringSubmatch(page, -1) {
		all = append(all, codeBlock{found[1], found[2]})
	}
	return all
}

// cook runs the commands of a recipe in one shell, checks the output that the page shows, and returns
// the variables of the shell.
func (r recipe) cook(t *testing.T, dir, helpers string, s *running) map[string]string {
	t.Helper()
	const next = "--- next ---"
	script := "set -eu\nserver() { SVC_EXAMPLE_SERVER=1 '" + os.Args[0] + "' \"$@\"; }\nKEY=" + s.key() + "\n" +
		strings.ReplaceAll(helpers, "http://127.0.0.1:8080", s.base)
	var shown []codeBlock // what each block of commands prints; no text: the page does not say
	for _, b := range r.blocks {
		switch {
		case b.language == "sh":
			script += b.text + "echo '" + next + "'\n"
			shown = append(shown, codeBlock{})
		case shown[len(shown)-1].text == "":
			shown[len(shown)-1] = b
		default:
			t.Errorf("two outputs for one block: %s", b.text)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script+"set\n")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	printed := strings.Split(string(out), next+"\n")
	for i, want := range shown {
		if !want.ends(t, printed[i]) {
			t.Errorf("the commands print\n%s\nand not\n%s", printed[i], want.text)
		}
	}
	variables := map[string]string{}
	for line := range strings.Lines(printed[len(printed)-1]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		variables[name] = strings.Trim(value, "'")
	}
	return variables
}

// ends reports whether an output ends with a block of the page.
func (b codeBlock) ends(t *testing.T, output string) bool {
	t.Helper()
	if b.language != "json" {
		return strings.HasSuffix(output, b.text)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return compact(t, lines[len(lines)-1]) == compact(t, b.text)
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var to bytes.Buffer
	if err := json.Compact(&to, []byte(text)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return to.String()
}

// What docs/access.md tells an operator to do works as it is written, on a server with the demo.
func TestRecipes(t *testing.T) {
	needCurl(t)
	helpers, all := recipes(t)
	for i, r := range all {
		t.Run(r.title, func(t *testing.T) {
			dir := t.TempDir()
			s := startServer(t, "-db", filepath.Join(dir, "production.db"))
			c := kitchen{T: t, running: s, dir: dir}
			if before := prepare[i]; before != nil {
				c.held = before(c)
			}
			c.variables = r.cook(t, dir, helpers, s)
			checks[i](c)
		})
	}
}

// kitchen is where a recipe is tried.
type kitchen struct {
	*testing.T
	*running
	dir       string
	held      string            // a key that prepare has issued
	variables map[string]string // those of the recipe's shell
}

// is asks a server, and checks the status and a part of the answer.
func (c kitchen) is(key, path string, status int, part string) {
	c.Helper()
	if have, body := c.get(c.T, key, "/ext/svc"+path); have != status || !strings.Contains(body, part) {
		c.Errorf("GET %s: %d %s", path, have, body)
	}
}

// has checks a part of an answer that an administrator gets.
func (c kitchen) has(path, part string) {
	c.Helper()
	c.is(c.key(), path, 200, part)
}

// prepare has what must be so before a recipe, by its index.
var prepare = map[int]func(kitchen) string{
	2: func(c kitchen) string { return issueKey(c.T, "-db", c.db(), "-user", "alice") },
	9: func(c kitchen) string {
		staging := startServer(c.T, "-db", filepath.Join(c.dir, "staging.db"))
		for _, row := range [][2]string{{"/users", `{"id": "carol"}`}, {"/groups", `{"id": "new"}`}, {"/groups/staff/members", `{"user_id": "carol"}`}} {
			if status, text := staging.ask(c.T, staging.key(), "POST", "/ext/svc"+row[0], row[1]); status != 201 {
				c.Fatal(text)
			}
		}
		return ""
	},
}

func (c kitchen) db() string { return filepath.Join(c.dir, "production.db") }

// checks are what is so after a recipe.
var checks = []func(kitchen){
	func(c kitchen) {
		c.is(c.variables["CI"], "/me/resolve?bank=support", 200, `"decision":"allow"`)
		c.is(c.variables["CI"], "/me/resolve?bank=support&action=bank:retain", 200, `"decision":"implicit_deny"`)
		c.is(c.variables["CI"], "/me/resolve?bank=support::a", 200, `"decision":"implicit_deny"`)
		c.is(c.variables["CI"], "/users", 403, "forbidden")
		c.has("/service-accounts/ci-reader/keys?view=full", `"expires_at":"2030-01-01T00:00:00.000000Z"`)
	},
	func(c kitchen) { c.has("/debug/resolve?user_id=bob&bank=support", `"decision":"allow"`) },
	func(c kitchen) {
		c.is(c.key(), "/users/alice", 404, "not_found")
		c.has("/service-accounts/ci", `"owner_user_id":"admin"`)
		c.has("/debug/resolve?sa_id=ci&bank=support", `"decision":"allow"`)
		c.has("/debug/resolve?sender=telegram:1001&bank=support", `"principal_type":"unmapped"`)
		c.has("/groups/support-desk/members", `[{"user_id":"bob"}]`)
		c.is(c.held, "/me", 401, "")
	},
	func(c kitchen) {
		c.is(c.variables["LEAKED"], "/me/what-can", 401, "")
		c.is(c.variables["NEW"], "/me/what-can", 200, "")
	},
	func(c kitchen) {
		for _, path := range []string{"/users", "/groups", "/policies", "/banks/support/policy", "/policy-attachments", "/admin/events", "/debug/who-can?bank=support"} {
			c.is(c.variables["OLGA"], path, 200, "")
		}
		c.is(c.variables["OLGA"], "/service-accounts", 403, "")
		c.is(c.variables["OLGA"], "/admin/templates", 403, "")
	},
	func(c kitchen) {
		c.has("/groups/support-desk/members", `"carol"`)
		c.has("/groups/administrators/members", `[]`)
		c.has("/debug/resolve?user_id=lea&bank=support", `"decision":"explicit_deny"`)
		c.has("/debug/resolve?user_id=carol&bank=support&action=bank:retain", `"decision":"allow"`)
	},
	func(c kitchen) {
		c.has("/debug/resolve?sender=slack:U0CAROL&bank=support", `"resolved_user_id":"carol"`)
		_, events := c.get(c.T, c.key(), "/ext/svc/admin/events?actor=admin")
		if n := strings.Count(events, `"number":`); n != 4 { // the user, the policy, the attachment, the member
			c.Errorf("%d events: %s", n, events)
		}
	},
	func(c kitchen) {
		c.is(c.key(), "/debug/resolve?bank=handbook&sender=slack:U0GUEST&channel=%23help", 200, `"recall_budget":"low"`)
	},
	func(c kitchen) {
		c.is(c.variables["OLD"], "/me/what-can", 401, "")
		c.is(c.variables["NEW"], "/me/what-can", 200, "")
	},
	func(c kitchen) {
		if staging, production := does(c.T, "export", "-db", filepath.Join(c.dir, "staging.db")), does(c.T, "export", "-db", c.db()); staging != production {
			c.Errorf("staging has\n%s\nproduction\n%s", staging, production)
		}
		c.has("/users/carol", "")
	},
}
