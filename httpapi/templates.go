package httpapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
)

// templates returns the noun of a route about templates: the caller's own under /me.
func (h *Handler) templates(r *request) *svc.Templates {
	if r.own() {
		return h.service.MyTemplates
	}
	return h.service.Templates
}

func (h *Handler) listTemplates(w http.ResponseWriter, r *request) error {
	query := svc.TemplateQuery{Category: r.query.text("category"), Tag: r.query.text("tag")}
	p, err := r.page()
	if err != nil {
		return err
	}
	etag, _ := h.templates(r).ETag(r.Context(), r.by) // List fails for the same reason
	err = h.sendTemplates(w, r, query, p, etag)
	if err != nil {
		w.Header().Del("ETag")
		w.Header().Set("Cache-Control", "no-store")
	}
	if svc.ErrorCode(err) == svc.CodePrecondition { // the list has changed just now
		err = h.sendTemplates(w, r, query, p, "")
	}
	return err
}

// sendTemplates answers with a list of templates, or with 304 when the client's copy is current.
// Everything in the answer is of the list with that ETag. etag "": of the list as it is.
func (h *Handler) sendTemplates(
	w http.ResponseWriter, r *request, query svc.TemplateQuery, p inbound.Page, etag string,
) error {
	var ifMatch []string
	if etag != "" {
		ifMatch = []string{etag}
		w.Header().Set("ETag", etag)
		w.Header().Set("Cache-Control", "private, no-cache")
	}
	list := func(query svc.TemplateQuery) iter.Seq2[svc.Template, error] {
		return h.templates(r).List(r.Context(), r.by, query, ifMatch...)
	}
	if p.After != nil {
		query.AfterName, query.AfterID = p.After[0], p.After[1]
	}
	if current, err := r.hasCurrent(etag, query, list); err != nil {
		return err
	} else if current {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if p.Limit == 0 && etag != "" && query == (svc.TemplateQuery{}) && h.whole != nil {
		if all, err := h.whole.of(etag, list); err != nil {
			return err
		} else if all != nil {
			start(w, http.StatusOK)
			_, _ = w.Write(all)
			return nil
		}
	}
	return sendPart(w, r, p, templateForm, func(skip, limit int) iter.Seq2[svc.Template, error] {
		query.Skip, query.Limit = skip, limit
		return list(query)
	})
}

// hasCurrent reports whether an If-None-Match header has the ETag of a list that the caller may
// read. "*" stands for any ETag, but not for none.
func (r *request) hasCurrent(
	etag string, query svc.TemplateQuery,
	list func(svc.TemplateQuery) iter.Seq2[svc.Template, error],
) (bool, error) {
	if len(r.Header.Values("If-None-Match")) == 0 {
		return false, nil
	}
	query.Limit = 1
	for _, err := range list(query) {
		if err != nil {
			return false, err
		}
	}
	known, err := inbound.Tags(r.Header, "If-None-Match")
	return etag != "" && inbound.HasTag(known, etag), err
}

var templateForm = listForm[svc.Template, wire.Template]{
	open: `{"templates":[`, shut: "]}", answer: wireTemplate,
	position: func(t svc.Template) []string { return []string{t.Name, t.ID} },
}

// keptAnswer is the most bytes of an answer with all templates that a Handler keeps. Templates that
// fit into [svc.TemplateConfig].Cached are about as long, so a smaller cache is the tighter bound.
const keptAnswer = 32 << 20

// wholeList keeps the answer with all templates, under the ETag of their list.
type wholeList struct {
	mu   sync.Mutex
	etag string // "": none yet
	text []byte // nil: too long
}

// of returns the answer for the list with an ETag, which list reads. Nil: the list is too long.
func (l *wholeList) of(
	etag string, list func(svc.TemplateQuery) iter.Seq2[svc.Template, error],
) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.etag == etag {
		return l.text, nil
	}
	var text []byte
	err := withPageBuffer(func(b []byte) ([]byte, error) {
		b, n := append(b, templateForm.open...), 0
		for t, err := range list(svc.TemplateQuery{}) {
			if n++; err != nil || n > MaxList || len(b) > keptAnswer {
				return b, err
			}
			if n > 1 {
				b = append(b, ',')
			}
			b = wireTemplate(t).Append(b)
		}
		if b = append(append(b, templateForm.shut...), '\n'); len(b) <= keptAnswer {
			text = bytes.Clone(b)
		}
		return b, nil
	})
	if err != nil {
		return nil, err
	}
	l.etag, l.text = etag, text
	return text, nil
}

func (h *Handler) createTemplate(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.CreateTemplate](h, w, r)
	if err != nil {
		return err
	}
	content := svc.Content{
		Name: in.Name, Description: in.Description, Category: in.Category,
		Integrations: in.Integrations, Tags: in.Tags, Manifest: in.Manifest,
	}
	create := svc.NewTemplate{ID: in.ID, Content: content}
	template, err := h.templates(r).Create(r.Context(), r.by, create)
	return sendTemplate(w, template, err)
}

func (h *Handler) template(w http.ResponseWriter, r *request) error {
	template, err := h.templates(r).Read(r.Context(), r.by, r.params["template_id"])
	return sendIfChanged(w, r, template, err, wireTemplate)
}

func (h *Handler) patchTemplate(w http.ResponseWriter, r *request) error {
	return patchRow(h, w, r, r.params["template_id"], wireTemplate, func(
		in wire.PatchTemplate,
	) (patch svc.TemplatePatch, err error) {
		patch.Description, patch.Category = textPatch(in.Description), textPatch(in.Category)
		patch.Manifest = in.Manifest.Value
		err = cmp.Or(required("/name", in.Name, &patch.Name),
			required("/integrations", in.Integrations, &patch.Integrations),
			required("/tags", in.Tags, &patch.Tags))
		if err == nil && in.Manifest.Null {
			err = svc.Invalid("/manifest", "must not be null")
		}
		return patch, err
	}, h.templates(r).Patch)
}

// textPatch reads a text of a patch; null clears it.
func textPatch(in strictjson.Optional[string]) *svc.TextPatch {
	switch {
	case !in.Set:
		return nil
	case in.Null:
		return &svc.TextPatch{}
	}
	return &svc.TextPatch{Value: &in.Value}
}

// required reads a field of a patch that must not be null.
func required[T any](pointer string, in strictjson.Optional[T], to **T) error {
	if in.Null {
		return svc.Invalid(pointer, "must not be null")
	}
	if in.Set {
		*to = &in.Value
	}
	return nil
}

func (h *Handler) deleteTemplate(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, r.params["template_id"], h.templates(r).Delete)
}

func (h *Handler) installTemplate(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.InstallTemplate](h, w, r)
	if err != nil {
		return err
	}
	scope := svc.ScopeServer
	if in.SourceScope != nil {
		if scope = svc.Scope(*in.SourceScope); scope == "" {
			return svc.Invalid("/source_scope", `must be "server" or "personal"`)
		}
	}
	key, err := r.idempotencyKey()
	if err != nil {
		return err
	}
	template, err := h.templates(r).Install(r.Context(), r.by, svc.Install{
		TemplateID: r.params["template_id"], SourceName: in.SourceName, SourceScope: scope,
		AliasID: in.AliasID, IdempotencyKey: key,
	})
	return sendTemplate(w, template, err)
}

func (h *Handler) updateTemplate(w http.ResponseWriter, r *request) error {
	in, err := r.query.update()
	if err != nil {
		return err
	}
	body, err := decode[wire.UpdateTemplate](h, w, r)
	if err != nil {
		return err
	}
	if !body.Empty() {
		in.Content = &svc.Content{
			Description: body.Description, Category: body.Category,
			Integrations: body.Integrations, Tags: body.Tags, Manifest: body.Manifest,
		}
		if body.Name != nil {
			in.Content.Name = *body.Name
		}
	}
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	id := r.params["template_id"]
	update, err := h.templates(r).Update(r.Context(), r.by, id, in, match...)
	return sendResult(w, update, err, func(u svc.Update) wire.Update {
		return wire.Update{
			Updated: u.Updated, PreviousRevision: &u.PreviousRevision,
			NewRevision: &u.NewRevision, Template: wireTemplate(u.Template),
		}
	})
}

// update reads the parameters of an update. A resolution takes precedence over local_edits.
func (q query) update() (svc.UpdateRequest, error) {
	force, err := q.bool("force")
	resolution, wrong := q.localEdits("resolution", svc.TakeTheirs, svc.KeepOurs, svc.TakeMerged)
	rule, unknown := q.localEdits(
		"local_edits", svc.EditsConflict, svc.EditsOverwrite, svc.EditsMerge,
	)
	if force && wrong == nil && resolution != "" && resolution != svc.TakeTheirs {
		wrong = svc.Invalid("resolution", "must be theirs or absent with force")
	}
	if force {
		resolution = svc.TakeTheirs
	}
	return svc.UpdateRequest{
		LocalEdits: cmp.Or(resolution, rule), Revision: q.text("revision"),
	}, errors.Join(err, wrong, unknown)
}

// localEdits reads a parameter that is absent or one of three values.
func (q query) localEdits(key string, a, b, c svc.LocalEdits) (svc.LocalEdits, error) {
	switch value := svc.LocalEdits(q.text(key)); value {
	case "", a, b, c:
		return value, nil
	}
	return "", svc.Invalid(key, fmt.Sprintf("must be %s, %s or %s", a, b, c))
}

func (h *Handler) checkUpdate(w http.ResponseWriter, r *request) error {
	check, err := h.templates(r).CheckUpdate(r.Context(), r.by, r.params["template_id"])
	return sendResult(w, check, err, func(check svc.UpdateCheck) wire.UpdateCheck {
		answer := wire.UpdateCheck{
			HasUpdate: check.HasUpdate, CurrentRevision: check.CurrentRevision,
			LatestRevision: check.LatestRevision,
		}
		if s := check.Source; s != nil {
			answer.SourceName, answer.SourceScope = orNull(s.Name), orNull(string(s.Scope))
		}
		return answer
	})
}

func wireTemplate(t svc.Template) wire.Template {
	answer := wire.Template{
		ID: t.ID, Content: wire.Content(t.Content), Scope: string(t.Scope),
		Owner: orNull(t.Owner), InstalledAt: t.InstalledAt, UpdatedAt: t.UpdatedAt,
	}
	if o := t.Origin; o != nil {
		answer.SourceName = inPlace(&o.Source.Name)
		answer.SourceScope = inPlace((*string)(&o.Source.Scope))
		answer.SourceOwner, answer.SourceRevision = inPlace(&o.Source.Owner), inPlace(&o.Revision)
	}
	return answer
}

// inPlace is orNull without a copy, so that a list allocates nothing for its rows.
func inPlace(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}
