package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/extsvc/svc/httpapi"
)

// try is a request to try the interface with.
type try struct {
	about        string // nothing in it that a shell which takes no comments would stumble over when it is pasted
	method, path string // behind the prefix
	body         string
}

// whoMay asks about the demo's principals.
var whoMay = []try{
	{"Alice may recall: both of her groups allow it. In the trace, the small model lost to the higher priority", "GET", "/debug/resolve?bank=support&user_id=alice", ""},
	{"Alice again, by her Telegram account, in a topic with a strategy of its own", "GET", "/debug/resolve?bank=support&sender=telegram:1001&topic=outage", ""},
	{"Bob may not: his groups allow it, but a deny of his own wins", "GET", "/debug/resolve?bank=support&user_id=bob", ""},
	{"A sender who is nobody gets the public access of the bank", "GET", "/debug/resolve?bank=support&sender=telegram:4711", ""},
	{"The same sender gets nothing at all in the topic billing", "GET", "/debug/resolve?bank=support&sender=telegram:4711&topic=billing", ""},
	{"The service account ci has the rights of Alice, narrowed by its scoping policy", "GET", "/debug/resolve?bank=support&sa_id=ci", ""},
	{"That policy does not let it write, though Alice may", "GET", "/debug/resolve?bank=support&sa_id=ci&action=bank:retain", ""},
}

// whatMayI asks about the one user who is known when the access is not the demo's.
var whatMayI = []try{
	{"What the administrator may do on a bank, and why", "GET", "/debug/resolve?bank=support&user_id=" + administrator, ""},
}

// tryTemplates installs from the server's own catalogue.
func tryTemplates(base string) []try {
	source := fmt.Sprintf(`{"url": "%s/catalogue", "alias": "demo", "description": "The catalogue of this server"}`, base)
	return []try{
		{"Trust a source of templates: the catalogue that this server has with it", "POST", "/admin/template-sources", source},
		{"List the sources", "GET", "/admin/template-sources", ""},
		{"Install a template", "POST", "/admin/templates/meeting-notes/install", `{"source_name": "demo"}`},
		{"See what the source offers, and what of it is installed", "GET", "/admin/template-sources/demo/templates?category=operations", ""},
		{"Install one under another id", "POST", "/admin/templates/incident-desk/install", `{"source_name": "demo", "alias_id": "night-shift"}`},
		{"List what is installed, of one category", "GET", "/admin/templates?category=operations", ""},
		{"Ask the source for something newer", "GET", "/admin/templates/night-shift/check-update", ""},
		{"Edit the template here", "PATCH", "/admin/templates/night-shift", `{"description": "What we do when the alarm goes off at night."}`},
		{"Update it: the source has nothing new, so the edit stays", "POST", "/admin/templates/night-shift/update", ""},
		{"Update it by force: back to what the source has", "POST", "/admin/templates/night-shift/update?force=true", ""},
	}
}

// tryKeys issues and lists keys, those of a user and the caller's own.
func tryKeys(user string) []try {
	return []try{
		{"Issue a key for a user: it is shown this once", "POST", "/users/" + user + "/api-keys", `{"description": "laptop"}`},
		{"List the keys of that user, masked", "GET", "/users/" + user + "/api-keys", ""},
		{"Issue a key for yourself", "POST", "/me/api-keys", `{"description": "phone"}`},
		{"List your own", "GET", "/me/api-keys", ""},
	}
}

// tryEvents asks what was done.
var tryEvents = []try{
	{"See who did what, the newest first: here what was done to templates", "GET", "/admin/events?target_kind=template&limit=3", ""},
}

// curl is the request as a line for a shell. It takes the key from the variable KEY.
func (t try) curl(base string) string {
	line := `curl -sS -H "Authorization: Bearer $KEY"`
	if t.method != "GET" {
		line += " -X " + t.method
	}
	if t.body != "" {
		line += " -H 'Content-Type: application/json' -d " + quote(t.body)
	}
	return line + " " + quote(base+httpapi.DefaultPrefix+t.path)
}

// quote makes a word of a POSIX shell of s.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// greet says where the server listens, and how to go on from here. A key is shown by the start that made it, and by no other.
func greet(w io.Writer, o options, base string, s start) error {
	var b strings.Builder
	fmt.Fprintf(&b, "svc listens on %s\n", base)
	if s.key != "" {
		fmt.Fprintf(&b, "\n# The key of the user %s. It is not shown again. The lines below take it from here.\nKEY=%s\n", administrator, string(s.key))
		for _, t := range tryouts(base, s.demo) {
			fmt.Fprintf(&b, "\n# %s\n%s\n", t.about, t.curl(base))
		}
	}
	fmt.Fprintf(&b, "\n# %s\n%s\n", newKeyTitle(o, s), newKeyCommand(o, s))
	_, err := io.WriteString(w, b.String())
	return err
}

func tryouts(base string, demo bool) []try {
	ask, user := whatMayI, administrator
	if demo {
		ask, user = whoMay, "alice"
	}
	return slices.Concat(ask, tryTemplates(base), tryKeys(user), tryEvents)
}

func newKeyTitle(o options, s start) string {
	title := "Another key, now or at any time"
	if !s.administrator {
		title = "A key, now or at any time, with the id of a user for ID"
	}
	if _, hidden := withoutPassword(o.db); hidden {
		title += ", with the password for PASSWORD"
	}
	return title
}

func newKeyCommand(o options, s start) string {
	user := "ID"
	if s.administrator {
		user = administrator
	}
	db, _ := withoutPassword(o.db)
	command := startedAs(os.Args[0]) + " key -db " + word(db)
	if o.keys != o.usualKeys() {
		command += " -keys " + word(o.keys)
	}
	return "KEY=$(" + command + " -user " + user + ")"
}

// madeByGoRun finds the folders where go run puts the program that it makes: a temporary one, or its cache.
var madeByGoRun = regexp.MustCompile(`/go-build[0-9]+/b001/exe$|/[0-9a-f]{2}/[0-9a-f]{64}-d$`)

// startedAs is the command that started this program, for a shell in the same directory: that of go run, which removes the
// program that it makes sooner or later, or the program's own path.
func startedAs(program string) string {
	if !madeByGoRun.MatchString(filepath.ToSlash(filepath.Dir(program))) {
		return word(program)
	}
	if _, err := os.Stat("examples/server/tryout.go"); err == nil {
		return "go run ./examples/server"
	}
	return "go run github.com/extsvc/svc/examples/server"
}

// word quotes s when a shell would not take it as it is.
func word(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_-+=@:,") == "" && s != "" && !strings.HasPrefix(s, "-") {
		return s
	}
	return quote(s)
}
