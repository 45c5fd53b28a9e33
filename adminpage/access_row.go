package adminpage

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// accessView is what the page of one row shows.
type accessView struct {
	Kind, ID, Name, State string // State "": the row has none
	Tabs                  []tab
	Facts                 []fact
	Tables                []accessTable
	Document              string // of a policy or a bank, as it is or as the form has it
	HasDocument           bool
	Was                   string // tells which document the form has changed
	Stored                string // the document as it is now, if the form has changed another one
	MayWrite              bool   // acts of the row itself
	MayJoin, MayAttach    bool   // add to groups, and attach policies
	Builtin               bool
	Findings              []svc.Finding
	Can                   []can
	MoreCan               int
	Draft                 *draftView // nil: nothing is changed
	Form                  url.Values // as it was sent; nil: it is none with inputs
	Suggested             []string
}

// fact is a line about a row. A fact with an address is a link.
type fact struct{ Name, Value, Address string }

// accessTable is a table of what belongs to a row.
type accessTable struct {
	Name    string
	Columns []string
	Rows    []tableRow
	More    int
	Least   bool // more than More are not shown: see maxCounted
}

// Acts reports whether a row has an act.
func (t accessTable) Acts() bool {
	return slices.ContainsFunc(t.Rows, func(r tableRow) bool { return r.Do != "" })
}

// tableRow is a row of a table: links, and perhaps an act that takes it away.
type tableRow struct {
	Cells       []fact // without their Name
	Do, Of, Who string // of the act; Do "": there is none
	Label       string
}

// can is a row of the table Can do.
type can struct {
	Action, Bank string
	Allowed      bool
}

// rowPage shows a row.
func (k *accessKind) rowPage(v *visit) error {
	return v.showAccess(k, view{Done: v.done()}, nil)
}

// showAccess shows the page of a row, with a draft of a change.
func (v *visit) showAccess(k *accessKind, page view, draft *draftView) (err error) {
	if err := v.need(k.read); err != nil {
		return err
	}
	tabs, err := v.tabs(k)
	if err != nil {
		return err
	}
	id := v.params["id"]
	body := accessView{Kind: k.path, ID: id, Tabs: tabs, Draft: draft}
	if do := v.form.Get("do"); do == "join" || do == "add" || do == "attach" {
		body.Form = v.form
	}
	if !v.h.options.ReadOnly {
		may, err := v.mayEach(k.write, action.GroupsWrite, action.AttachmentsWrite)
		if err != nil {
			return err
		}
		body.MayWrite, body.MayJoin, body.MayAttach = may[0], may[1], may[2]
	}
	if err := k.fill(v, &body, id); err != nil {
		return err
	}
	for i := range body.Tables {
		t := &body.Tables[i]
		bound(&t.Rows, &t.More, tableRow.htmlSize)
	}
	bound(&body.Can, &body.MoreCan, can.htmlSize)
	body.Was = digest(body.Document)[:16]
	if was := v.form.Get("was"); draft != nil && was != "" && was != body.Was {
		draft.Revision, body.Stored, page.Status = "", body.Document, http.StatusPreconditionFailed
		page.Alerts = append(page.Alerts,
			"Nothing was saved: the document has changed since you opened it.")
	} else if draft != nil && draft.again {
		page.Alerts = append(page.Alerts,
			"Nothing was saved: access has changed since you looked. This is the new preview.")
	}
	if draft != nil && draft.Document != "" {
		body.Document = draft.Document
	}
	page.Template, page.Title, page.Body = "access-row", k.one+" "+id, body
	return v.render(page)
}

// table takes the first rows of a list.
func table[R any](
	b *accessView, name string, columns []string, all iter.Seq2[R, error], row func(R) tableRow,
) error {
	t := accessTable{Name: name, Columns: columns}
	for r, err := range all {
		if t.Least = t.More == maxCounted; t.Least {
			break
		}
		switch {
		case svc.ErrorCode(err) == svc.CodeForbidden:
			return nil // the caller may not see these rows
		case err != nil:
			return err
		case len(t.Rows) == maxListed:
			t.More++
			continue
		}
		t.Rows = append(t.Rows, row(r))
	}
	b.Tables = append(b.Tables, t)
	return nil
}

// maxTable limits the texts of a table, in bytes of HTML.
const maxTable = 24 << 10

// bound leaves out the rows beyond maxTable, and adds them to more.
func bound[R any](rows *[]R, more *int, htmlSize func(R) int) {
	size := 0
	for i, row := range *rows {
		if size += htmlSize(row); size > maxTable {
			*rows, *more = (*rows)[:i], *more+len(*rows)-i
			return
		}
	}
}

func (r tableRow) htmlSize() int {
	size := htmlSize(r.Of) + htmlSize(r.Who) + htmlSize(r.Label)
	for _, c := range r.Cells {
		size += len(c.Address) + htmlSize(c.Value)
	}
	return size
}

func (c can) htmlSize() int { return htmlSize(c.Action) + htmlSize(c.Bank) }

// at returns a link to the page of a row.
func at(kind, id string) fact {
	return fact{Value: id, Address: "access/" + kind + "/" + url.PathEscape(id)}
}

func (v *visit) fillUser(b *accessView, id string) error {
	held := svc.Identity{Kind: svc.KindUser, ID: id}
	user, err := v.h.service.Users.Read(v.r.Context(), v.by, id)
	if svc.ErrorCode(err) == svc.CodeNotFound { // a host may know users that have no row
		b.MayJoin = false
		b.Facts = []fact{{"Row", "none here", ""}}
		return v.fillHeld(b, held)
	} else if err != nil {
		return err
	}
	b.Name, b.State = user.DisplayName, state(user.Inactive)
	b.Facts = []fact{{"Email", textOr(user.Email), ""}}
	groups := []string{}
	in := v.h.service.Groups.List(v.r.Context(), v.by, svc.GroupQuery{Member: id})
	err = table(b, "Groups", []string{"Group"}, in, func(g svc.Group) tableRow {
		groups = append(groups, g.ID)
		row := tableRow{Cells: []fact{at("groups", g.ID)}}
		if b.MayJoin {
			row.Do, row.Of, row.Label = "leave", g.ID, "Remove from "+g.ID
		}
		return row
	})
	if err != nil {
		return err
	}
	if err := v.fillPolicies(b, id, groups); err != nil {
		return err
	}
	owned := svc.ServiceAccountQuery{Owner: id}
	err = table(b, "Service accounts", []string{"Service account", "Limited by"},
		v.h.service.ServiceAccounts.List(v.r.Context(), v.by, owned), accountRow)
	if err != nil {
		return err
	}
	channels := accessTable{Name: "Channels", Columns: []string{"Sender"}}
	for _, c := range user.Channels {
		channels.Rows = append(channels.Rows, tableRow{Cells: []fact{{
			Value:   c.String(),
			Address: "why?" + url.Values{"sender": {c.String()}}.Encode(),
		}}})
	}
	channels.Rows, channels.More = head(channels.Rows, maxListed)
	b.Tables = append(b.Tables, channels)
	if err := v.fillHeld(b, held); err != nil {
		return err
	}
	v.suggestGroups(b)
	return nil
}

// accountRow shows a service account in a table.
func accountRow(a svc.ServiceAccount) tableRow {
	row := tableRow{Cells: []fact{at("accounts", a.ID), {}}}
	if a.ScopingPolicyID != "" {
		row.Cells[1] = at("policies", a.ScopingPolicyID)
	}
	return row
}

// fillPolicies shows the policies of a user: its own, and those of its groups.
func (v *visit) fillPolicies(b *accessView, id string, groups []string) error {
	to := []svc.GrantedTo{{Type: svc.GrantedToUser, ID: id}}
	for _, group := range groups {
		to = append(to, svc.GrantedTo{Type: svc.GrantedToGroup, ID: group})
	}
	all := func(yield func(svc.Attachment, error) bool) {
		for _, principal := range to {
			for a, err := range v.attachmentsTo(principal) {
				if !yield(a, err) {
					return
				}
			}
		}
	}
	return table(b, "Policies", []string{"Policy", "Through", "Priority"}, all, b.attachment)
}

// attachment shows an attachment in a table: the policy, to whom, and the priority.
func (b *accessView) attachment(a svc.Attachment) tableRow {
	to := fact{Value: "directly"}
	if a.Principal.Type == svc.GrantedToGroup {
		to = at("groups", a.Principal.ID)
	}
	priority := fact{Value: strconv.FormatInt(a.Priority, 10)}
	row := tableRow{Cells: []fact{at("policies", a.PolicyID), to, priority}}
	if b.MayAttach && a.Principal.Type+"s" == b.Kind { // to the row itself
		row.detaches(a, "Detach "+a.PolicyID)
	}
	return row
}

// detaches gives a row the button that removes an attachment.
func (r *tableRow) detaches(a svc.Attachment, label string) {
	r.Do, r.Of, r.Label = "detach", a.PolicyID, label
	r.Who = a.Principal.Type + " " + a.Principal.ID
}

func (v *visit) attachmentsTo(principal svc.GrantedTo) iter.Seq2[svc.Attachment, error] {
	query := svc.AttachmentQuery{Principal: principal}
	return v.h.service.Policies.Attachments(v.r.Context(), v.by, query)
}

// fillHeld shows the keys of a holder, and what it can do.
func (v *visit) fillHeld(b *accessView, holder svc.Identity) error {
	query := svc.KeyQuery{Bare: true}
	keys := v.h.service.Keys.List(v.r.Context(), v.by, holder, query)
	columns := []string{"Key", "Description", "State"}
	err := table(b, "Keys", columns, keys, func(k svc.APIKey) tableRow {
		return tableRow{Cells: []fact{
			{Value: k.Prefix, Address: "keys/" + k.ID},
			{Value: textOr(k.Description)},
			{Value: stateOf(k, time.Now())},
		}}
	})
	if err != nil && svc.ErrorCode(err) != svc.CodeNotFound { // an unknown user without keys
		return err
	}
	capabilities, err := v.h.service.Policies.WhatCan(v.r.Context(), v.by, holder)
	if err != nil && svc.ErrorCode(err) != svc.CodeTooComplex {
		return err
	}
	for _, c := range capabilities {
		b.Can = append(b.Can, can{
			shorten(c.Action, maxField), shorten(c.Bank, maxField), c.Outcome == svc.Allow,
		})
	}
	b.Can, b.MoreCan = head(b.Can, maxListed)
	return nil
}

func (v *visit) suggestGroups(b *accessView) {
	some := svc.GroupQuery{RowQuery: svc.RowQuery{Limit: maxSuggested}}
	for group, err := range v.h.service.Groups.List(v.r.Context(), v.by, some) {
		if err != nil {
			break // suggestions only
		}
		b.Suggested = append(b.Suggested, group.ID)
	}
}

func (v *visit) fillGroup(b *accessView, id string) error {
	group, err := v.h.service.Groups.Read(v.r.Context(), v.by, id)
	if err != nil {
		return err
	}
	b.Name = group.DisplayName
	members := v.h.service.Groups.Members(v.r.Context(), v.by, id, svc.RowQuery{})
	err = table(b, "Members", []string{"User"}, members, func(user string) tableRow {
		row := tableRow{Cells: []fact{at("users", user)}}
		if b.MayWrite {
			row.Do, row.Of, row.Label = "remove", user, "Remove "+user
		}
		return row
	})
	if err != nil {
		return err
	}
	b.Suggested = v.suggestedUsers("")
	return table(b, "Policies", []string{"Policy", "Through", "Priority"},
		v.attachmentsTo(svc.GrantedTo{Type: svc.GrantedToGroup, ID: id}), b.attachment)
}

func (v *visit) fillPolicy(b *accessView, id string) error {
	policy, err := v.h.service.Policies.Read(v.r.Context(), v.by, id)
	if err != nil {
		return err
	}
	b.Name, b.Builtin, b.HasDocument = policy.DisplayName, policy.Builtin(), true
	b.Document = indented(policy.Document)
	holder := svc.User{ID: "a holder"} // a policy without one says nothing
	alone := svc.Bundle{
		Users: []svc.User{holder}, Policies: []svc.Policy{policy},
		Attachments: []svc.Attachment{{
			PolicyID:  id,
			Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: holder.ID},
		}},
	}
	b.Findings = v.h.service.Policies.Lint(alone, v.h.known)
	b.Findings, _ = head(b.Findings, maxShown)
	b.Suggested = v.suggestedUsers("")
	of := svc.AttachmentQuery{PolicyID: id}
	attachments := v.h.service.Policies.Attachments(v.r.Context(), v.by, of)
	columns := []string{"To", "Kind", "Priority"}
	return table(b, "Attachments", columns, attachments, func(a svc.Attachment) tableRow {
		row := tableRow{Cells: []fact{
			at(a.Principal.Type+"s", a.Principal.ID),
			{Value: a.Principal.Type},
			{Value: strconv.FormatInt(a.Priority, 10)},
		}}
		if b.MayAttach {
			row.detaches(a, "Detach from "+a.Principal.ID)
		}
		return row
	})
}

func (v *visit) fillAccount(b *accessView, id string) error {
	account, err := v.h.service.ServiceAccounts.Read(v.r.Context(), v.by, id)
	if err != nil {
		return err
	}
	b.Name, b.State = account.DisplayName, state(account.Inactive)
	owner := at("users", account.OwnerUserID)
	b.Facts = []fact{{"Owner", owner.Value, owner.Address}}
	if account.ScopingPolicyID != "" {
		scoping := at("policies", account.ScopingPolicyID)
		b.Facts = append(b.Facts, fact{"Limited by", scoping.Value, scoping.Address})
	}
	return v.fillHeld(b, svc.Identity{Kind: svc.KindServiceAccount, ID: id})
}

func (v *visit) fillBank(b *accessView, id string) error {
	policy, err := v.h.service.Banks.Policy(v.r.Context(), v.by, id)
	if err != nil && svc.ErrorCode(err) != svc.CodeNotFound {
		return err
	}
	b.HasDocument, b.Document = true, indented(policy.Document)
	if err != nil {
		b.Facts = []fact{{"Policy", "none: it is closed to unknown senders", ""}}
		b.Document = "{\n  \"version\": \"2026-03-24\"\n}"
	}
	return nil
}

func state(inactive bool) string {
	if inactive {
		return "inactive"
	}
	return "active"
}

// indented returns a document as a person reads it, in full.
func indented(document []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, document, "", "  ") != nil {
		return string(document)
	}
	return out.String()
}
