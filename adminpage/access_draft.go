package adminpage

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/httpapi"
)

// draft is a change of some rows that nobody has saved. Its fields are those of the form.
type draft struct {
	fields url.Values
	bundle svc.Bundle
	detach []svc.AttachmentKey // to remove, which a bundle cannot say
}

// draftView is a draft as the page shows it.
type draftView struct {
	Gains    preview
	Fields   []fact // hidden: what makes the same draft again
	Revision string
	Seen     int64 // the newest audit record when the preview was made; 0: unknown
	JSON     string
	Document string   // as the form has it
	Between  []string // what others have changed since the preview before
	MaySave  bool
	again    bool // it stands for the one that the caller wanted to save
}

// act answers the forms on the page of a row: a draft is shown, and saved by a second form.
func (k *accessKind) act(v *visit) error {
	if err := v.need(k.read); err != nil {
		return err
	}
	then := v.form.Get("then")
	if then == "save" {
		if err := v.changes(); err != nil {
			return err
		}
	}
	d, err := v.draft(k, v.params["id"], v.form)
	if err != nil {
		return v.refuseDraft(k, err)
	}
	switch then {
	case "save":
		return v.saveDraft(k, d)
	case "download":
		return v.downloadDraft(d)
	}
	shown, err := v.showDraft(d)
	if err != nil {
		return v.refuseDraft(k, err)
	}
	return v.showAccess(k, view{}, shown)
}

// refuseDraft shows the page with an error and the document as it was written.
func (v *visit) refuseDraft(k *accessKind, err error) error {
	switch svc.ErrorCode(err) {
	case svc.CodeUnauthenticated, svc.CodeForbidden:
		return err
	}
	if v.form.Get("do") == "join" {
		v.names = "of"
	}
	err = svc.MapFields(err, fieldOfDraft)
	var written *draftView
	if document := v.form.Get("document"); document != "" {
		written = &draftView{Document: document}
	}
	return v.showAccess(k, v.refusal(err), written)
}

// draft makes the rows that an act changes. A row has only what changes: the rest stays.
func (v *visit) draft(k *accessKind, id string, form url.Values) (d draft, err error) {
	d.fields = url.Values{}
	for _, name := range []string{"do", "of", "who", "kind", "priority", "document", "was"} {
		if value := form.Get(name); value != "" {
			d.fields.Set(name, value)
		}
	}
	of, who := strings.TrimSpace(form.Get("of")), strings.TrimSpace(form.Get("who"))
	var rows map[string]any
	switch act := k.path + " " + form.Get("do"); act {
	case "users suspend", "users activate", "accounts suspend", "accounts activate":
		list := map[string]string{"users": "users", "accounts": "service_accounts"}[k.path]
		rows = row(list, "id", id, "is_active", form.Get("do") == "activate")
		if k.path == "users" { // a bundle would make a user again that is deleted
			_, err = v.h.service.Users.Read(v.r.Context(), v.by, id)
		}
	case "users join", "users leave":
		rows, err = v.membership(of, id, form.Get("do") == "join")
	case "groups add", "groups remove":
		rows, err = v.membership(id, cmp.Or(of, who), form.Get("do") == "add")
	case "policies document":
		rows = row("policies", "id", id, "document", raw(form.Get("document")))
	case "banks document":
		rows = row("bank_policies", "bank_id", id, "document", raw(form.Get("document")))
	case "policies attach":
		rows, err = attachment(id, form.Get("kind"), who, form.Get("priority"))
	case "policies detach", "users detach", "groups detach":
		kind, principal, _ := strings.Cut(who, " ")
		d.detach = []svc.AttachmentKey{{
			PolicyID:  of,
			Principal: svc.GrantedTo{Type: kind, ID: principal},
		}}
		return d, nil
	default:
		err = svc.Invalid("do", "is nothing that this page does")
	}
	if err != nil {
		return d, err
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return d, svc.Invalid("document", "must be valid JSON")
	}
	d.bundle, err = svc.ParseBundleWithin(text, httpapi.MaxBundleRows)
	return d, err
}

// fieldOfDraft returns the field of the form, or the place in its document, that an error about the
// rows of a draft is about.
func fieldOfDraft(e *svc.Error) string {
	place := e.Field
	for _, row := range []string{"/policies/0", "/bank_policies/0", "/attachments/0", "/groups/0"} {
		place = strings.TrimPrefix(place, row)
	}
	if place == "/principal_id" || strings.HasPrefix(place, "/members/") {
		return "user_id"
	}
	return place
}

// row returns a bundle with one row of a list, with names and values in turn.
func row(list string, pairs ...any) map[string]any {
	return map[string]any{list: []any{dict(pairs...)}}
}

func raw(document string) json.RawMessage { return json.RawMessage(document) }

// membership returns a group with a user more or less.
func (v *visit) membership(group, user string, joins bool) (map[string]any, error) {
	if group == "" || user == "" {
		return nil, svc.Invalid("", "enter who, and to which group")
	}
	members := []string{}
	for member, err := range v.h.service.Groups.Members(v.r.Context(), v.by, group, svc.RowQuery{}) {
		if err != nil {
			return nil, err
		}
		if member != user {
			members = append(members, member)
		}
	}
	if joins {
		members = append(members, user)
	}
	return row("groups", "id", group, "members", members), nil
}

func attachment(policy, kind, who, priority string) (map[string]any, error) {
	n := 0
	if priority = strings.TrimSpace(priority); priority != "" {
		var err error
		if n, err = strconv.Atoi(priority); err != nil {
			return nil, svc.Invalid("priority", "must be a whole number")
		}
	}
	return row("attachments", "policy_id", policy,
		"principal_type", kind, "principal_id", who, "priority", n), nil
}

// showDraft makes all checks of a save, and compares what all principals may do.
func (v *visit) showDraft(d draft) (*draftView, error) {
	may, err := v.checkDraft(d)
	if err != nil {
		return nil, err
	}
	seen, err := v.newestRecord()
	if err != nil {
		return nil, err
	}
	diff, err := v.h.service.Access.Preview(v.r.Context(), v.by, d.bundle,
		svc.BundleWrite{Detach: d.detach})
	if err != nil {
		return nil, err
	}
	shown := &draftView{
		Gains:    previewOf(diff),
		Revision: diff.Revision,
		Seen:     seen,
		Document: d.fields.Get("document"),
		MaySave:  may,
	}
	if d.detach == nil {
		text, err := d.bundle.JSON()
		if err != nil {
			return nil, err
		}
		shown.JSON = indented(text)
	}
	for name := range d.fields {
		shown.Fields = append(shown.Fields, fact{Name: name, Value: d.fields.Get(name)})
	}
	return shown, nil
}

// checkDraft refuses what a save would refuse. It reports whether the caller may save.
func (v *visit) checkDraft(d draft) (may bool, err error) {
	check := svc.BundleWrite{Detach: d.detach, DryRun: true}
	err = v.h.service.Access.Write(v.r.Context(), v.by, d.bundle, check)
	if svc.ErrorCode(err) == svc.CodeForbidden {
		return false, nil // who may read may look at what others could change
	}
	return err == nil && !v.h.options.ReadOnly, err
}

// saveDraft writes a draft, unless access has changed since its preview. Then it shows the new one.
func (v *visit) saveDraft(k *accessKind, d draft) error {
	seen := v.form.Get("revision")
	if seen == "" {
		return v.refuseDraft(k, svc.Invalid("revision", "is missing: look at the preview again"))
	}
	how := svc.BundleWrite{Revision: seen, Detach: d.detach}
	err := v.h.service.Access.Write(v.r.Context(), v.by, d.bundle, how)
	switch svc.ErrorCode(err) {
	case "":
		return v.redirect("access/" + k.path + "/" + url.PathEscape(v.params["id"]) + "?done=saved")
	case svc.CodePrecondition:
	default:
		return v.refuseDraft(k, err)
	}
	shown, again := v.showDraft(d)
	if again != nil {
		return v.refuseDraft(k, errors.Join(err, again))
	}
	if shown.Between, again = v.lately(); again != nil {
		return again
	}
	shown.again = true
	return v.showAccess(k, view{Status: http.StatusPreconditionFailed}, shown)
}

// maxLately is how many changes of others a page names.
const maxLately = 5

// newestRecord returns the number of the newest audit record; 0: there is none for the caller.
func (v *visit) newestRecord() (number int64, err error) {
	for record, err := range v.records(svc.AuditQuery{Limit: 1}) {
		if err != nil {
			return 0, err
		}
		number = record.Number
	}
	return number, nil
}

// lately names the newest changes of access since the preview, for callers who may read the audit.
func (v *visit) lately() (lines []string, err error) {
	seen, _ := strconv.ParseInt(v.form.Get("seen"), 10, 64) // 0: the preview saw no record
	for record, err := range v.records(svc.AuditQuery{Limit: 10 * maxLately}) {
		if err != nil {
			return nil, err
		}
		if len(lines) == maxLately || record.Number <= seen {
			break
		}
		if record.Action == event.AccessWritten || record.Action == event.AccessRemoved {
			actor := cmp.Or(record.Actor.ID, "the host")
			kind := strings.ReplaceAll(string(record.Target.Kind), "_", " ")
			line := actor + " changed " + kind + " " + record.Target.ID
			lines = append(lines, shorten(line, maxField))
		}
	}
	return lines, nil
}

// downloadDraft answers with the rows of a draft, as server apply and POST
// /admin/access-bundle take them.
func (v *visit) downloadDraft(d draft) error {
	if d.detach != nil {
		return svc.Invalid("then", "a bundle cannot say what is removed")
	}
	text, err := d.bundle.JSON()
	if err == nil {
		v.download("bundle.json", text)
	}
	return err
}

// download answers with JSON as a file.
func (v *visit) download(name string, text []byte) {
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	body := appendRevealed(nil, []byte(indented(text)+"\n"))
	send(v.w, v.r, http.StatusOK, "application/json", body, nil)
}
