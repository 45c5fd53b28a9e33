package svc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/limits"
)

// NewTemplate is the request to add a template by hand. [Templates.Create] copies it.
type NewTemplate struct {
	// ID names the template in its area: 1 to [limits.IDLength] characters, no slash, backslash,
	// control or format characters, not "." or "..", and no API key. It never changes.
	ID      string
	Content // Name and Manifest are required; nil lists count as empty
}

// Template is an installed template. Callers of [Templates.Read] and [Templates.List] share it and
// must not change it ([Memory].Templates). From other methods it belongs to the caller.
type Template struct {
	TemplateKey
	Content
	// Version counts contents: 1 for a new template, one more with each content that differs to the
	// letter.
	Version     int64
	Origin      *Origin   // where the template came from; nil: it was made by hand
	InstalledAt time.Time // when it was created or installed, UTC to the microsecond; never changes
	// UpdatedAt, at first InstalledAt, grows with each change but a re-bind, even when the clock
	// goes back.
	UpdatedAt time.Time
}

// TemplateKey names an installed template. Its three fields together are unique. Owner is ""
// exactly when Scope is ScopeServer.
type TemplateKey struct {
	Scope Scope
	Owner string
	ID    string
}

// Compare orders by scope, owner and id, byte by byte, as package cmp does.
func (k TemplateKey) Compare(other TemplateKey) int {
	return cmp.Or(
		cmp.Compare(k.Scope, other.Scope),
		cmp.Compare(k.Owner, other.Owner),
		cmp.Compare(k.ID, other.ID),
	)
}

// template returns the key of a template of the area. All methods of [Templates] use these keys
// only: they never look in another area.
func (a place) template(id string) TemplateKey { return TemplateKey{a.scope, a.owner, id} }

// Origin records where a template was installed from. It stays when the source is removed. Another
// source may have its name later, so an update also compares URL.
type Origin struct {
	Source   SourceKey
	ID       string  // the template's id within the source
	URL      string  // the source's URL at the last install, update or re-bind; "": not known
	Revision string  // Base.Revision(); an update is due when the source has another one
	Edited   bool    // the content differs from Base; false in an [Installation]
	Base     Content // what the source gave at the last install or update; zero in lists
}

// Content holds the descriptive fields and the manifest of a template. A revision covers exactly
// these fields, a patch changes them, and an update replaces them. The limits hold for callers and
// for sources alike.
type Content struct {
	Name        string  // not empty; at most limits.NameLength characters, and as many bytes
	Description *string // nil: none, which is not ""; at most limits.DescriptionLength characters
	Category    *string // nil: none; at most limits.LabelLength characters
	// Integrations and Tags have at most [limits.Labels] texts each, of at most
	// [limits.LabelLength] characters. Their order and their repeats are kept, and count in a
	// comparison.
	Integrations []string
	Tags         []string
	// Manifest is a JSON object with a "version", a string that is not empty, of at most
	// [limits.Manifest] bytes and [limits.Nesting] levels. It is kept digit for digit and key by
	// key, without insignificant white space.
	Manifest json.RawMessage
}

// TemplateVersion is a former state of a template: what [Templates.Rollback] brings back, without
// Origin and base.
type TemplateVersion struct {
	Number int64 // the Version that the template had with this content
	Content
	SourceRevision string    // the revision installed at that time; "": made by hand
	UpdatedAt      time.Time // [Template].UpdatedAt when another content replaced it
}

// TemplateQuery asks for a part of a list of templates. The zero query asks for the whole list. For
// pages, repeat the query after the last template of the page: templates that come and go in the
// meantime move no other template to another page.
type TemplateQuery struct {
	// A template must match both texts, byte by byte. "" matches all templates.
	Category string // the template's category
	Tag      string // one of the template's tags

	// The list starts after the template with that name and id, which need not exist any longer. ""
	// and "": from the start.
	AfterName, AfterID string
	Skip               int // the number of matching templates to leave out first, not negative
	Limit              int // the most templates to list, not negative; 0: all
}

// TemplatePage asks for one chunk of a list of templates.
type TemplatePage struct {
	Scope         Scope
	Owner         string
	TemplateQuery // its Limit is > 0, its Skip at most 1<<30
}

// filter refuses texts that a store cannot compare. A text that is longer than a label can be is no
// error: it finds nothing.
func (c *checker) filter(category, tag string) {
	c.text("category", category, limits.NameLength)
	c.text("tag", tag, limits.NameLength)
}

func (c *checker) labels(field string, labels []string) {
	if len(labels) > limits.Labels {
		c.add(field, fmt.Sprintf("must have at most %d elements", limits.Labels))
		return
	}
	for i, label := range labels {
		c.text(field+"/"+strconv.Itoa(i), label, limits.LabelLength)
	}
}

// TemplatePatch is a partial update: nil leaves a field untouched. Lists and the manifest are
// replaced whole, never merged. The limits are those of [Content].
type TemplatePatch struct {
	Name         *string
	Description  *TextPatch
	Category     *TextPatch
	Integrations *[]string
	Tags         *[]string
	Manifest     json.RawMessage // nil leaves it; JSON null is CodeInvalid
}

// check validates the form of the fields that a patch touches, and compacts its manifest. It needs
// no rights and does not run the host's check, so it comes before the authorization.
func (p *TemplatePatch) check(id string) error {
	var c checker
	c.lookup("template_id", id)
	if p.Name != nil && *p.Name == "" {
		c.add("/name", "must not be empty")
	}
	p.apply(Content{}).checkTexts(&c)
	if p.Manifest != nil {
		p.Manifest = c.manifest(p.Manifest)
	}
	return c.err()
}

// apply returns content with the patch applied. The store may call it again, so it changes neither
// content nor the patch, and the result shares no list with them.
func (p TemplatePatch) apply(content Content) Content {
	if p.Name != nil {
		content.Name = *p.Name
	}
	if p.Description != nil {
		content.Description = p.Description.Value
	}
	if p.Category != nil {
		content.Category = p.Category.Value
	}
	if p.Integrations != nil {
		content.Integrations = *p.Integrations
	}
	if p.Tags != nil {
		content.Tags = *p.Tags
	}
	if p.Manifest != nil {
		content.Manifest = p.Manifest
	}
	return content.clone()
}

// put sets a template's content. A content that differs to the letter makes a new version, also
// when its revision is the same: a manifest keeps its spelling. The caller stamps the template with
// touch.
func (t *Template) put(content Content) (changed bool) {
	if changed = !t.Content.same(content); changed {
		t.Version++
		t.Content = content
	}
	return changed
}

// edited reports whether a template is edited locally: its content differs from the content that
// its source gave. A template made by hand is never edited locally. It needs Origin.Base, so it is
// wrong for a template of a list.
func (t *Template) edited() bool {
	return t.Origin != nil && len(differences(t.Content, t.Origin.Base)) > 0
}

// touch stamps a changed template. UpdatedAt always grows, even when the clock goes back: otherwise
// two states could have one ETag, and a conditional write could overwrite a change.
func (t *Template) touch(now time.Time) { t.UpdatedAt = later(t.UpdatedAt, now) }

// originate sets a template's origin. base, the content that came from there, becomes its base.
func (t *Template) originate(origin Origin, base Content) {
	origin.Base = base.clone()
	t.Origin = &origin
}

// noTemplate does not repeat the requested id: it may be an API key pasted into the wrong place.
func noTemplate() *Error { return notFound("there is no such template") }

// ETag returns the template's entity tag (RFC 9110, section 8.8.3), quotes included. It is a strong
// tag, and the same in every process. It changes with each write to the template but a re-bind. A
// template that is deleted and created again in another microsecond has another tag.
func (t Template) ETag() string {
	var room [32]byte
	b := strconv.AppendInt(append(room[:0], '"'), t.InstalledAt.UnixMicro(), 36)
	b = strconv.AppendInt(append(b, '-'), t.UpdatedAt.UnixMicro(), 36)
	return string(append(b, '"'))
}

// matches refuses a template that has none of the ETags in ifMatch. Without ETags it accepts every
// template. Call it in the store's transaction, on the template that the write is about to replace.
func (t Template) matches(ifMatch []string) error {
	return unlessMatches("template", t.ETag(), ifMatch)
}

// Revision returns "sha256:" and the hex SHA-256 of the content's canonical form (RFC 8785), where
// numbers that a double cannot hold exactly stay as written. Contents with equal revisions are
// equal, whatever the key order and white space of their manifests. Nil lists count as empty ones,
// and a nil text differs from "". A manifest that is not valid JSON is an error. Each call computes
// the digest.
func (c Content) Revision() (string, error) {
	canonical, err := c.canonical()
	if err != nil {
		return "", err
	}
	return jcs.Digest(canonical), nil
}

// canonical returns the RFC 8785 form of an object with exactly these six keys. The code writes
// them in sorted order, as RFC 8785 asks. Another key or order would change every stored revision.
func (c Content) canonical() ([]byte, error) {
	b := appendOptional([]byte(`{"category":`), c.Category)
	b = appendOptional(append(b, `,"description":`...), c.Description)
	b = jcs.AppendStrings(append(b, `,"integrations":`...), c.Integrations)
	b, err := jcs.Append(append(b, `,"manifest":`...), c.Manifest)
	if err != nil {
		return nil, err
	}
	b = jcs.AppendString(append(b, `,"name":`...), c.Name)
	b = jcs.AppendStrings(append(b, `,"tags":`...), c.Tags)
	return append(b, '}'), nil
}

func appendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return jcs.AppendString(b, *s)
}

// differences names the fields in which two contents differ, in the order of [Content]. Manifests
// differ when their canonical forms differ, so it agrees with Revision.
func differences(a, b Content) []string {
	var fields []string
	add := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	add("name", a.Name == b.Name)
	add("description", equalText(a.Description, b.Description))
	add("category", equalText(a.Category, b.Category))
	add("integrations", slices.Equal(a.Integrations, b.Integrations))
	add("tags", slices.Equal(a.Tags, b.Tags))
	add("manifest", jcs.Equal(a.Manifest, b.Manifest))
	return fields
}

// same reports whether two contents are the same to the letter. A manifest that only differs in
// spelling or key order has the same revision, but is not the same.
func (c Content) same(other Content) bool {
	return c.Name == other.Name &&
		equalText(c.Description, other.Description) && equalText(c.Category, other.Category) &&
		slices.Equal(c.Integrations, other.Integrations) && slices.Equal(c.Tags, other.Tags) &&
		bytes.Equal(c.Manifest, other.Manifest)
}

// clone returns a copy that shares no lists and no manifest with c. Its lists are not nil: answers
// show an empty list, never null. It shares the texts, which the Service only replaces.
func (c Content) clone() Content {
	c.Integrations = append([]string{}, c.Integrations...)
	c.Tags = append([]string{}, c.Tags...)
	c.Manifest = bytes.Clone(c.Manifest)
	return c
}

// size estimates the bytes that the texts of a content take.
func (c Content) size() int64 {
	n := len(c.Name) + len(c.Manifest)
	for _, text := range []*string{c.Description, c.Category} {
		if text != nil {
			n += 16 + len(*text)
		}
	}
	for _, list := range [][]string{c.Integrations, c.Tags} {
		for _, text := range list {
			n += 16 + len(text)
		}
	}
	return int64(n)
}

// contentChecker checks the contents of templates. Callers and sources meet the same checks: a
// source can bring in nothing that a caller could not create. The Service and its copies share it.
type contentChecker struct {
	validateManifest func(manifest json.RawMessage) error // the host's check; nil: none
}

// checkContent returns the faults of a whole content, each at a JSON pointer into it, and compacts
// its manifest.
func (s *contentChecker) checkContent(content *Content) error {
	var c checker
	content.checkForm(&c)
	s.validate(&c, content.Manifest)
	return c.err()
}

// checkForm is checkContent without the host's own check.
func (c *Content) checkForm(check *checker) {
	c.checkHead(check)
	c.Manifest = check.manifest(c.Manifest)
}

// checkHead reports the faults of a whole content, without its manifest.
func (c Content) checkHead(check *checker) {
	if c.Name == "" {
		check.add("/name", "is required")
	}
	c.checkTexts(check)
}

// checkTexts reports the faults of the fields other than the manifest. An empty name passes: a
// patch leaves the name empty when it does not change it.
func (c Content) checkTexts(check *checker) {
	if check.text("/name", c.Name, limits.NameLength); len(c.Name) > limits.NameLength && check.ok() {
		// Some databases limit the size of an index row.
		check.add("/name", fmt.Sprintf("must be at most %d bytes", limits.NameLength))
	}
	check.optionalText("/description", c.Description, limits.DescriptionLength)
	check.optionalText("/category", c.Category, limits.LabelLength)
	check.labels("/integrations", c.Integrations)
	check.labels("/tags", c.Tags)
}

// manifest returns a manifest without insignificant white space. It reports a bad form and returns
// nil. The length comes first: it bounds the work of parsing. The result shares no memory with the
// input.
func (c *checker) manifest(manifest json.RawMessage) json.RawMessage {
	if len(manifest) == 0 {
		c.add("/manifest", "is required")
		return nil
	}
	if len(manifest) > limits.Manifest {
		c.add("/manifest", fmt.Sprintf("must be at most %d bytes", limits.Manifest))
		return nil
	}
	compact, err := strictjson.Compact(manifest, limits.Nesting)
	if at, ok := errors.AsType[*strictjson.Error](err); ok {
		c.add("/manifest"+at.Pointer, at.Detail)
		return nil
	}
	if problem := checkVersion(compact); problem != nil {
		c.check(problem)
		return nil
	}
	return compact
}

// validate runs the host's own check on a manifest with a good form. It skips a nil manifest. Call
// it only for an authorized caller: the host's code may be slow, and its errors may show what it
// knows.
func (s *contentChecker) validate(c *checker, manifest json.RawMessage) {
	if validate := s.validateManifest; validate != nil && manifest != nil {
		c.host(validate(manifest))
	}
}

// host adds the errors of the host's validator. They may be joined, and each may carry a JSON
// pointer into the manifest. It stops when the checker is full: the host may join any number.
func (c *checker) host(err error) {
	for one := range parts(err) {
		e, is := one.(*Error)
		if !is {
			e = Invalid("", one.Error())
		}
		field := e.Field
		if field != "" && field[0] != '/' { // the name of a field
			field = "/" + strictjson.Token(field)
		}
		c.add("/manifest"+text.Clean(field), text.Clean(e.Message))
		if c.full {
			return
		}
	}
}

// checkVersion refuses a manifest that is not an object with a version.
func checkVersion(manifest json.RawMessage) *Error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(manifest, &fields); err != nil || fields == nil {
		return Invalid("/manifest", "must be a JSON object")
	}
	var version *string
	if raw, there := fields["version"]; !there {
		return Invalid("/manifest/version", "is required")
	} else if json.Unmarshal(raw, &version) != nil || version == nil {
		return Invalid("/manifest/version", "must be a string")
	} else if *version == "" {
		return Invalid("/manifest/version", "must not be empty")
	}
	return nil
}

// LocalEdits chooses what [Templates.Update] does with local edits of a template.
type LocalEdits string

// The rules. While the source has not changed, each of them keeps the edits.
const (
	EditsConflict LocalEdits = "conflict" // refuses the update with CodeEdited; the default
	// EditsOverwrite replaces local edits with the source's content. The edited content becomes a
	// version.
	EditsOverwrite LocalEdits = "overwrite"
	// EditsMerge keeps values that only the local edits changed, and takes values that only the
	// source changed: texts and lists whole, the objects of a manifest key by key. When both have
	// changed the same value differently, Update returns CodeEdited.
	EditsMerge LocalEdits = "merge"
)

// The decisions of a person who has seen [Templates.Diff]: only an [UpdateRequest] has them. Each
// makes the source's content the base of the template: a check finds no update, and a template that
// differs from it counts as edited locally. The replaced content becomes a version. When nothing
// would change, only TakeTheirs writes.
const (
	TakeTheirs LocalEdits = "theirs" // takes the source's content
	KeepOurs   LocalEdits = "ours"   // keeps the template's content
	TakeMerged LocalEdits = "merged" // takes [UpdateRequest].Content
)

// rules reports whether e is one of the rules. "" is not: it stands for a default.
func (e LocalEdits) rules() bool {
	return e == EditsConflict || e == EditsOverwrite || e == EditsMerge
}

// decides reports whether e is one of the decisions.
func (e LocalEdits) decides() bool {
	return e == TakeTheirs || e == KeepOurs || e == TakeMerged
}

// Target returns the template as the target of events and change feeds.
func (k TemplateKey) Target() Target {
	return Target{Kind: event.TargetTemplate, ID: k.ID, Scope: k.Scope, Owner: k.Owner}
}
