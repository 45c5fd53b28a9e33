package adminpage

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// changeKeys finds a key, or issues, rotates, disables, enables or revokes one.
func (v *visit) changeKeys() error {
	if v.form.Get("do") == "find" {
		return v.findKey(strings.TrimSpace(v.form.Get("find")))
	}
	if err := v.changes(); err != nil {
		return err
	}
	var err error
	keys, holder, id := v.h.service.Keys, v.holder(), v.form.Get("key")
	do := v.form.Get("do")
	switch do {
	case "issue":
		return v.issueKey(holder)
	case "rotate":
		return v.rotateKey(holder)
	case "disable", "enable":
		patch := svc.APIKeyPatch{Disabled: new(do == "disable")}
		_, err = keys.Patch(v.r.Context(), v.by, holder, id, patch)
	case "revoke":
		err = keys.Revoke(v.r.Context(), v.by, holder, id)
	default:
		err = svc.Invalid("do", "must be find, issue, rotate, disable, enable or revoke")
	}
	back := url.Values{"holder": v.form["holder"], "which": v.form["which"]}
	if err != nil {
		return v.refuseKeys(err, keysView{Asked: back})
	}
	done := map[string]string{"disable": "disabled", "enable": "enabled", "revoke": "revoked"}[do]
	return v.redirect(with("keys", back, "done", done))
}

// holder returns the holder that the form names. The caller changes its own keys without further
// rights.
func (v *visit) holder() svc.Identity {
	holder := svc.Identity{Kind: svc.Kind(v.form.Get("kind")), ID: v.form.Get("for")}
	if v.hasOwnKeys() && holder == v.by.Identity() {
		return svc.Me
	}
	return holder
}

// findKey leads to the page of a key. The text may be a whole key: no address
// and no page repeats it.
func (v *visit) findKey(text string) error {
	v.names = "find"
	key, err := v.h.service.Keys.Find(v.r.Context(), v.by, text)
	if err != nil {
		return v.refuseKeys(err, keysView{Asked: url.Values{}})
	}
	return v.redirect("keys/" + url.PathEscape(key.ID))
}

// refuseKeys shows the list with an error. An error of the caller's own key ends the session.
func (v *visit) refuseKeys(err error, body keysView) error {
	switch svc.ErrorCode(err) {
	case svc.CodeUnauthenticated:
		return err
	case svc.CodeKeyReused:
		body.Once = "" // the form gets another
	}
	return v.showKeys(v.refusal(err), body)
}

// issueKey issues a key and shows it, once. A form that is sent again shows the same key.
func (v *visit) issueKey(holder svc.Identity) error {
	form := v.form
	body := keysView{
		Asked: url.Values{"holder": {form.Get("for")}}, Form: form, Once: form.Get("once"),
	}
	in := svc.NewAPIKey{
		IdempotencyKey: v.once(body.Once), ScopingPolicyID: strings.TrimSpace(form.Get("policy")),
	}
	if text := form.Get("description"); text != "" {
		in.Description = &text
	}
	var expires, rate, once error
	in.ExpiresAt, expires = instant("expires_at", form.Get("expires"), dayEnds)
	in.Rate, rate = rateOf(form)
	if body.Once == "" {
		once = svc.Invalid("once", "is missing: load the page again")
	}
	if wrong := errors.Join(expires, rate, once); wrong != nil {
		return v.refuseKeys(wrong, body)
	}
	issued, err := v.h.service.Keys.Issue(v.r.Context(), v.by, holder, in)
	if v.names = "who"; err != nil {
		return v.refuseKeys(err, body)
	}
	return v.showNew(issued, body, "Issued.")
}

// showNew shows a new key.
func (v *visit) showNew(issued svc.IssuedKey, body keysView, done string) error {
	body.New, body.Secret, body.Form, body.Once = &issued, string(issued.Key), nil, ""
	done += " Copy this key now. It will not be shown again."
	return v.showKeys(view{Done: done}, body)
}

// rateOf reads the rate of a key. Without both fields there is none.
func rateOf(form url.Values) (rate svc.Rate, err error) {
	perSecond := strings.TrimSpace(form.Get("per_second"))
	burst := strings.TrimSpace(form.Get("burst"))
	if perSecond == "" && burst == "" {
		return rate, nil
	}
	if rate.PerSecond, err = strconv.ParseFloat(perSecond, 64); err != nil {
		return rate, svc.Invalid("/rate/per_second", "must be a number, such as 10 or 0.5")
	}
	if rate.Burst = 1; burst != "" {
		if rate.Burst, err = strconv.Atoi(burst); err != nil {
			return rate, svc.Invalid("/rate/burst", "must be a whole number")
		}
	}
	return rate, nil
}

// overlaps are the choices of the field Overlap.
var overlaps = map[string]time.Duration{"": 0, "1h": time.Hour, "24h": 24 * time.Hour}

// rotateKey issues the successor of a key and shows it.
func (v *visit) rotateKey(holder svc.Identity) error {
	form := v.form
	body := keysView{
		Asked: url.Values{"holder": form["holder"], "which": form["which"]}, Once: form.Get("once"),
	}
	overlap, known := overlaps[form.Get("overlap")]
	if !known {
		return v.refuseKeys(svc.Invalid("overlap", "must be one of the choices"), body)
	}
	in := svc.Rotation{Overlap: overlap, IdempotencyKey: v.once(body.Once)}
	issued, err := v.h.service.Keys.Rotate(v.r.Context(), v.by, holder, form.Get("key"), in)
	if err != nil {
		return v.refuseKeys(err, body)
	}
	return v.showNew(issued, body, "Rotated.")
}
