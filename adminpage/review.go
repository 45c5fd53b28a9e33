package adminpage

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/strictjson"
)

// reviewView is what the page of one template shows.
type reviewView struct {
	Template               svc.Template
	Heading, Summary, Tone string // Tone: yes, no or new
	Revision               string // of the source, as reviewed; "": there is nothing to update to
	CanUpdate, CanDiscard  bool
	Conflicts              bool // an update must settle them
	CanSettle              bool // all of them are shown
	Changes                []changedPlace
	More                   int // the changes left out
	History                []svc.TemplateVersion
	Chosen                 url.Values     // of a form that settled conflicts
	Compared               int64          // the version to compare with; 0: none
	Since                  []changedPlace // what has changed since that version
	MoreSince              int            // the places left out
}

// Choice returns what a form chose for a conflict: yours, source or "".
func (b reviewView) Choice(path string) string { return b.Chosen.Get(placeField(path)) }

// Cut reports whether a part of the changes is not shown.
func (b reviewView) Cut() bool {
	return b.More > 0 || slices.ContainsFunc(b.Changes, func(c changedPlace) bool { return c.Cut })
}

// placeField returns the name of the fields that settle the conflict at a path. It is short, also
// where the path is not.
func placeField(path string) string {
	if len(path) > maxText {
		path = digest(path)
	}
	return "place " + path
}

// changedPlace is a place where the installed content, the template and the source differ.
type changedPlace struct {
	Path, By string
	Sides    []side // Base, Yours and Source in a conflict, else one change
	Conflict bool
	Cut      bool // a part of it is not shown
}

// side is one value, as the pieces of its difference from the value before.
type side struct {
	Name   string
	Pieces []piece
	Block  bool // the pieces stand below each other
	More   int  // the pieces left out
}

// piece is a part of a value: kept, taken out (del), put in (ins), or a number of bytes that were kept
// and are not shown (skip).
type piece struct{ Kind, Text string }

// template shows one template, with what an update would change.
func (v *visit) template() error {
	return v.showTemplate(view{Done: v.done()})
}

// showTemplate compares the template with its source, and shows the page.
func (v *visit) showTemplate(page view) error {
	id := v.params["template_id"]
	template, err := v.h.service.Templates.Read(v.r.Context(), v.by, id)
	if err != nil {
		return err
	}
	body := reviewView{Template: template}
	if template.Origin == nil {
		body.Heading, body.Tone = "Made here", "new"
		body.Summary = "Created here; it has no source to update from."
	} else if diff, err := v.h.service.Templates.Diff(v.r.Context(), v.by, id); err != nil {
		body.Heading, body.Tone = "Could not compare with the source", "no"
		body.Summary = strings.Join(v.problems(err), " ")
	} else if v.r.URL.Query().Has("whole") {
		return v.downloadChanges(diff)
	} else if err := body.compare(v.r.Context(), diff); err != nil {
		return err
	}
	for version, err := range v.h.service.Templates.History(v.r.Context(), v.by, id) {
		if err != nil {
			return err
		}
		body.History = append(body.History, version)
	}
	if err := body.compareWith(v.r.URL.Query().Get("compare")); err != nil {
		page.Status, page.Alerts = httpapi.Status(err), append(page.Alerts, v.problems(err)...)
	}
	if page.Status >= http.StatusBadRequest {
		body.Chosen = v.form
	}
	page.Template, page.Title, page.Body = "template", "Templates: "+template.Name, body
	return v.render(page)
}

// downloadChanges answers with all that an update changes, in full.
func (v *visit) downloadChanges(diff svc.TemplateDiff) error {
	text, err := strictjson.Marshal(diff.Changes)
	if err == nil {
		v.download("changes.json", text)
	}
	return err
}

// compareWith shows what has changed since a version of the history.
func (b *reviewView) compareWith(number string) (err error) {
	if number == "" {
		return nil
	}
	for _, version := range b.History {
		if strconv.FormatInt(version.Number, 10) != number {
			continue
		}
		b.Compared = version.Number
		if b.Since, err = differences(version.Content, b.Template.Content); err != nil {
			return err
		}
		size := 0
		for i := range b.Since {
			if size += b.Since[i].bound(); i == maxListed || i > 0 && size > maxReview {
				b.Since, b.MoreSince = head(b.Since, i)
				break
			}
		}
		return nil
	}
	return &svc.Error{Code: svc.CodeNotFound, Message: "the history has no such version"}
}

// compare says how the template stands, and prepares the changes. It stops when ctx ends: the
// values come from a source and may be long.
func (b *reviewView) compare(ctx context.Context, diff svc.TemplateDiff) error {
	counts, size := map[string]int{}, 0
	for _, c := range diff.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		by := changedBy(c)
		counts[by]++
		if len(b.Changes) == maxListed || size > maxReview {
			b.More++
			continue
		}
		place := changedPlace{Path: c.Path, By: by, Conflict: by == byBoth, Sides: sidesOf(c, by)}
		if size += place.bound(); size > maxReview && len(b.Changes) > 0 {
			b.More++
			continue
		}
		b.Changes = append(b.Changes, place)
	}
	conflicting := counts[byBoth] > 0
	update := diff.LatestRevision != diff.CurrentRevision || diff.RenamedTo != ""
	edited := counts[byUs]+counts[byBoth]+counts[byBothAlike] > 0
	switch {
	case conflicting: // with what the source has now
		b.Heading, b.Tone = "Update available, with a conflict", "no"
	case update && edited:
		b.Heading, b.Tone = "Update available, with local edits", "new"
	case update:
		b.Heading, b.Tone = "Update available", "new"
	case edited:
		b.Heading, b.Tone = "Edited here", "new"
	default:
		b.Heading, b.Tone = "Up to date", "yes"
	}
	b.Revision = diff.LatestRevision
	b.CanUpdate, b.CanDiscard = update && !conflicting, edited
	b.Conflicts, b.CanSettle = conflicting, conflicting && b.More == 0
	if b.Summary = summary(counts); diff.RenamedTo != "" {
		b.Summary += " The source now has it as " + diff.RenamedTo + "."
	}
	return nil
}

func summary(counts map[string]int) string {
	var parts []string
	for _, p := range []struct{ by, words string }{
		{byThem, "%d from the source"}, {byUs, "%d edited here"},
		{byBothAlike, "%d the same on both sides"}, {byBoth, "%d in conflict"},
	} {
		if n := counts[p.by]; n > 0 {
			parts = append(parts, fmt.Sprintf(p.words, n))
		}
	}
	if parts == nil {
		return "Identical to the source."
	}
	return strings.Join(parts, ", ") + "."
}

// The sides that have changed a place.
const (
	byThem      = "source"
	byUs        = "here"
	byBothAlike = "same change on both sides"
	byBoth      = "conflict"
)

func changedBy(c svc.ContentChange) string {
	switch {
	case c.Conflict():
		return byBoth
	case string(c.Base) == string(c.Ours):
		return byThem
	case string(c.Base) == string(c.Theirs):
		return byUs
	}
	return byBothAlike
}

func sidesOf(c svc.ContentChange, by string) []side {
	switch by {
	case byBoth:
		return []side{
			{Name: "Base", Pieces: whole("", c.Base)},
			difference("Yours", c.Base, c.Ours), difference("Source", c.Base, c.Theirs),
		}
	case byThem:
		return []side{difference("", c.Base, c.Theirs)}
	}
	return []side{difference("", c.Base, c.Ours)}
}

// Limits on the changes that a page shows: pieces of a side, bytes of a side, and bytes of HTML of
// all, about.
const (
	maxPieces = 100
	maxSide   = 2 * maxText
	maxReview = 64 << 10
)

// bound leaves out the pieces beyond the limits, and returns the bytes of HTML of the place, about.
func (c *changedPlace) bound() (html int) {
	html = 4 * htmlSize(c.Path) // one for the row and three in its form
	c.Cut = len(c.Path) > maxText
	for i := range c.Sides {
		s, size := &c.Sides[i], 0
		for n, p := range s.Pieces {
			if n == maxPieces || size >= maxSide {
				s.Pieces, s.More = head(s.Pieces, n)
				c.Cut = true
				break
			}
			c.Cut = c.Cut || len(p.Text) > maxText
			size += min(len(p.Text), maxText)
			html += len("<ins></ins>") + htmlSize(p.Text)
		}
	}
	return html
}

// changeTemplate updates a template to what was reviewed, or brings a former version back.
func (v *visit) changeTemplate() error {
	if err := v.changes(); err != nil {
		return err
	}
	done, err := v.writeTemplate(v.params["template_id"], v.form)
	switch svc.ErrorCode(err) {
	case "":
		return v.redirect("templates/" + url.PathEscape(v.params["template_id"]) + "?done=" + done)
	case svc.CodeForbidden, svc.CodeUnauthenticated:
		return err
	}
	return v.showTemplate(v.refusal(err))
}

func (v *visit) writeTemplate(id string, form url.Values) (done string, err error) {
	templates, match := v.h.service.Templates, form.Get("etag")
	in := svc.UpdateRequest{Revision: form.Get("revision")}
	switch form.Get("do") {
	case "update":
		in.LocalEdits, done = svc.EditsMerge, "updated"
	case "discard":
		in.LocalEdits, done = svc.TakeTheirs, "discarded"
	case "keep":
		in.LocalEdits, done = svc.KeepOurs, "kept"
	case "settle":
		in.LocalEdits, done = svc.TakeMerged, "settled"
	case "rollback":
		number, err := strconv.ParseInt(form.Get("version"), 10, 64)
		if err != nil {
			return "", svc.Invalid("version", "must be the number of a version")
		}
		_, err = templates.Rollback(v.r.Context(), v.by, id, number, match)
		return "rolledback", err
	default:
		return "", svc.Invalid("do", "must be update, settle, keep, discard or rollback")
	}
	if match == "" || in.Revision == "" {
		return "", svc.Invalid("revision", "is missing: load the page again")
	}
	if in.LocalEdits == svc.TakeMerged {
		if in.Content, err = v.settled(id, form); err != nil {
			return "", err
		}
	}
	updated, err := templates.Update(v.r.Context(), v.by, id, in, match)
	if err == nil && !updated.Updated {
		done = "unchanged"
	}
	return done, err
}

// settled returns the content that a form has chosen. Update refuses it when the template or the
// source is another one than was reviewed.
func (v *visit) settled(id string, form url.Values) (*svc.Content, error) {
	template, err := v.h.service.Templates.Read(v.r.Context(), v.by, id)
	if err != nil {
		return nil, err
	}
	diff, err := v.h.service.Templates.Diff(v.r.Context(), v.by, id)
	if err != nil {
		return nil, err
	}
	content, err := settle(v.r.Context(), template, diff, func(path string) string {
		return form.Get(placeField(path))
	})
	return &content, err
}
