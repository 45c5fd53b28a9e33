package adminpage

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// keysView is what the page Keys shows.
type keysView struct {
	Asked   url.Values
	Choices []choice
	Note    string // whose keys are not listed, and why; "": all are
	Keys    []keyRow
	More    string      // the address of the next page
	Confirm *keyRow     // the key to revoke or to rotate; nil: none
	Do      string      // what to confirm
	Form    url.Values  // of a key to issue
	Once    string      // makes a form that is sent twice issue one key
	Users   []string    // suggestions for Holder and For
	Days    []time.Time // suggestions for Expires
	New     *svc.IssuedKey
	Secret  string // of New
	keyRights
}

// keyRow is a key in the table.
type keyRow struct {
	svc.APIKey
	State    string
	MayWrite bool
}

// keyRights are what the caller may do with keys.
type keyRights struct {
	Own           bool // list and change its own
	Reads, Writes bool // those of users
	Account       bool // those of service accounts
	page          *visit
}

// keyRights asks for the caller's rights.
func (v *visit) keyRights() (r keyRights, err error) {
	r.page, r.Own = v, v.hasOwnKeys()
	may, err := v.mayEach(action.UsersRead, action.UsersWrite, action.AccountsManage)
	if err != nil {
		return r, err
	}
	r.Reads, r.Writes, r.Account = may[0], may[1], may[2]
	if !r.Own && !r.Reads {
		return r, v.need(action.UsersRead)
	}
	return r, nil
}

// hasOwnKeys reports whether the caller has its own keys: it is a user, and not narrowed.
func (v *visit) hasOwnKeys() bool { return v.by.Kind == svc.KindUser && v.by.ScopingPolicyID == "" }

// MayIssue reports whether the page has a form to issue keys: service accounts and narrowed callers
// issue none.
func (r keyRights) MayIssue() bool { return !r.page.h.options.ReadOnly && r.Own }

// MayIssueAccount reports whether the form also serves service accounts.
func (r keyRights) MayIssueAccount() bool { return r.Writes && r.Account }

// mayWrite reports whether the caller may change the keys of a holder.
func (r keyRights) mayWrite(holder svc.Identity) bool {
	switch {
	case r.page.h.options.ReadOnly:
		return false
	case holder.Kind == svc.KindServiceAccount:
		return r.Account
	}
	return r.Writes || r.Own && holder.ID == r.page.by.ID
}

// The choices of the field Which.
var whichKeys = []choice{
	{Value: "", Name: "All"},
	{Value: "expired", Name: "Expired"},
	{Value: "expiring", Name: "Expires in 30 days"},
	{Value: "unused", Name: "Not used for 90 days"},
}

const (
	soon   = 30 * 24 * time.Hour
	unused = 90 * 24 * time.Hour
)

// keys lists keys of all holders, or of one.
func (v *visit) keys() error {
	in := v.r.URL.Query()
	form := url.Values{"for": {in.Get("holder")}}
	return v.showKeys(view{Done: v.done()}, keysView{Asked: in, Form: form})
}

// showKeys fills the list and shows the page.
func (v *visit) showKeys(page view, body keysView) (err error) {
	if body.keyRights, err = v.keyRights(); err != nil {
		return err
	}
	err = v.fillKeys(&body)
	switch {
	case err == nil || svc.ErrorCode(err) == svc.CodeForbidden && body.New != nil:
	case body.New != nil: // a new key is shown, whatever becomes of the list
		page.Alerts = v.problems(err)
	case svc.ErrorCode(err) == svc.CodeInvalid && page.Alerts == nil:
		page.Status, page.Alerts = http.StatusBadRequest, v.problems(err)
	default:
		return err
	}
	if err := v.confirm(&body); err != nil {
		return err
	}
	if body.Once == "" {
		body.Once = rand.Text()
	}
	for _, days := range []int{7, 30, 90, 365} {
		body.Days = append(body.Days, time.Now().UTC().AddDate(0, 0, days))
	}
	body.Choices = choices(whichKeys, body.Asked.Get("which"))
	body.Users = v.suggestedUsers(body.Asked.Get("holder"))
	page.Template, page.Title, page.Body = "keys", "Keys", body
	page.Secret = body.New != nil
	return v.render(page)
}

// confirm finds the key that is to be revoked or rotated.
func (v *visit) confirm(body *keysView) error {
	for _, do := range []string{"revoke", "rotate"} {
		id := body.Asked.Get(do)
		if id == "" {
			continue
		}
		key, err := v.h.service.Keys.Find(v.r.Context(), v.by, id)
		if err != nil {
			return err
		}
		row := body.row(key, time.Now())
		body.Confirm, body.Do = &row, do
		return nil
	}
	return nil
}

// row prepares a key for the table.
func (r keyRights) row(key svc.APIKey, now time.Time) keyRow {
	return keyRow{key, stateOf(key, now), r.mayWrite(key.Holder) && key.RevokedAt.IsZero()}
}

// fillKeys reads a page of keys.
func (v *visit) fillKeys(body *keysView) error {
	in, now := body.Asked, time.Now()
	query := svc.KeyQuery{Limit: pageRows + 1, Bare: true}
	switch in.Get("which") {
	case "expired":
		query.ExpireBefore = now
	case "expiring":
		query.ExpireBefore, query.AfterTime = now.Add(soon), now
	case "unused":
		query.UnusedSince = now.Add(-unused)
	}
	first := query
	if cursor := in.Get("cursor"); cursor != "" {
		at, id, _ := strings.Cut(cursor, " ")
		var err error
		if query.AfterTime, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return svc.Invalid("cursor", "is not the end of a page: start at the first")
		}
		query.AfterID = id
	}
	for _, holder := range body.holders() {
		keys, more, err := take(v.h.service.Keys.List(v.r.Context(), v.by, holder, query))
		if err != nil && !skipped(err, holder) {
			return err
		}
		for _, key := range keys {
			body.Keys = append(body.Keys, body.row(key, now))
		}
		if more {
			last := keys[len(keys)-1]
			at := query.Position(last).UTC().Format(time.RFC3339Nano)
			body.More = with("keys", in, "cursor", at+" "+last.ID, "kind", string(holder.Kind),
				"revoke", "", "rotate", "", "done", "")
			return nil
		}
		query = first
	}
	return nil
}

// holders returns whose keys a page lists: those of the user and of the service account with the id
// that was asked for, or else everybody's. A caller who may not see these sees its own. The keys of
// the user come first.
func (b *keysView) holders() []svc.Identity {
	id := strings.TrimSpace(b.Asked.Get("holder"))
	switch {
	case id == "" && b.Reads && b.Account:
		return []svc.Identity{svc.AllHolders}
	case id == "" && b.Reads:
		b.Note = "A list of all keys has those of service accounts, which you may not see." +
			" Enter a holder."
		fallthrough
	case id == "" || !b.Reads && id == b.page.by.ID:
		if b.Own {
			return []svc.Identity{svc.Me}
		}
		return nil
	}
	account := svc.Identity{Kind: svc.KindServiceAccount, ID: id}
	if b.Asked.Get("kind") == string(svc.KindServiceAccount) {
		return []svc.Identity{account}
	}
	return []svc.Identity{{Kind: svc.KindUser, ID: id}, account}
}

// skipped reports whether an error means only that the id is no user or no service account, or that
// the caller may not see the latter.
func skipped(err error, holder svc.Identity) bool {
	code := svc.ErrorCode(err)
	return code == svc.CodeNotFound || code == svc.CodeForbidden && holder.Kind == svc.KindServiceAccount
}

func stateOf(key svc.APIKey, now time.Time) string {
	switch {
	case !key.RevokedAt.IsZero():
		return "revoked"
	case key.Disabled:
		return "disabled"
	case !key.ExpiresAt.IsZero() && !now.Before(key.ExpiresAt):
		return "expired"
	case !key.ExpiresAt.IsZero() && key.ExpiresAt.Sub(now) < soon:
		return "expires soon"
	}
	return "active"
}
