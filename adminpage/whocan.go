package adminpage

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// whoCanView is what the page Who can shows.
type whoCanView struct {
	Asked   url.Values
	Action  string   // in the form
	Columns []string // actions
	Rows    []*reachRow
	More    string // the address of the next page
	// Unnamed says that no statement allows any of this on the bank: its name may be a mistake.
	Unnamed bool
}

// reachRow is what one principal, or the public, may do.
type reachRow struct {
	Name, Note string
	Cells      []reachCell
}

// reachCell is one decision; Address leads to the page Why, or is "".
type reachCell struct{ Word, Address string }

// whoCan lists the principals that may do one of some actions on a bank.
func (v *visit) whoCan() error {
	in := v.r.URL.Query()
	body := whoCanView{Asked: in, Action: cmp.Or(in.Get("action"), v.h.options.Actions[0])}
	page := view{Template: "who-can", Title: "Who can"}
	if in.Has("bank") || in.Has("action") {
		err := v.fillWhoCan(&body)
		if svc.ErrorCode(err) == svc.CodeInvalid {
			page.Status, page.Alerts = http.StatusBadRequest, v.problems(err)
		} else if err != nil {
			return err
		}
	} else if err := v.need(action.UsersRead); err != nil {
		return err
	}
	page.Body = body
	return v.render(page)
}

// fillWhoCan asks for each column, and merges the answers into rows.
func (v *visit) fillWhoCan(body *whoCanView) error {
	bank, action := body.Asked.Get("bank"), body.Asked.Get("action")
	body.Columns = []string{action}
	if action == "" {
		body.Columns = nil
	}
	for _, a := range v.h.options.Actions {
		if !slices.Contains(body.Columns, a) {
			body.Columns = append(body.Columns, a)
		}
	}
	reaches := make([]svc.WhoCanAnswer, len(body.Columns))
	for i, column := range body.Columns {
		var err error
		reaches[i], err = v.h.service.Policies.WhoCan(v.r.Context(), v.by, column, bank)
		if err != nil {
			return err
		}
	}
	body.Unnamed = !slices.ContainsFunc(reaches, func(r svc.WhoCanAnswer) bool {
		return slices.ContainsFunc(r.Statements, func(s svc.StatementRef) bool {
			return s.Effect == svc.EffectAllow
		})
	})
	rows := rowsOf(reaches)
	after := body.Asked.Get("after") + "\x00"
	start, _ := slices.BinarySearchFunc(rows, after, func(r *reachRow, after string) int {
		return strings.Compare(r.key(), after)
	})
	rows = rows[start:]
	if len(rows) > pageRows {
		rows = rows[:pageRows]
		body.More = with("who-can", body.Asked, "after", rows[pageRows-1].key())
	}
	for i := range rows {
		rows[i].fill(reaches, body.Columns, bank)
	}
	body.Rows = rows
	return nil
}

// The notes of rows, which are in the order of their keys.
const (
	noteUser    = ""
	noteAccount = "service account"
	notePublic  = "unknown senders"
)

// Kind returns the kind of a principal.
func (r *reachRow) Kind() svc.Kind {
	if r.Note == noteAccount {
		return svc.KindServiceAccount
	}
	return svc.KindUser
}

// key orders rows: users before service accounts before the public, then by id.
func (r *reachRow) key() string {
	return map[string]string{noteUser: "0", noteAccount: "1", notePublic: "2"}[r.Note] + r.Name
}

// rowsOf returns a row for each principal that some answer has, and for the public.
func rowsOf(reaches []svc.WhoCanAnswer) (rows []*reachRow) {
	seen := map[[2]string]bool{} // notes and ids
	add := func(note string, ids ...string) {
		for _, id := range ids {
			if k := [2]string{note, id}; !seen[k] {
				seen[k] = true
				rows = append(rows, &reachRow{Name: id, Note: note})
			}
		}
	}
	for _, r := range reaches {
		add(noteUser, r.Users...)
		add(noteAccount, r.ServiceAccounts...)
		if r.Public.Default || len(r.Public.Overrides) > 0 {
			add(notePublic, notePublic)
		}
	}
	slices.SortFunc(rows, func(a, b *reachRow) int { return strings.Compare(a.key(), b.key()) })
	return rows
}

// fill fills the cells of a row.
func (r *reachRow) fill(reaches []svc.WhoCanAnswer, columns []string, bank string) {
	r.Cells = make([]reachCell, len(reaches))
	for i, reach := range reaches {
		allowed := false
		switch r.Note {
		case noteUser:
			_, allowed = slices.BinarySearch(reach.Users, r.Name)
		case noteAccount:
			_, allowed = slices.BinarySearch(reach.ServiceAccounts, r.Name)
		case notePublic:
			r.Cells[i] = reachCell{Word: publicWord(reach.Public)}
			continue
		}
		q := asked{Kind: string(r.Kind()), Who: r.Name, Action: columns[i], Bank: bank}
		r.Cells[i] = reachCell{"denied", q.Address()}
		if allowed {
			r.Cells[i].Word = "allowed"
		}
	}
}

// places names the overrides that differ from the default, the first of them; "": none does.
func places(p svc.PublicReach) string {
	var names []string
	for _, o := range p.Overrides {
		if o.Allowed != p.Default {
			names = append(names, o.Scope+" "+shorten(o.Value, maxField))
		}
	}
	names, more := head(names, 3)
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// publicWord says what unmapped senders may do.
func publicWord(p svc.PublicReach) string {
	exceptions := places(p)
	switch {
	case exceptions != "" && p.Default:
		return "allowed, except " + exceptions
	case exceptions != "":
		return "only in " + exceptions
	case p.Default:
		return "allowed"
	}
	return "denied"
}
