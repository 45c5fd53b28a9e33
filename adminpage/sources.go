package adminpage

import (
	"crypto/rand"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/httpapi"
)

// sourcesView is what the page Sources shows.
type sourcesView struct {
	Asked    url.Values
	Rows     []sourceRow
	More     string // the address of the next page
	Check    checkView
	Checked  time.Time // the last check; zero: none
	MayWrite bool
	Form     url.Values // of a source to register
}

// sourceRow is a source in the list.
type sourceRow struct {
	svc.Source
	Problem string
}

// sourceView is what the page of one source shows.
type sourceView struct {
	Asked      url.Values
	Source     svc.Source
	Problem    string // of the last check
	MayWrite   bool
	Remove     bool                 // asks for a confirmation
	Offers     *svc.SourceTemplates // nil: it cannot be asked
	MoreOffers string               // the address of the next page of these
	Bad        []svc.CatalogProblem // of Offers, the first maxShown
	MoreBad    int                  // those left out
	Once       string               // makes a form that is sent twice install once
}

// sources lists the server's sources.
func (v *visit) sources() error {
	return v.showSources(view{Done: v.done()}, sourcesView{Asked: v.r.URL.Query()})
}

func (v *visit) showSources(page view, body sourcesView) (err error) {
	if body.MayWrite, err = v.mayWrite(action.TemplateAdmin); err != nil {
		return err
	}
	last, err := v.lastCheck()
	if err != nil {
		return err
	}
	after := body.Asked.Get("after")
	body.Check, body.Checked = v.checkShown(last, body.Asked.Get("done")), last.at
	for source, err := range v.h.service.Sources.List(v.r.Context(), v.by) {
		if err != nil {
			return err
		}
		if source.Name <= after {
			continue
		}
		if n := len(body.Rows); n == pageRows {
			body.More = with("sources", body.Asked, "after", body.Rows[n-1].Name, "done", "")
			break
		}
		body.Rows = append(body.Rows, sourceRow{source, last.problem(source.SourceKey)})
	}
	page.Refresh, page.Failed = body.Check.Running, body.Check.failed()
	page.Template, page.Title, page.Body = "sources", "Sources", body
	return v.render(page)
}

// changeSources registers a source, or checks all of them for updates.
func (v *visit) changeSources() error {
	if v.form.Get("do") == "check" {
		if err := v.check(); err != nil {
			return err
		}
		return v.redirect("sources?done=checked")
	}
	if err := v.changes(); err != nil {
		return err
	}
	if v.form.Get("do") != "register" {
		return svc.Invalid("do", "must be register or check")
	}
	in := svc.NewSource{URL: strings.TrimSpace(v.form.Get("url"))}
	if name := strings.TrimSpace(v.form.Get("name")); name != "" {
		in.Alias = &name
	}
	if token := svc.Secret(strings.TrimSpace(v.form.Get("token"))); token != "" {
		in.AuthToken = &token
	}
	source, err := v.h.service.Sources.Register(v.r.Context(), v.by, in)
	switch code := svc.ErrorCode(err); code {
	case "":
		return v.redirect("sources/" + url.PathEscape(source.Name) + "?done=registered")
	case svc.CodeForbidden, svc.CodeUnauthenticated:
		return err
	}
	return v.showSources(v.refusal(err), sourcesView{Asked: url.Values{}, Form: v.form})
}

// source shows one source and what it offers.
func (v *visit) source() error {
	return v.showSource(view{Done: v.done()}, v.params["name"], v.r.URL.Query())
}

func (v *visit) showSource(page view, name string, in url.Values) (err error) {
	body := sourceView{Asked: in, Once: rand.Text(), Remove: in.Get("remove") != ""}
	if body.MayWrite, err = v.mayWrite(action.TemplateAdmin); err != nil {
		return err
	}
	for source, err := range v.h.service.Sources.List(v.r.Context(), v.by) {
		if err != nil {
			return err
		}
		if source.Name == name {
			body.Source = source
			break
		}
	}
	if body.Source.Name == "" {
		return &svc.Error{Code: svc.CodeNotFound, Message: "there is no such source"}
	}
	last, err := v.lastCheck()
	if err != nil {
		return err
	}
	body.Problem = last.problem(body.Source.SourceKey)
	filter := svc.CatalogFilter{Text: in.Get("q")}
	if offers, err := v.h.service.Sources.Browse(v.r.Context(), v.by, name, filter); err != nil {
		page.Status, page.Alerts = httpapi.Status(err), append(page.Alerts, v.problems(err)...)
	} else {
		body.Offers = &offers
		body.cutOffers()
	}
	page.Template, page.Title, page.Body = "source", "Source "+name, body
	return v.render(page)
}

// cutOffers leaves one page of the offers, after the one with the id in offers_after.
func (b *sourceView) cutOffers() {
	b.Bad, b.MoreBad = head(b.Offers.Bad, maxShown)
	offers := b.Offers.Templates
	if after := b.Asked.Get("offers_after"); after != "" {
		i := slices.IndexFunc(offers, func(o svc.SourceTemplate) bool { return o.ID == after })
		offers = offers[i+1:]
	}
	if len(offers) > pageRows {
		offers = offers[:pageRows]
		b.MoreOffers = with("sources/"+url.PathEscape(b.Source.Name), b.Asked, "offers_after",
			offers[pageRows-1].ID)
	}
	b.Offers.Templates = offers
}

// changeSource changes the token of a source, or removes it.
func (v *visit) changeSource() error {
	if err := v.changes(); err != nil {
		return err
	}
	name, done := v.params["name"], "sources?done=removed"
	var err error
	switch v.form.Get("do") {
	case "token":
		patch := svc.SourcePatch{AuthToken: &svc.SecretPatch{}}
		if token := svc.Secret(strings.TrimSpace(v.form.Get("token"))); token != "" {
			patch.AuthToken.Value = &token
		}
		_, err = v.h.service.Sources.Patch(v.r.Context(), v.by, name, patch)
		done = "sources/" + url.PathEscape(name) + "?done=token"
	case "remove":
		err = v.h.service.Sources.Remove(v.r.Context(), v.by, name)
	default:
		err = svc.Invalid("do", "must be token or remove")
	}
	switch svc.ErrorCode(err) {
	case "":
		return v.redirect(done)
	case svc.CodeInvalid:
		return v.showSource(v.refusal(err), name, url.Values{})
	}
	return err
}
