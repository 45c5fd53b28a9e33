package linearizability_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// content is a svc.Content as JSON texts, in the order of fields. It is comparable.
type content [6]string

var fields = [6]string{"name", "description", "category", "integrations", "tags", "manifest"}

func contentOf(c svc.Content) content {
	var texts content
	for i, value := range []any{c.Name, c.Description, c.Category, c.Integrations, c.Tags, c.Manifest} {
		texts[i] = string(must(json.Marshal(value)))
	}
	return texts
}

// differences returns the names of the fields that differ.
func (c content) differences(other content) string {
	var names []string
	for i, name := range fields {
		if c[i] != other[i] {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// row is a template, or its absence. It is comparable.
type row struct {
	there bool
	content
	entry              string // of the source; "": made by hand
	base               content
	revision           string // of base
	installed, updated int64  // times; unknown after a call with an unknown outcome
}

const unknown = -1

func rowOf(t svc.Template) row {
	r := row{there: true, content: contentOf(t.Content), installed: t.InstalledAt.UnixMicro(), updated: t.UpdatedAt.UnixMicro()}
	if t.Origin != nil {
		r.entry, r.base, r.revision = t.Origin.ID, contentOf(t.Origin.Base), t.Origin.Revision
	}
	return r
}

func (r row) String() string {
	switch {
	case !r.there:
		return "none"
	case r.entry == "":
		return fmt.Sprintf("%s, made by hand at %d, last at %d", strings.Join(r.content[:], " "), r.installed, r.updated)
	}
	return fmt.Sprintf("%s, installed from %q at %d, last at %d, base %s",
		strings.Join(r.content[:], " "), r.entry, r.installed, r.updated, strings.Join(r.base[:], " "))
}

// become returns the row that an installation or update writes.
func (r row) become(entry string, version int) row {
	published := published(entry, version)
	r.there, r.entry, r.content, r.base, r.revision = true, entry, contentOf(published), contentOf(published), must(published.Revision())
	return r
}

// edit is a patch of one field.
type edit struct {
	field int
	value string // JSON
}

func (e edit) patch() svc.TemplatePatch {
	switch e.field {
	case 0:
		return svc.TemplatePatch{Name: decode[*string](e.value)}
	case 1:
		return svc.TemplatePatch{Description: &svc.TextPatch{Value: decode[*string](e.value)}}
	case 2:
		return svc.TemplatePatch{Category: &svc.TextPatch{Value: decode[*string](e.value)}}
	case 3:
		return svc.TemplatePatch{Integrations: decode[*[]string](e.value)}
	case 4:
		return svc.TemplatePatch{Tags: decode[*[]string](e.value)}
	}
	return svc.TemplatePatch{Manifest: json.RawMessage(e.value)}
}

func decode[T any](text string) (value T) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic(err)
	}
	return value
}

type templateCall struct {
	id      string
	do      string // create, read, patch, install, update or delete
	edit    edit   // of a patch, or the name of a new template
	entry   string // to install
	version int    // the source's version at the time of the request
	fetched string // the entry requested from the source; "": none
	force   bool
}

func (c templateCall) subject() string { return c.id }
func (c templateCall) kind() string    { return c.do }
func (c templateCall) reads() bool     { return c.do == "read" }

func (c templateCall) String() string {
	switch c.do {
	case "create":
		return "create " + c.edit.value
	case "patch":
		return "patch " + fields[c.edit.field] + " " + c.edit.value
	case "install":
		return fmt.Sprintf("install %s, version %d", c.entry, c.version)
	case "update":
		return fmt.Sprintf("update (force %t), the source was asked for %q, version %d", c.force, c.fetched, c.version)
	}
	return c.do
}

// templateAnswer is the result of a call. It is comparable.
type templateAnswer struct {
	code    svc.Code
	fields  string // that conflict with an update
	row     row
	updated bool
	// The revisions before and after an update.
	before, after string
}

func (a templateAnswer) unknown() bool { return a.code == svc.CodeUnavailable }

func (a templateAnswer) kind() string { return cmp.Or(string(a.code), "ok") }

func (a templateAnswer) String() string {
	if a.code != "" {
		return strings.TrimSpace(a.kind() + " " + a.fields)
	}
	return fmt.Sprintf("ok %v (updated: %t)", a.row, a.updated)
}

// step returns the possible rows after a call with this answer, or none.
func (r row) step(call templateCall, have templateAnswer) []row {
	if have.unknown() {
		after, _ := r.after(call, unknown)
		return []row{r, after}
	}
	if r.there && have.row.there && r.installed == unknown {
		r.installed = have.row.installed
	}
	if r.there && have.row.there && r.updated == unknown {
		r.updated = have.row.updated
	}
	after, want := r.after(call, have.row.updated)
	if have != want {
		return nil
	}
	return []row{after}
}

// after holds the rules: the new row and the answer of a call at a time.
func (r row) after(call templateCall, at int64) (row, templateAnswer) {
	switch {
	case r.there && (call.do == "create" || call.do == "install"):
		return r, templateAnswer{code: svc.CodeExists}
	case call.do == "create":
		made := row{there: true, content: contentOf(handMade(call.edit)), installed: at, updated: at}
		return made, templateAnswer{row: made}
	case call.do == "install":
		made := row{installed: at, updated: at}.become(call.entry, call.version)
		return made, templateAnswer{row: made}
	case !r.there:
		return r, templateAnswer{code: svc.CodeNotFound}
	case call.do == "delete":
		return row{}, templateAnswer{}
	case call.do == "update":
		return r.update(call, at)
	case call.do == "patch" && r.content[call.edit.field] != call.edit.value:
		r.content[call.edit.field], r.updated = call.edit.value, at
	}
	return r, templateAnswer{row: r}
}

// update is the table of docs/reference/templates.md.
func (r row) update(call templateCall, at int64) (row, templateAnswer) {
	switch {
	case r.entry == "" && call.fetched == "":
		return r, templateAnswer{code: svc.CodeInvalid}
	case r.entry != call.fetched: // replaced by hand or by an installation while the source was asked
		return r, templateAnswer{code: svc.CodeChanged}
	}
	latest := r.become(r.entry, call.version)
	edits := r.content.differences(r.base)
	switch {
	case !call.force && latest.base == r.base:
		return r, templateAnswer{row: r, before: r.revision, after: r.revision}
	case !call.force && edits != "" && r.content != latest.content:
		return r, templateAnswer{code: svc.CodeEdited, fields: edits}
	}
	latest.updated = at
	return latest, templateAnswer{row: latest, updated: true, before: r.revision, after: latest.revision}
}

// shelf is the marketplace. The caller decides what it has, so the shelf is not part of the checked state.
type shelf struct{ svc.Marketplace }

// entries can be installed.
var entries = []string{"chat", "notes"}

func published(entry string, version int) svc.Content {
	return svc.Content{
		Name: entry, Description: new(fmt.Sprint("version ", version)), Integrations: []string{}, Tags: []string{entry},
		Manifest: json.RawMessage(fmt.Sprintf(`{"version":"%d"}`, version)),
	}
}

// handMade is a template that a client creates, with an edited name.
func handMade(e edit) svc.Content {
	return svc.Content{Name: strings.Trim(e.value, `"`), Integrations: []string{}, Tags: []string{"mine"}, Manifest: json.RawMessage(`{"version":"1"}`)}
}

type askingKey struct{}

// asking gives the shelf the version in call, and notes in call which entry was requested.
func asking(ctx context.Context, call *templateCall) context.Context {
	return context.WithValue(ctx, askingKey{}, call)
}

func (shelf) CheckURL(string) error { return nil }

func (shelf) Template(ctx context.Context, _ svc.Upstream, id string) (svc.Content, error) {
	call := ctx.Value(askingKey{}).(*templateCall)
	call.fetched = id
	time.Sleep(rand.N(time.Millisecond)) // a request takes its time
	return published(id, call.version), nil
}

func fieldsOf(err error) string {
	if e, ok := errors.AsType[*svc.Error](err); ok {
		return strings.Join(e.Fields, " ")
	}
	return ""
}

func failure[T any](_ T, err error) error { return err }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
