package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// try is a request to try the interface with.
type try struct {
	about        string // only characters that are harmless in a shell without interactive comments
	method, path string // path follows the prefix
	body         string
}

// whoMay asks about the principals of the demo.
var whoMay = []try{
	{"Alice may recall: both of her groups allow it." +
		" The trace shows that the small model lost to the higher priority",
		"GET", "/debug/resolve?bank=support&user_id=alice", ""},
	{"Alice again, by her Telegram account, in a topic with a strategy of its own",
		"GET", "/debug/resolve?bank=support&sender=telegram:1001&topic=outage", ""},
	{"Bob may not recall: his groups allow it, but a deny attached to Bob wins",
		"GET", "/debug/resolve?bank=support&user_id=bob", ""},
	{"An unmapped sender gets the public access of the bank",
		"GET", "/debug/resolve?bank=support&sender=telegram:4711", ""},
	{"The same sender gets no access in the topic billing",
		"GET", "/debug/resolve?bank=support&sender=telegram:4711&topic=billing", ""},
	{"The service account ci has the rights of Alice, narrowed by its scoping policy",
		"GET", "/debug/resolve?bank=support&sa_id=ci", ""},
	{"That policy does not allow ci to write, although Alice may write",
		"GET", "/debug/resolve?bank=support&sa_id=ci&action=bank:retain", ""},
}

// whatMayI asks about the administrator. Without the demo, no other user is known.
var whatMayI = []try{
	{"What the administrator may do on a bank, and why",
		"GET", "/debug/resolve?bank=support&user_id=" + administrator, ""},
}

// tryTemplates installs templates from the server's own catalogue.
func tryTemplates(base string) []try {
	const about = "The catalogue of this server"
	const body = `{"url": "%s/catalogue", "alias": "demo", "description": "%s"}`
	source := fmt.Sprintf(body, base, about)
	return []try{
		{"Trust a source of templates: the catalogue of this server",
			"POST", "/admin/template-sources", source},
		{"List the sources",
			"GET", "/admin/template-sources", ""},
		{"Install a template",
			"POST", "/admin/templates/meeting-notes/install", `{"source_name": "demo"}`},
		{"List the templates that the source offers, and see which are installed",
			"GET", "/admin/template-sources/demo/templates?category=operations", ""},
		{"Install a template under another id",
			"POST", "/admin/templates/incident-desk/install",
			`{"source_name": "demo", "alias_id": "night-shift"}`},
		{"List the installed templates of one category",
			"GET", "/admin/templates?category=operations", ""},
		{"Ask the source for a newer version",
			"GET", "/admin/templates/night-shift/check-update", ""},
		{"Edit the template locally",
			"PATCH", "/admin/templates/night-shift",
			`{"description": "What we do when the alarm goes off at night."}`},
		{"Update it: the source has no newer version, so the edit stays",
			"POST", "/admin/templates/night-shift/update", ""},
		{"Update it by force: the version of the source replaces the edit",
			"POST", "/admin/templates/night-shift/update?force=true", ""},
	}
}

// tryKeys issues and lists keys of a user and of the caller.
func tryKeys(user string) []try {
	return []try{
		{"Issue a key for a user: only this answer shows it",
			"POST", "/users/" + user + "/api-keys", `{"description": "laptop"}`},
		{"List the keys of that user, masked",
			"GET", "/users/" + user + "/api-keys", ""},
		{"Issue a key for yourself",
			"POST", "/me/api-keys", `{"description": "phone"}`},
		{"List your own keys",
			"GET", "/me/api-keys", ""},
	}
}

// tryEvents lists events.
var tryEvents = []try{
	{"See who did what: here the newest events of templates",
		"GET", "/admin/events?target_kind=template&limit=3", ""},
}

// curl returns the request as a line for a shell. The line takes the key from the variable KEY.
func (t try) curl(address string) string {
	line := `curl -sS -H "Authorization: Bearer $KEY"`
	if t.method != "GET" {
		line += " -X " + t.method
	}
	if t.body != "" {
		line += " -H 'Content-Type: application/json' -d " + quote(t.body)
	}
	return line + " " + quote(address+t.path)
}

// quote returns s as one word of a POSIX shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// greet prints the address of the server and the next commands. Only the start that issued a key
// prints that key.
func greet(w io.Writer, c config, base string, s start) error {
	var b strings.Builder
	fmt.Fprintf(&b, "svc listens on %s\n", base)
	_, socket := socketOf(base)
	if !c.HTTP.HideAdminPage && !socket {
		fmt.Fprintf(&b, "The administration page is at %s%s/\n", base, c.adminPrefix())
	}
	if s.first.Key != "" {
		fmt.Fprintf(&b, "\n# The key of the user %s. The server does not show it again.",
			administrator)
		if !socket {
			b.WriteString(" The lines below use it.")
		}
		fmt.Fprintf(&b, "\nKEY=%s\n", string(s.first.Key))
	}
	if s.first.Key != "" && !socket {
		for _, t := range tryouts(base, s.demo, c.Events.Keep) {
			fmt.Fprintf(&b, "\n# %s\n%s\n", t.about, t.curl(base+c.HTTP.Prefix))
		}
	}
	fmt.Fprintf(&b, "\n# %s\n%s\n", newKeyTitle(c, s), newKeyCommand(c, s))
	_, err := io.WriteString(w, b.String())
	return err
}

func tryouts(base string, demo, keeps bool) []try {
	ask, user := whatMayI, administrator
	if demo {
		ask, user = whoMay, "alice"
	}
	all := slices.Concat(ask, tryTemplates(base), tryKeys(user))
	if keeps {
		all = append(all, tryEvents...)
	}
	return all
}

func newKeyTitle(c config, s start) string {
	title := "To make another key at any time, run this"
	if !s.administrator {
		title = "To make a key at any time, run this with the id of a user in place of ID"
	}
	if _, hidden := withoutPassword(c.DB); hidden && c.needsDB() {
		title += ", with the password in place of PASSWORD"
	}
	return title
}

// needsDB reports whether a command needs -db to find the same database.
func (c config) needsDB() bool { return c.file == "" || c.flagged["db"] }

func newKeyCommand(c config, s start) string {
	command := startedAs(os.Args[0]) + " key"
	if c.file != "" {
		command += " -config " + word(c.file)
	}
	if c.needsDB() {
		db, _ := withoutPassword(c.DB)
		command += " -db " + word(db)
	}
	if c.Keys != c.usualKeys() && (c.file == "" || c.flagged["keys"]) {
		command += " -keys " + word(c.Keys)
	}
	user := "ID"
	if s.administrator {
		user = administrator
	}
	return "KEY=$(" + command + " -user " + user + ")"
}

// madeByGoRun matches the folders where go run puts its program: a temporary folder or its cache.
var madeByGoRun = regexp.MustCompile(`/go-build[0-9]+/b001/exe$|/[0-9a-f]{2}/[0-9a-f]{64}-d$`)

// startedAs returns the command that started this program, for a shell in the same directory. It is
// a go run command if go run made the program, because go run removes the program later. Otherwise
// it is the path of the program.
func startedAs(program string) string {
	if !madeByGoRun.MatchString(filepath.ToSlash(filepath.Dir(program))) {
		return word(program)
	}
	if _, err := os.Stat("examples/server/tryout.go"); err == nil {
		return "go run ./examples/server"
	}
	return "go run github.com/extsvc/svc/examples/server"
}

// safeInShell are the characters that need no quotes in a shell.
const safeInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_-+=@:,"

// word returns s as one word of a shell, quoted if needed.
func word(s string) string {
	if s != "" && strings.Trim(s, safeInShell) == "" && !strings.HasPrefix(s, "-") {
		return s
	}
	return quote(s)
}
