package adminpage

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// templatesView is what the page Templates shows.
type templatesView struct {
	Asked   url.Values
	Choices []choice
	Rows    []templateRow
	More    string // the address of the next page
	Checked time.Time
	Sources []sourceRow
	Offers  *svc.SourceTemplates // of the source in Asked; nil: none is asked for
	// MoreOffers and MoreSources are the addresses of the next pages of these.
	MoreOffers, MoreSources string
	Bad                     []svc.CatalogProblem // of Offers, the first maxShown
	MoreBad                 int                  // those left out
	Once                    string               // makes a form that is sent twice install once
}

// templateRow is an installed template in a list.
type templateRow struct {
	ID, Name string
	Category *string
	Source   string // "": made by hand
	States   []string
}

// sourceRow is a source in a list.
type sourceRow struct {
	Name, URL, Problem string
}

// The choices of the field State.
var templateStates = []choice{
	{Value: "", Name: "All"},
	{Value: "edited", Name: "Edited here"},
	{Value: "update", Name: "Update available"},
	{Value: "source", Name: "From a source"},
	{Value: "hand", Name: "Made here"},
}

// templatesDone says in words what was done.
var templatesDone = map[string]string{
	"checked":    "Checked all sources.",
	"installed":  "Installed.",
	"updated":    "Updated.",
	"unchanged":  "There was nothing to update.",
	"discarded":  "Updated. The local edits are in the history.",
	"rolledback": "Went back to the former version.",
}

// checked is the result of the last check for updates in this process.
type checked struct {
	at      time.Time
	updates map[string]svc.TemplateUpdate // by the template's id
	sources map[string]string             // the problems of the server's sources, by name
}

// maxResults is how many tenants keep the result of their last check.
const maxResults = 64

// results are the last checks of tenants.
type results struct {
	mu sync.Mutex
	of map[int64]*checked // by the tenant's number
}

// last returns the result of a tenant's last check, or an empty one.
func (r *results) last(tenant int64) *checked {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.of[tenant]; c != nil {
		return c
	}
	return &checked{}
}

// keep keeps the result of a tenant's check. Beyond maxResults, that of another tenant goes.
func (r *results) keep(tenant int64, c *checked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.of {
		if len(r.of) < maxResults {
			break
		}
		delete(r.of, other)
	}
	r.of[tenant] = c
}

// templates lists the server's templates, its sources, and what one source offers.
func (v *visit) templates() error {
	in := v.URL.Query()
	return v.showTemplates(http.StatusOK, view{Done: templatesDone[in.Get("done")]}, in)
}

// showTemplates fills the lists and shows the page.
func (v *visit) showTemplates(status int, page view, in url.Values) error {
	body := templatesView{Asked: in, Once: rand.Text()}
	last := v.h.checked.last(v.h.service.Tenant().Number)
	body.Checked = last.at
	body.Choices = choices(templateStates, in.Get("state"))
	if err := v.fillTemplates(&body, last); err != nil {
		return err
	}
	if err := v.fillSources(&body, last); err != nil {
		return err
	}
	if name := in.Get("source"); name != "" {
		filter := svc.CatalogFilter{Text: in.Get("q")}
		offers, err := v.h.service.Sources.Browse(v.Context(), v.by, name, filter)
		if err != nil {
			status, page.Alerts = httpapi.Status(err), append(page.Alerts, v.problems(err)...)
		} else {
			body.Offers = &offers
			body.cutOffers()
		}
	}
	page.Template, page.Title, page.Body = "templates", "Templates", body
	v.render(status, page)
	return nil
}

// fillSources reads a page of the server's sources, after the one with the name in sources_after.
func (v *visit) fillSources(body *templatesView, last *checked) error {
	after := body.Asked.Get("sources_after")
	for source, err := range v.h.service.Sources.List(v.Context(), v.by) {
		if err != nil {
			return err
		}
		if source.Name <= after {
			continue
		}
		if n := len(body.Sources); n == pageRows {
			body.MoreSources = with("templates", body.Asked, "sources_after", body.Sources[n-1].Name)
			return nil
		}
		body.Sources = append(body.Sources, sourceRow{source.Name, source.URL, last.sources[source.Name]})
	}
	return nil
}

// cutOffers leaves one page of the offers, after the one with the id in offers_after.
func (b *templatesView) cutOffers() {
	b.Bad, b.MoreBad = head(b.Offers.Bad, maxShown)
	offers := b.Offers.Templates
	if after := b.Asked.Get("offers_after"); after != "" {
		i := slices.IndexFunc(offers, func(o svc.SourceTemplate) bool { return o.ID == after })
		offers = offers[i+1:]
	}
	if len(offers) > pageRows {
		offers = offers[:pageRows]
		b.MoreOffers = with("templates", b.Asked, "offers_after", offers[pageRows-1].ID)
	}
	b.Offers.Templates = offers
}

// fillTemplates reads a page of the templates that match the search and the state.
func (v *visit) fillTemplates(body *templatesView, last *checked) error {
	in := body.Asked
	search, state := strings.ToLower(strings.TrimSpace(in.Get("search"))), in.Get("state")
	query := svc.TemplateQuery{AfterName: in.Get("after_name"), AfterID: in.Get("after_id")}
	for t, err := range v.h.service.Templates.List(v.Context(), v.by, query) {
		if err != nil {
			return err
		}
		if !found(&t, search) || !isIn(&t, state, last) {
			continue
		}
		if n := len(body.Rows); n == pageRows {
			end := body.Rows[n-1]
			body.More = with("templates", in, "after_name", end.Name, "after_id", end.ID, "source", "", "offers_after", "")
			return nil
		}
		row := templateRow{ID: t.ID, Name: t.Name, Category: t.Category, States: last.states(&t)}
		if t.Origin != nil {
			row.Source = t.Origin.Source.Name
		}
		body.Rows = append(body.Rows, row)
	}
	return nil
}

// found reports whether a template has a text in its name, id, category or tags.
func found(t *svc.Template, search string) bool {
	if search == "" {
		return true
	}
	texts := append([]string{t.Name, t.ID}, t.Tags...)
	if t.Category != nil {
		texts = append(texts, *t.Category)
	}
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), search) {
			return true
		}
	}
	return false
}

// isIn reports whether a template is in a state of the field State.
func isIn(t *svc.Template, state string, last *checked) bool {
	switch state {
	case "edited":
		return t.Origin != nil && t.Origin.Edited
	case "update":
		return last.hasUpdate(t)
	case "source":
		return t.Origin != nil
	case "hand":
		return t.Origin == nil
	}
	return true
}

// hasUpdate reports whether the last check found an update that was not installed since.
func (c *checked) hasUpdate(t *svc.Template) bool {
	update, found := c.updates[t.ID]
	return found && update.HasUpdate() && t.Origin != nil &&
		update.CurrentRevision == t.Origin.Revision && update.Source == t.Origin.Source
}

// states says in words how a template stands.
func (c *checked) states(t *svc.Template) (states []string) {
	if t.Origin == nil {
		return []string{"made here"}
	}
	if c.hasUpdate(t) {
		states = append(states, "update available")
	}
	if t.Origin.Edited {
		states = append(states, "edited here")
	}
	if states != nil {
		return states
	}
	if c.at.IsZero() || t.UpdatedAt.After(c.at) || c.sources[t.Origin.Source.Name] != "" {
		return []string{"not checked"}
	}
	return []string{"up to date"}
}

// changeTemplates checks for updates, or installs a template.
func (v *visit) changeTemplates() error {
	form := v.form
	back := url.Values{"search": form["search"], "state": form["state"], "source": form["source"]}
	switch form.Get("do") {
	case "check":
		if err := v.check(); err != nil {
			return err
		}
		v.redirect(with("templates", back, "done", "checked"))
		return nil
	case "install":
		return v.install(form, back)
	}
	return svc.Invalid("do", "must be check or install")
}

// check asks all sources, and keeps the result for the lists.
func (v *visit) check() error {
	report, err := v.h.service.Templates.CheckUpdates(v.Context(), v.by, nil)
	if err != nil {
		return err
	}
	result := &checked{time.Now(), map[string]svc.TemplateUpdate{}, map[string]string{}}
	for _, t := range report.Templates {
		result.updates[t.ID] = t
	}
	for _, s := range report.Sources {
		if s.Source.Scope == svc.ScopeServer {
			result.sources[s.Source.Name] = s.Problem
		}
	}
	v.h.checked.keep(v.h.service.Tenant().Number, result)
	return nil
}

// install installs a template of a source, and leads to it.
func (v *visit) install(form, back url.Values) error {
	if err := v.changes(); err != nil {
		return err
	}
	in := svc.Install{
		TemplateID: form.Get("template_id"), SourceName: form.Get("source"),
		IdempotencyKey: form.Get("once"),
	}
	if alias := strings.TrimSpace(form.Get("alias_id")); alias != "" {
		in.AliasID = &alias
	}
	if in.IdempotencyKey != "" { // one for each offer of the page
		in.IdempotencyKey += "-" + form.Get("number")
	}
	installed, err := v.h.service.Templates.Install(v.Context(), v.by, in)
	if err == nil {
		v.redirect("templates/" + url.PathEscape(installed.ID) + "?done=installed")
		return nil
	}
	if svc.ErrorCode(err) == svc.CodeForbidden {
		return err
	}
	return v.showTemplates(httpapi.Status(err), view{Alerts: v.problems(err)}, back)
}
