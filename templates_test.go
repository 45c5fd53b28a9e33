package svc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/limits"
)

func create(t *testing.T, h *host, id string, content svc.Content) svc.Template {
	if content.Manifest == nil {
		content.Manifest = manifest(`{"version":"1"}`)
	}
	if content.Name == "" {
		content.Name = "The " + id
	}
	return must(h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: id, Content: content}))
}

// One error joins so many, and says that there may be more.
func TestErrorsHaveAnEnd(t *testing.T) {
	is, h := is.New(t), newHost(t)
	rows := h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: make([]svc.User, 5000), Policies: make([]svc.Policy, 5000)})
	references := h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Groups: []svc.Group{{ID: "g", Members: strings.Split(strings.Repeat("u ", 5000)+"u", " ")}}})
	for _, err := range []error{rows, references, refusedManifest(t, errors.Join(slices.Repeat([]error{errors.New("no")}, 5000)...))} {
		all := svc.Errors(err)
		is.Equal(len(all), limits.Errors+1)
		wantCode(t, all[limits.Errors], svc.CodeInvalid, "")
	}
	is.True(len(svc.Lint(svc.Bundle{Users: make([]svc.User, 500)}, nil)) >= 500) // what a person asks for is whole
}

func (h *host) personal(ctx context.Context, by svc.Principal, id string) map[string]func() error {
	return ofHalf(ctx, h.MyTemplates, h.MySources, svc.ScopePersonal, by, id)
}

// ofHalf are calls of all methods of a half about an id, by the action that each needs in the personal one and its name.
func ofHalf(
	ctx context.Context, templates *svc.Templates, sources *svc.Sources, scope svc.Scope, by svc.Principal, id string,
) map[string]func() error {
	source, install := svc.NewSource{URL: acme, Alias: ptr(id)}, svc.Install{TemplateID: id, SourceName: id, SourceScope: scope}
	merged := svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: ptr(content("X", "2"))}
	template := svc.NewTemplate{ID: id, Content: content("X", "1")}
	return map[string]func() error{
		"template:list Read":                     func() error { return errorOf(templates.Read(ctx, by, id)) },
		"template:list List":                     func() error { return lastError(templates.List(ctx, by, svc.TemplateQuery{})) },
		"template:list ETag":                     func() error { return errorOf(templates.ETag(ctx, by)) },
		"template:list CheckUpdate":              func() error { return errorOf(templates.CheckUpdate(ctx, by, id)) },
		"template:list CheckUpdates":             func() error { return errorOf(templates.CheckUpdates(ctx, by, nil)) },
		"template:list Diff":                     func() error { return errorOf(templates.Diff(ctx, by, id)) },
		"template:list History":                  func() error { return lastError(templates.History(ctx, by, id)) },
		"template:create Create":                 func() error { return errorOf(templates.Create(ctx, by, template)) },
		"template:manage Patch":                  func() error { return errorOf(templates.Patch(ctx, by, id, svc.TemplatePatch{})) },
		"template:manage Rollback":               func() error { return errorOf(templates.Rollback(ctx, by, id, 1)) },
		"template:manage Delete":                 func() error { return templates.Delete(ctx, by, id) },
		"template:install Install":               func() error { return errorOf(templates.Install(ctx, by, install)) },
		"template:install Update":                func() error { return errorOf(templates.Update(ctx, by, id, svc.UpdateRequest{})) },
		"template:install Update with a content": func() error { return errorOf(templates.Update(ctx, by, id, merged)) },
		"template:source List":                   func() error { return lastError(sources.List(ctx, by)) },
		"template:source Browse":                 func() error { return errorOf(sources.Browse(ctx, by, id, svc.CatalogFilter{})) },
		"template:source Search":                 func() error { return errorOf(sources.Search(ctx, by, svc.CatalogFilter{})) },
		"template:source Patch":                  func() error { return errorOf(sources.Patch(ctx, by, id, svc.SourcePatch{})) },
		"template:source Rebind":                 func() error { return errorOf(sources.Rebind(ctx, by, id)) },
		"template:source Register":               func() error { return errorOf(sources.Register(ctx, by, source)) },
		"template:source Remove":                 func() error { return sources.Remove(ctx, by, id) },
	}
}

var personalActions = []string{action.TemplateList, action.TemplateCreate, action.TemplateManage, action.TemplateInstall, action.TemplateSource, action.TemplateAdmin}

// personalStaff has the users owner, who may do everything with templates, and other, who may do as much. Of each action there are a policy
// p-ACTION that allows it alone, a user u-ACTION with that policy, and an account of owner that is scoped by it, s-ACTION.
func personalStaff() string {
	allow := func(id, actions string) string {
		return fmt.Sprintf(`{"id":%q,"document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":[%q],"banks":["*"]}]}}`, id, actions)
	}
	attach := func(policy, user string) string {
		return fmt.Sprintf(`{"policy_id":%q,"principal_type":"user","principal_id":%q}`, policy, user)
	}
	users, accounts := []string{`{"id":"owner"}`, `{"id":"other"}`, `{"id":"plain"}`}, []string{`{"id":"ops","owner_user_id":"owner"}`, `{"id":"poor","owner_user_id":"plain"}`}
	policies, attachments := []string{allow("all", "template:*")}, []string{attach("all", "owner"), attach("all", "other")}
	for _, action := range personalActions {
		id := strings.TrimPrefix(action, "template:")
		users = append(users, fmt.Sprintf(`{"id":"u-%s"}`, id))
		policies = append(policies, allow("p-"+id, action))
		attachments = append(attachments, attach("p-"+id, "u-"+id))
		accounts = append(accounts, fmt.Sprintf(`{"id":"s-%s","owner_user_id":"owner","scoping_policy_id":"p-%s"}`, id, id))
	}
	return fmt.Sprintf(`{"users":[%s],"service_accounts":[%s],"policies":[%s],"attachments":[%s]}`,
		strings.Join(users, ","), strings.Join(accounts, ","), strings.Join(policies, ","), strings.Join(attachments, ","))
}

func withPersonalStaff(t *testing.T, edits ...func(*svc.Config)) *host {
	t.Helper()
	h := newHost(t, edits...)
	h.apply(t, personalStaff())
	h.market.put(acme, "x", content("X", "1"))
	h.actions()
	return h
}

var owner, other = user("owner"), user("other")

// Each method needs its own action: of the caller's stored policies, of its narrowing, of the scope of an account, or vouched for.
func TestPersonalRights(t *testing.T) {
	h := withPersonalStaff(t)
	narrowed := func(by svc.Principal, policy string) svc.Principal { by.ScopingPolicyID = policy; return by }
	type actor struct {
		by    svc.Principal
		every bool // it has all actions
	}
	nobodies := []svc.Principal{
		svc.Host, svc.Unmapped, user("plain"), user("nobody"), account("poor"), account("nobody"), account("nobody", "template:*"), {Kind: "ghost", ID: "owner"}, {},
		user("a/b", "template:*"), user("", "template:*"), narrowed(owner, "gone"), narrowed(user("plain"), "all"), {Kind: svc.KindUnmapped, ID: "owner", Actions: []string{"template:*"}},
	}
	for name := range h.personal(t.Context(), svc.Host, "") {
		needed, _, _ := strings.Cut(name, " ")
		all := []actor{{owner, true}, {account("ops"), true}, {user("vouched", "template:*"), true}, {narrowed(owner, "all"), true}}
		for _, by := range nobodies {
			all = append(all, actor{by: by})
		}
		for _, action := range personalActions {
			id, has := strings.TrimPrefix(action, "template:"), action == needed
			all = append(all, actor{user("u-" + id), has}, actor{account("s-" + id), has}, actor{narrowed(owner, "p-"+id), has},
				actor{user("vouched", action), has}, actor{narrowed(account("ops"), "p-"+id), has})
		}
		for _, a := range all {
			err := h.personal(t.Context(), a.by, "nothing")[name]()
			expect.Equal(t, []any{name, a.by, err}, svc.ErrorCode(err) == svc.CodeForbidden, !a.every)
			_ = h.MyTemplates.Delete(t.Context(), a.by, "nothing")
			_ = h.MySources.Remove(t.Context(), a.by, "nothing")
		}
	}
}

// What is wrong with a request comes before the rights, and what is not there behind them.
func TestTemplatesAnswerInOrder(t *testing.T) {
	h, fields := withPersonalStaff(t), map[string]string{
		"template:create Create": "/id", "template:source Register": "/alias", "template:source Browse": "name", "template:source Patch": "name",
		"template:source Rebind": "name", "template:source Remove": "name",
	}
	for scope, calls := range map[svc.Scope]func(by svc.Principal, id string) map[string]func() error{
		svc.ScopePersonal: func(by svc.Principal, id string) map[string]func() error { return h.personal(t.Context(), by, id) },
		svc.ScopeServer: func(by svc.Principal, id string) map[string]func() error {
			return ofHalf(t.Context(), h.Templates, h.Sources, svc.ScopeServer, by, id)
		},
	} {
		for _, c := range []struct {
			by   svc.Principal
			id   string
			code svc.Code
			but  string
		}{
			{user("plain"), "..", svc.CodeInvalid, "ETag CheckUpdates List Search"},
			{user("plain"), "nothing", svc.CodeForbidden, ""},
			{owner, "nothing", svc.CodeNotFound, "ETag CheckUpdates List Search Create Register"},
		} {
			for name, call := range calls(c.by, c.id) {
				if strings.Contains(c.but, name[strings.Index(name, " ")+1:]) {
					continue
				}
				field := ""
				if c.code == svc.CodeInvalid {
					field = cmp.Or(fields[name], "template_id")
				}
				t.Run(string(scope)+" "+name+" "+string(c.code), func(t *testing.T) { wantCode(t, call(), c.code, field) })
			}
		}
	}
}

func (h *host) personalState(t *testing.T, by svc.Principal) (state []string) {
	t.Helper()
	for _, template := range collect(t, h.MyTemplates.List(t.Context(), by, svc.TemplateQuery{})) {
		state = append(state, fmt.Sprintf("%s %s %s %s", template.Scope, template.Owner, template.ID, template.Name))
	}
	for _, source := range collect(t, h.MySources.List(t.Context(), by)) {
		state = append(state, fmt.Sprintf("%s %s source %s", source.Scope, source.Owner, source.Name))
	}
	return state
}
