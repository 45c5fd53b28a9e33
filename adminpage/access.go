package adminpage

import (
	"cmp"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// accessKind is a kind of rows with a list and a page for each.
type accessKind struct {
	path, tab, one string // "users", "Users", "User"
	read, write    string // the actions that the page and its acts need
	states         bool   // rows are active or inactive
	list           func(v *visit) iter.Seq2[accessRow, error]
	fill           func(v *visit, body *accessView, id string) error
}

// accessKinds are in the order of their tabs.
var accessKinds = []*accessKind{
	{
		path: "users", tab: "Users", one: "User", states: true,
		read: action.UsersRead, write: action.UsersWrite,
		list: (*visit).users, fill: (*visit).fillUser,
	},
	{
		path: "groups", tab: "Groups", one: "Group",
		read: action.GroupsRead, write: action.GroupsWrite,
		list: (*visit).groups, fill: (*visit).fillGroup,
	},
	{
		path: "policies", tab: "Policies", one: "Policy",
		read: action.PoliciesRead, write: action.PoliciesWrite,
		list: (*visit).policies, fill: (*visit).fillPolicy,
	},
	{
		path: "accounts", tab: "Service accounts", one: "Service account", states: true,
		read: action.AccountsManage, write: action.AccountsManage,
		list: (*visit).accounts, fill: (*visit).fillAccount,
	},
	{
		path: "banks", tab: "Banks", one: "Bank",
		read: action.BanksRead, write: action.BanksWrite,
		list: (*visit).banks, fill: (*visit).fillBank,
	},
}

// accessRoutes are the addresses of the lists, and of the page of each row.
func accessRoutes() []route {
	all := []route{{"GET", "/access", "Access", (*visit).access}}
	for _, k := range accessKinds {
		list, row := "/access/"+k.path, "/access/"+k.path+"/{id}"
		all = append(all, route{"GET", list, "Access", k.listPage},
			route{"GET", row, "Access", k.rowPage}, route{"POST", row, "Access", k.act})
	}
	return all
}

// accessRow is a row of a list.
type accessRow struct {
	ID, Name, Details string
	Inactive          bool
}

// accessListView is what the list of a kind shows.
type accessListView struct {
	Asked            url.Values
	Kind             string // the path
	Tabs             []tab
	States           []choice // nil: rows have no state
	Rows             []accessRow
	First, Last, All int  // the places of the rows, from 1, and how many match
	Least            bool // at least All match: see maxCounted
	Previous, Next   string
}

// tab is a link to a list.
type tab struct {
	Name, Address string
	Current       bool
}

// tabs returns the lists that the caller may see.
func (v *visit) tabs(current *accessKind) (all []tab, err error) {
	for _, k := range accessKinds {
		may, err := v.may(k.read)
		if err != nil {
			return nil, err
		}
		if may {
			all = append(all, tab{k.tab, "access/" + k.path, k == current})
		}
	}
	return all, nil
}

// access leads to the first list.
func (v *visit) access() error {
	return v.redirect("access/users")
}

// listPage lists the rows of a kind.
func (k *accessKind) listPage(v *visit) error {
	if err := v.need(k.read); err != nil {
		return err
	}
	tabs, err := v.tabs(k)
	if err != nil {
		return err
	}
	in := v.r.URL.Query()
	body := accessListView{Asked: in, Kind: k.path, Tabs: tabs}
	if k.states {
		states := []choice{
			{Name: "All"},
			{Value: "active", Name: "Active"},
			{Value: "inactive", Name: "Inactive"},
		}
		body.States = choices(states, in.Get("state"))
	}
	if err := body.fill(k.list(v)); err != nil {
		return err
	}
	return v.render(view{Template: "access", Title: "Access: " + k.tab, Body: body})
}

// maxCounted is the most rows behind a page that are read only to count them.
const maxCounted = 10_000

// fill takes one page of the rows that match, and counts them.
func (b *accessListView) fill(rows iter.Seq2[accessRow, error]) error {
	search, state := strings.ToLower(strings.TrimSpace(b.Asked.Get("search"))), b.Asked.Get("state")
	from, err := strconv.Atoi(cmp.Or(b.Asked.Get("from"), "0"))
	if err != nil || from < 0 {
		return svc.Invalid("from", "must be the number of rows to leave out")
	}
	counted := 0
	for row, err := range rows {
		if len(b.Rows) == pageRows {
			counted++
		}
		if b.Least = counted > maxCounted && b.All > from+pageRows; b.Least {
			break
		}
		switch {
		case err != nil:
			return err
		case state == "active" && row.Inactive, state == "inactive" && !row.Inactive,
			!row.has(search):
			continue
		}
		if b.All++; b.All > from && len(b.Rows) < pageRows {
			b.Rows = append(b.Rows, row)
		}
	}
	b.First, b.Last = from+1, from+len(b.Rows)
	address := "access/" + b.Kind
	if from > 0 {
		before := ""
		if from > pageRows {
			before = strconv.Itoa(from - pageRows)
		}
		b.Previous = with(address, b.Asked, "from", before)
	}
	if b.Last < b.All {
		b.Next = with(address, b.Asked, "from", strconv.Itoa(b.Last))
	}
	return nil
}

// has reports whether a row has a text in what the list shows of it.
func (r accessRow) has(search string) bool {
	return search == "" ||
		strings.Contains(strings.ToLower(r.ID+"\n"+r.Name+"\n"+r.Details), search)
}

// accessRows lists rows of the Service as rows of a page.
func accessRows[R any](all iter.Seq2[R, error], row func(R) accessRow) iter.Seq2[accessRow, error] {
	return func(yield func(accessRow, error) bool) {
		for r, err := range all {
			if err != nil {
				yield(accessRow{}, err)
				return
			}
			if !yield(row(r), nil) {
				return
			}
		}
	}
}

func (v *visit) users() iter.Seq2[accessRow, error] {
	all := v.h.service.Users.List(v.r.Context(), v.by, svc.UserQuery{})
	return accessRows(all, func(u svc.User) accessRow {
		return accessRow{u.ID, u.DisplayName, textOr(u.Email), u.Inactive}
	})
}

func (v *visit) groups() iter.Seq2[accessRow, error] {
	all := v.h.service.Groups.List(v.r.Context(), v.by, svc.GroupQuery{})
	return accessRows(all, func(g svc.Group) accessRow {
		return accessRow{ID: g.ID, Name: g.DisplayName}
	})
}

func (v *visit) policies() iter.Seq2[accessRow, error] {
	all := v.h.service.Policies.List(v.r.Context(), v.by, svc.RowQuery{})
	return accessRows(all, func(p svc.Policy) accessRow {
		row := accessRow{ID: p.ID, Name: p.DisplayName}
		if p.Builtin() {
			row.Details = "built in"
		}
		return row
	})
}

func (v *visit) accounts() iter.Seq2[accessRow, error] {
	all := v.h.service.ServiceAccounts.List(v.r.Context(), v.by, svc.ServiceAccountQuery{})
	return accessRows(all, func(a svc.ServiceAccount) accessRow {
		details := "owner " + a.OwnerUserID
		if a.ScopingPolicyID != "" {
			details += ", limited by " + a.ScopingPolicyID
		}
		return accessRow{a.ID, a.DisplayName, details, a.Inactive}
	})
}

func (v *visit) banks() iter.Seq2[accessRow, error] {
	all := v.h.service.Banks.List(v.r.Context(), v.by, svc.RowQuery{})
	return accessRows(all, func(b svc.BankPolicy) accessRow {
		return accessRow{ID: b.BankID, Details: "has a policy"}
	})
}

func textOr(text *string) string { return *cmp.Or(text, new("")) }
