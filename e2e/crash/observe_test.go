//go:build linux

package crash

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// observation is the content of a database: the state of each object, read row by row from the tables.
type observation struct {
	db     *sql.DB
	states map[string]string
	outbox map[string]bool // objects whose events are in the outbox
}

// observe reads all tables. A state starts with [torn] when related rows do not agree.
func observe(ctx context.Context, db *sql.DB) observation {
	o := observation{db: db, states: map[string]string{}, outbox: map[string]bool{}}
	o.readSources(ctx)
	o.readKeys(ctx)
	o.readTemplates(ctx)
	o.readBundles(ctx)
	o.readPeople(ctx)
	return o
}

const null = "NULL"

// rows returns the rows of a query, as text.
func (o observation) rows(ctx context.Context, query string) (all [][]string) {
	rows := got(o.db.QueryContext(ctx, query))
	defer rows.Close()
	for names := got(rows.Columns()); rows.Next(); {
		values, targets := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			targets[i] = &values[i]
		}
		got(0, rows.Scan(targets...))
		texts := make([]string, len(values))
		for i, value := range values {
			if texts[i] = value.String; !value.Valid {
				texts[i] = null
			}
		}
		all = append(all, texts)
	}
	return got(all, rows.Err())
}

func (o observation) readSources(ctx context.Context) {
	for _, row := range o.rows(ctx, `SELECT name, url FROM svc_sources WHERE scope = 'server'`) {
		o.states[row[0]] = "registered"
		if row[1] != "https://example.com/templates" {
			o.states[row[0]] = torn + row[1]
		}
	}
}

// readKeys reads keys, with the host's rows and outbox events of some of them.
func (o observation) readKeys(ctx context.Context) {
	hosted := map[string]bool{}
	for _, row := range o.rows(ctx, `SELECT id FROM host_rows`) {
		hosted[row[0]] = true
		o.states[row[0]] = torn + "the host's row has no key"
	}
	const keys = `SELECT holder_id, description, revoked_at FROM svc_api_keys WHERE holder_id NOT LIKE 'p-%'`
	for _, row := range o.rows(ctx, keys) {
		id := row[0]
		_, twice := o.states[id]
		switch {
		case hosted[id]:
			o.states[id] = stateHosted
		case strings.HasPrefix(id, "h-"):
			o.states[id] = torn + "the key has no row of the host"
		case twice:
			o.states[id] = torn + "two keys"
		case row[1] != id:
			o.states[id] = torn + "another description"
		case row[2] != null:
			o.states[id] = stateRevoked
		default:
			o.states[id] = stateGood
		}
	}
	for _, row := range o.rows(ctx, `SELECT target_holder_id FROM svc_outbox`) {
		o.outbox[row[0]] = true
		if _, there := o.states[row[0]]; !there {
			o.states[row[0]] = torn + "an event without its key"
		}
	}
}

// readTemplates compares each template, its tags and its base with the content of their versions.
func (o observation) readTemplates(ctx context.Context) {
	tags, bases := map[string][]string{}, map[string][]string{}
	for _, row := range o.rows(ctx, `SELECT id, name, tag FROM svc_template_tags WHERE scope = 'server'`) {
		tags[row[0]] = append(tags[row[0]], row[1]+"|"+row[2])
	}
	const columns = `SELECT id, name, description, category, integrations, tags, manifest`
	for _, row := range o.rows(ctx, columns+` FROM svc_template_bases WHERE scope = 'server'`) {
		bases[row[0]] = row[1:]
	}
	for _, row := range o.rows(ctx, columns+`, source_id, source_revision FROM svc_templates WHERE scope = 'server'`) {
		id := row[0]
		o.states[id] = templateRows{id, row[1:7], row[7:], tags[id], bases[id]}.state()
		delete(tags, id)
		delete(bases, id)
	}
	for id := range tags {
		o.states[id] = torn + "tags without a template"
	}
	for id := range bases {
		o.states[id] = torn + "a base without a template"
	}
}

type templateRows struct {
	id     string
	row    []string // name, description, category, integrations, tags, manifest
	origin []string // source id, revision
	tags   []string
	base   []string // like row; nil: none
}

func (t templateRows) state() string {
	state := templateState{texts: number(t.row[0]), manifest: manifestVersion(t.row[5])}
	want := content(t.id, state.texts, state.manifest)
	if !slices.Equal(t.row, contentRow(want)) {
		return torn + fmt.Sprintf("a row that is of no version: %.200q", t.row)
	}
	wantTags := []string{}
	for _, tag := range want.Tags {
		wantTags = append(wantTags, want.Name+"|"+tag)
	}
	slices.Sort(t.tags)
	if slices.Sort(wantTags); !slices.Equal(t.tags, wantTags) {
		return torn + fmt.Sprintf("the tags %q of %q", t.tags, want.Name)
	}
	if t.base == nil && t.origin[0] == null && t.origin[1] == null {
		return state.String()
	}
	if t.base == nil {
		return torn + "an origin without a base"
	}
	state.base = number(t.base[0])
	base := content(t.id, state.base, state.base)
	revision, err := base.Revision()
	if err != nil || t.origin[0] != t.id || t.origin[1] != revision || !slices.Equal(t.base, contentRow(base)) {
		return torn + fmt.Sprintf("the base and the origin do not agree: %.200q", t.base)
	}
	return state.String()
}

func contentRow(c svc.Content) []string {
	return []string{c.Name, *c.Description, *c.Category, encode(c.Integrations), encode(c.Tags), string(c.Manifest)}
}

func encode(v any) string { return string(got(json.Marshal(v))) }

func manifestVersion(manifest string) int {
	var fields struct{ Version string }
	if json.Unmarshal([]byte(manifest), &fields) != nil {
		return 0
	}
	return number(fields.Version)
}

// bundleQueries read the rows that a bundle writes, by the bundle's id.
var bundleQueries = map[string]string{
	"user":            `SELECT id, display_name FROM svc_users`,
	"channel":         `SELECT user_id, provider, sender_id FROM svc_channels`,
	"group":           `SELECT id, display_name FROM svc_access_groups`,
	"member":          `SELECT group_id, user_id FROM svc_group_members`,
	"service account": `SELECT id, display_name, owner_user_id, scoping_policy_id FROM svc_service_accounts`,
	"policy":          `SELECT id, display_name, document FROM svc_policies`,
	"attachment":      `SELECT policy_id, principal_type, principal_id, priority FROM svc_attachments`,
	"bank policy":     `SELECT bank_id, document FROM svc_bank_policies`,
}

// bundleRows returns what bundleQueries find of a bundle.
func bundleRows(id string, version int) map[string]string {
	b, text := bundle(id, version), versioned(version)
	return map[string]string{
		"user": text, "channel": "chat|" + id + " " + text, "group": text, "member": id,
		"service account": text + "|" + id + "|" + id, "policy": text + "|" + string(b.Policies[0].Document),
		"attachment": fmt.Sprintf("user|%s|%d", id, version), "bank policy": string(b.BankPolicies[0].Document),
	}
}

func (o observation) readBundles(ctx context.Context) {
	found := map[string]map[string]string{}
	for part, query := range bundleQueries {
		for _, row := range o.rows(ctx, query) {
			if id := row[0]; !isPerson(id) {
				if found[id] == nil {
					found[id] = map[string]string{}
				}
				found[id][part] += strings.Join(row[1:], "|")
			}
		}
	}
	for id, parts := range found {
		version := number(parts["user"])
		o.states[id] = versioned(version)
		if !maps.Equal(parts, bundleRows(id, version)) {
			o.states[id] = torn + fmt.Sprintf("%.500q", parts)
		}
	}
}

// absent is the state of an object that does not exist.
const absent = "absent"

// torn begins the state of an object with only some of its rows.
const torn = "torn:"

// templateState holds the versions of a template's parts. The texts (name, description, tags …)
// always have one version.
type templateState struct{ texts, manifest, base int } // base 0: made by hand

func (s templateState) String() string {
	return fmt.Sprintf("texts=%d,manifest=%d,base=%d", s.texts, s.manifest, s.base)
}

// content returns a template's content with these versions of texts and manifest.
func content(id string, texts, manifest int) svc.Content {
	text := fmt.Sprintf("%s v%d", id, texts)
	return svc.Content{
		Name: text, Description: &text, Category: &text,
		Integrations: []string{text},
		Tags:         []string{"all", text, fmt.Sprintf("odd %d", texts%2)},
		Manifest:     json.RawMessage(fmt.Sprintf(`{"version":"%d","fill":%q}`, manifest, fill(id, manifest))),
	}
}

// fill returns a text that makes some manifests long: rows of many pages tear more easily.
func fill(id string, version int) string {
	size := 50
	if (len(id)+version)%4 == 0 {
		size = 24_000
	}
	return strings.Repeat(fmt.Sprintf("%s/%d ", id, version), size/10)
}

// bundle returns rows of every kind, all of one version.
func bundle(id string, version int) svc.Bundle {
	text := versioned(version)
	return svc.Bundle{
		Users:           []svc.User{{ID: id, DisplayName: text, Channels: []svc.Channel{{Provider: "chat", SenderID: id + " " + text}}}},
		Groups:          []svc.Group{{ID: id, DisplayName: text, Members: []string{id}}},
		ServiceAccounts: []svc.ServiceAccount{{ID: id, DisplayName: text, OwnerUserID: id, ScopingPolicyID: id}},
		Policies: []svc.Policy{{ID: id, DisplayName: text, Document: json.RawMessage(`{"version":"2026-03-24","statements":[` +
			`{"effect":"allow","actions":["bank:recall"],"banks":["` + text + `"]}]}`)}},
		Attachments: []svc.Attachment{{PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}, Priority: int64(version)}},
		BankPolicies: []svc.BankPolicy{{BankID: id, Document: json.RawMessage(
			`{"version":"2026-03-24","default_strategy":"` + text + `"}`)}},
	}
}

func versioned(version int) string { return fmt.Sprintf("v%d", version) }

// object returns the name of a target's object. Ids are unique over all kinds; a key goes by its
// holder; all rows of a bundle share an id.
func object(t svc.Target) string {
	if t.Kind == event.TargetAPIKey {
		return t.Holder.ID
	}
	if t.Kind == event.TargetChannel {
		id, _, _ := strings.Cut(strings.TrimPrefix(t.ID, "chat:"), " ")
		return id
	}
	id, _, _ := strings.Cut(t.ID, "/")
	return id
}
