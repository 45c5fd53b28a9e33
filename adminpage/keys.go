package adminpage

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// keysView is what the page Keys shows.
type keysView struct {
	Asked             url.Values
	Choices           []choice
	Keys              []keyRow
	More              string  // the address of the next page
	Revoke            *keyRow // asks for a confirmation; nil: no
	MayWrite, Account bool
	Form              url.Values // of a key to issue
	Once              string     // makes a form that is sent twice issue one key
	Users             []string   // suggestions for Holder and For
	New               *svc.IssuedKey
	Secret            string // of New
}

// keyRow is a key in the table.
type keyRow struct {
	svc.APIKey
	State string
}

// The choices of the field Which.
var whichKeys = []choice{
	{Value: "", Name: "All"},
	{Value: "expiring", Name: "Expiring in 30 days"},
	{Value: "unused", Name: "Not used for 90 days"},
}

const (
	soon   = 30 * 24 * time.Hour
	unused = 90 * 24 * time.Hour
)

// keysDone says in words what was done.
var keysDone = map[string]string{
	"disabled": "Disabled. The key is refused until it is enabled.",
	"enabled":  "Enabled. The key is accepted again.",
	"revoked":  "Revoked. The key is refused for good.",
}

// keys lists keys of all holders, or of one.
func (v *visit) keys() error {
	in := v.URL.Query()
	page := view{Title: "Keys", Done: keysDone[in.Get("done")]}
	return v.showKeys(http.StatusOK, page, keysView{Asked: in, Form: url.Values{"for": {in.Get("holder")}}})
}

// showKeys fills the list and shows the page.
func (v *visit) showKeys(status int, page view, body keysView) (err error) {
	if err := v.fillKeys(&body); svc.ErrorCode(err) == svc.CodeInvalid && page.Alerts == nil {
		status, page.Alerts = http.StatusBadRequest, v.problems(err)
	} else if err != nil {
		return err
	}
	if body.MayWrite, err = v.may(svc.ActionUsersWrite); err != nil {
		return err
	}
	if body.Account, err = v.may(svc.ActionAccountsManage); err != nil {
		return err
	}
	readOnly := v.h.options.ReadOnly
	body.MayWrite, body.Account = body.MayWrite && !readOnly, body.Account && !readOnly
	if body.Once == "" {
		body.Once = rand.Text()
	}
	body.Choices = choices(whichKeys, body.Asked.Get("which"))
	body.Users = v.suggestedUsers(body.Asked.Get("holder"))
	page.Template, page.Body, page.Secret = "keys", body, body.New != nil
	v.render(status, page)
	return nil
}

// fillKeys reads a page of keys.
func (v *visit) fillKeys(body *keysView) error {
	in, now := body.Asked, time.Now()
	query := svc.KeyQuery{Limit: pageRows + 1}
	switch in.Get("which") {
	case "expiring":
		query.ExpireBefore = now.Add(soon)
	case "unused":
		query.UnusedSince = now.Add(-unused)
	}
	kind := svc.Kind(in.Get("kind"))
	if cursor := in.Get("cursor"); cursor != "" {
		at, id, _ := strings.Cut(cursor, " ")
		var err error
		if query.AfterTime, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return svc.Invalid("cursor", "is not the end of a page: start at the first")
		}
		query.AfterID = id
	}
	var keys []svc.APIKey
	more := false
	for _, holder := range holders(in.Get("holder"), kind) {
		found, rest, err := take(v.h.service.Keys.List(v.Context(), v.by, holder, query))
		if skipped(err, holder, kind) {
			continue
		} else if err != nil {
			return err
		}
		if keys = append(keys, found...); rest {
			more, kind = true, holder.Kind
			break
		}
	}
	if more {
		last := keys[len(keys)-1]
		at := query.Position(last).UTC().Format(time.RFC3339Nano)
		body.More = with("keys", in, "cursor", at+" "+last.ID, "kind", string(kind), "revoke", "")
	}
	for _, key := range keys {
		row := keyRow{key, stateOf(key, now)}
		body.Keys = append(body.Keys, row)
		if key.ID == in.Get("revoke") {
			body.Revoke = &row
		}
	}
	return nil
}

// holders returns whose keys a page lists: everybody's, or those of the user and of the service
// account with that id.
func holders(id string, kind svc.Kind) []svc.Identity {
	if id = strings.TrimSpace(id); id == "" {
		return []svc.Identity{svc.AllHolders}
	}
	if kind != "" {
		return []svc.Identity{{Kind: kind, ID: id}}
	}
	return []svc.Identity{{Kind: svc.KindUser, ID: id}, {Kind: svc.KindServiceAccount, ID: id}}
}

// skipped reports whether an error means only that the id is no service account, or that the caller
// may not see those.
func skipped(err error, holder svc.Identity, kind svc.Kind) bool {
	code := svc.ErrorCode(err)
	return holder.Kind == svc.KindServiceAccount && kind == "" &&
		(code == svc.CodeNotFound || code == svc.CodeForbidden)
}

func stateOf(key svc.APIKey, now time.Time) string {
	switch {
	case key.Disabled:
		return "disabled"
	case !key.ExpiresAt.IsZero() && !now.Before(key.ExpiresAt):
		return "expired"
	case !key.ExpiresAt.IsZero() && key.ExpiresAt.Sub(now) < soon:
		return "expires soon"
	}
	return "active"
}

// changeKeys issues, disables, enables or revokes a key.
func (v *visit) changeKeys() error {
	if err := v.changes(); err != nil {
		return err
	}
	form := v.form
	holder := svc.Identity{Kind: svc.Kind(form.Get("kind")), ID: form.Get("for")}
	keys, id, done := v.h.service.Keys, form.Get("key"), ""
	var err error
	switch form.Get("do") {
	case "issue":
		return v.issueKey(form, holder)
	case "disable":
		done = "disabled"
		_, err = keys.Patch(v.Context(), v.by, holder, id, svc.APIKeyPatch{Disabled: new(true)})
	case "enable":
		done = "enabled"
		_, err = keys.Patch(v.Context(), v.by, holder, id, svc.APIKeyPatch{Disabled: new(false)})
	case "revoke":
		done = "revoked"
		err = keys.Revoke(v.Context(), v.by, holder, id)
	default:
		err = svc.Invalid("do", "must be issue, disable, enable or revoke")
	}
	back := url.Values{"holder": form["holder"], "which": form["which"]}
	if err != nil {
		return v.refuseKeys(err, keysView{Asked: back})
	}
	v.redirect(with("keys", back, "done", done))
	return nil
}

// refuseKeys shows the list with an error. An error of the caller's own key ends the session.
func (v *visit) refuseKeys(err error, body keysView) error {
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		return err
	}
	page := view{Title: "Keys", Alerts: v.problems(err)}
	return v.showKeys(httpapi.Status(err), page, body)
}

// issueKey issues a key and shows it, once. A form that is sent again shows the same key.
func (v *visit) issueKey(form url.Values, holder svc.Identity) error {
	body := keysView{
		Asked: url.Values{"holder": {holder.ID}}, Form: form, Once: form.Get("once"),
	}
	in := svc.NewAPIKey{IdempotencyKey: body.Once}
	if text := form.Get("description"); text != "" {
		in.Description = &text
	}
	var wrong error
	in.ExpiresAt, wrong = lastInstant("expires_at", form.Get("expires"))
	if body.Once == "" {
		wrong = errors.Join(wrong, svc.Invalid("once", "is missing: load the page again"))
	}
	if wrong != nil {
		return v.refuseKeys(wrong, body)
	}
	issued, err := v.h.service.Keys.Issue(v.Context(), v.by, holder, in)
	if err != nil {
		return v.refuseKeys(err, body)
	}
	body.New, body.Secret, body.Form, body.Once = &issued, string(issued.Key), nil, ""
	return v.showKeys(http.StatusOK, view{Title: "Keys", Done: "Issued. The key is shown only now: copy it."}, body)
}
