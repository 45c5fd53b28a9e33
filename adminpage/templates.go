package adminpage

import (
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// templatesView is what the page Templates shows.
type templatesView struct {
	Asked   url.Values
	Choices []choice
	Rows    []templateRow
	More    string // the address of the next page
	Check   checkView
}

// templateRow is an installed template in a list.
type templateRow struct {
	ID, Name string
	Category *string
	Source   *svc.SourceKey // nil: made by hand
	States   []string
}

// The choices of the field State.
var templateStates = []choice{
	{Value: "", Name: "All"},
	{Value: "edited", Name: "Edited here"},
	{Value: "update", Name: "Update available"},
	{Value: "source", Name: "From a source"},
	{Value: "hand", Name: "Made here"},
}

// templates lists the server's templates.
func (v *visit) templates() error {
	in := v.r.URL.Query()
	if name := in.Get("source"); name != "" { // where offers were shown once
		return v.redirect(with("sources/"+url.PathEscape(name), in, "source", ""))
	}
	body := templatesView{Asked: in}
	last, err := v.lastCheck()
	if err != nil {
		return err
	}
	body.Check = v.checkShown(last, in.Get("done"))
	body.Choices = choices(templateStates, in.Get("state"))
	if err := v.fillTemplates(&body, &last); err != nil {
		return err
	}
	return v.render(view{
		Template: "templates", Title: "Templates", Done: v.done(),
		Refresh: body.Check.Running, Failed: body.Check.failed(), Body: body,
	})
}

// fillTemplates reads a page of the templates that match the search and the state.
func (v *visit) fillTemplates(body *templatesView, last *checked) error {
	in := body.Asked
	search, state := strings.ToLower(strings.TrimSpace(in.Get("search"))), in.Get("state")
	query := svc.TemplateQuery{AfterName: in.Get("after_name"), AfterID: in.Get("after_id")}
	for t, err := range v.h.service.Templates.List(v.r.Context(), v.by, query) {
		if err != nil {
			return err
		}
		if !found(&t, search) || !isIn(&t, state, last) {
			continue
		}
		if n := len(body.Rows); n == pageRows {
			end := body.Rows[n-1]
			body.More = with("templates", in, "after_name", end.Name, "after_id", end.ID)
			return nil
		}
		row := templateRow{ID: t.ID, Name: t.Name, Category: t.Category, States: last.states(&t)}
		if t.Origin != nil {
			row.Source = &t.Origin.Source
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
	texts := append([]string{t.Name, t.ID, textOr(t.Category)}, t.Tags...)
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), search)
	})
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

// found returns what the last check found about a template as it is installed; nil: no difference.
func (c *checked) found(t *svc.Template) *svc.TemplateUpdate {
	byID := func(u svc.TemplateUpdate, id string) int { return strings.Compare(u.ID, id) }
	i, found := slices.BinarySearchFunc(c.Templates, t.ID, byID)
	if !found || t.Origin == nil || c.Templates[i].CurrentRevision != t.Origin.Revision ||
		c.Templates[i].Source != t.Origin.Source {
		return nil
	}
	return &c.Templates[i]
}

// hasUpdate reports whether the last check found an update that was not installed since. An update
// that only renames the template leaves its revision.
func (c *checked) hasUpdate(t *svc.Template) bool {
	update := c.found(t)
	return update != nil && update.HasUpdate() &&
		(*update.LatestRevision != t.Origin.Revision || !t.UpdatedAt.After(c.at))
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
	difference := c.found(t)
	switch {
	case c.at.IsZero() || t.UpdatedAt.After(c.at) || c.problem(t.Origin.Source) != "",
		difference != nil && difference.Problem != "":
		return []string{"not checked"}
	case difference != nil && !difference.HasUpdate():
		return []string{"gone from its source"}
	}
	return []string{"up to date"}
}

// changeTemplates checks for updates, or installs a template.
func (v *visit) changeTemplates() error {
	switch v.form.Get("do") {
	case "check":
		if err := v.check(); err != nil {
			return err
		}
		back := url.Values{"search": v.form["search"], "state": v.form["state"]}
		return v.redirect(with("templates", back, "done", "checked"))
	case "install":
		return v.install()
	}
	return svc.Invalid("do", "must be check or install")
}

// install installs a template of a source, and leads to it.
func (v *visit) install() error {
	if err := v.changes(); err != nil {
		return err
	}
	in := svc.Install{TemplateID: v.form.Get("template_id"), SourceName: v.form.Get("source")}
	if alias := strings.TrimSpace(v.form.Get("alias_id")); alias != "" {
		in.AliasID = &alias
	}
	if once := v.form.Get("once"); once != "" { // one for each offer of the page
		in.IdempotencyKey = v.once(once + "-" + v.form.Get("number"))
	}
	installed, err := v.h.service.Templates.Install(v.r.Context(), v.by, in)
	if err == nil {
		return v.redirect("templates/" + url.PathEscape(installed.ID) + "?done=installed")
	}
	if svc.ErrorCode(err) == svc.CodeForbidden {
		return err
	}
	return v.showSource(v.refusal(err), in.SourceName, url.Values{})
}
