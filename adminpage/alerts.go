package adminpage

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/inbound"
)

// refusal returns what a page about an error begins with.
func (v *visit) refusal(err error) view {
	return view{Status: httpapi.Status(err), Alerts: v.problems(err)}
}

// problems returns what an error says to the caller, a sentence for each fault. It logs the rest.
func (v *visit) problems(err error) (lines []string) {
	v.report(httpapi.Status(err), err)
	all, more := head(svc.Errors(err), maxShown)
	for _, e := range all {
		line, field := e.Message, formFields[strings.TrimPrefix(e.Field, "/")]
		switch {
		case e.Code == svc.CodeExists: // a whole sentence
			line = sentence(line)
		case field.label != "":
			line = field.label + " " + line
		case e.Field != "": // a pointer can be as long as the form
			line = shorten(e.Field, maxField) + " " + line
		default:
			line = sentence(line)
		}
		line = cut(v.h.mask(line)) + "."
		input := field.of(e.Field)
		if e.Code == svc.CodeNotFound {
			input = cmp.Or(input, v.names)
		}
		v.blame(input, line)
		lines = append(lines, line)
	}
	switch {
	case lines == nil:
		return []string{v.somethingFailed()}
	case more > 0:
		lines = append(lines, fmt.Sprintf("%d more faults are not shown.", more))
	}
	return lines
}

// somethingFailed is all that a caller learns of a fault of the server.
func (v *visit) somethingFailed() string {
	return "Something failed. Request id " + cut(v.requestID()) + " is in the server's log."
}

// requestID returns the id of the request in the log: the host's, else the client's, else a new
// one. The answer has it as well.
func (v *visit) requestID() string {
	id, _ := inbound.Identify(v.w, v.r, v.h.mask)
	return id
}

// field is a field of a form: its label, and the name of its input.
type field struct{ label, input string }

// formFields are the fields of forms, by the names that errors have for them, with a slash in front
// or not.
var formFields = map[string]field{
	"action":            {"Action", "action"},
	"alias":             {"Name", "name"},
	"alias_id":          {"Install as", "alias_id"},
	"auth_token":        {"Token", "token"},
	"bank":              {"Bank", "bank"},
	"channel":           {"Channel", "channel"},
	"description":       {"Description", "description"},
	"expires_at":        {"Expires", "expires"},
	"priority":          {"Priority", "priority"},
	"rate/burst":        {"Burst", "burst"},
	"rate/per_second":   {"Requests a second", "per_second"},
	"sa_id":             {"Who", "who"},
	"scoping_policy_id": {"Policy", "policy"},
	"sender":            {"Who", "who"},
	"since":             {"Since", "since"},
	"topic":             {"Topic", "topic"},
	"until":             {"Until", "until"},
	"url":               {"URL", "url"},
	"user_id":           {"Who", "who"},
}

// of returns the name of the input that an error is about. Pointers lead into a text of JSON, of
// which a page has one at most.
func (f field) of(name string) string {
	if f.input == "" && strings.HasPrefix(name, "/") || name == "document" {
		return "json"
	}
	return f.input
}

// blame links an alert to the input that it is about. The first alert of an input counts.
func (v *visit) blame(input, line string) {
	if v.wrongInputs == nil {
		v.wrongInputs = map[string]string{}
	}
	if _, known := v.wrongInputs[input]; !known && input != "" {
		v.wrongInputs[input] = line
	}
}

// Wrong returns the attributes of an input that an alert is about, else none.
func (v view) Wrong(input string) template.HTMLAttr {
	if !slices.Contains(v.Alerts, v.wrongInputs[input]) {
		return ""
	}
	return template.HTMLAttr(` aria-invalid="true" aria-describedby="wrong-` + input + `"`)
}

// About returns the attribute of an alert by which an input refers to it, if one does.
func (v view) About(alert string) template.HTMLAttr {
	for input, line := range v.wrongInputs {
		if line == alert {
			return template.HTMLAttr(` id="wrong-` + input + `"`)
		}
	}
	return ""
}

// sentence begins a message with a large letter, unless its first word is a name in small ones.
func sentence(message string) string {
	first, size := utf8.DecodeRuneInString(message)
	if word, _, _ := strings.Cut(message, " "); strings.ContainsAny(word, "_:/\"") {
		return message
	}
	return string(unicode.ToUpper(first)) + message[size:]
}

// maxField is the longest name of a field in a sentence, in columns.
const maxField = 200
