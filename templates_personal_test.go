package svc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/limits"
)

// personalMethods are all methods of the personal half, by the action that each needs and its name.
var personalMethods = map[string]func(h *host, ctx context.Context, by svc.Principal, id string) error{
	"template:list Read": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.Read(ctx, by, id))
	},
	"template:list List": func(h *host, ctx context.Context, by svc.Principal, _ string) error {
		return lastError(h.MyTemplates.List(ctx, by, svc.TemplateQuery{}))
	},
	"template:list ETag": func(h *host, ctx context.Context, by svc.Principal, _ string) error {
		return errorOf(h.MyTemplates.ETag(ctx, by))
	},
	"template:list CheckUpdate": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.CheckUpdate(ctx, by, id))
	},
	"template:list CheckUpdates": func(h *host, ctx context.Context, by svc.Principal, _ string) error {
		return errorOf(h.MyTemplates.CheckUpdates(ctx, by, nil))
	},
	"template:list Diff": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.Diff(ctx, by, id))
	},
	"template:list History": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return lastError(h.MyTemplates.History(ctx, by, id))
	},
	"template:create Create": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.Create(ctx, by, svc.NewTemplate{ID: id, Content: content("X", "1")}))
	},
	"template:manage Patch": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.Patch(ctx, by, id, svc.TemplatePatch{}))
	},
	"template:manage Rollback": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.Rollback(ctx, by, id, 1))
	},
	"template:manage Delete": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return h.MyTemplates.Delete(ctx, by, id)
	},
	"template:install Install": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		_, err := h.MyTemplates.Install(ctx, by, svc.Install{TemplateID: id, SourceName: id, SourceScope: svc.ScopePersonal})
		return err
	},
	"template:install Update": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MyTemplates.Update(ctx, by, id, svc.UpdateRequest{}))
	},
	"template:install Update with a content": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		_, err := h.MyTemplates.Update(ctx, by, id, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: ptr(content("X", "2"))})
		return err
	},
	"template:source List": func(h *host, ctx context.Context, by svc.Principal, _ string) error {
		return lastError(h.MySources.List(ctx, by))
	},
	"template:source Browse": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MySources.Browse(ctx, by, id, svc.CatalogFilter{}))
	},
	"template:source Search": func(h *host, ctx context.Context, by svc.Principal, _ string) error {
		return errorOf(h.MySources.Search(ctx, by, svc.CatalogFilter{}))
	},
	"template:source Rebind": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MySources.Rebind(ctx, by, id))
	},
	"template:source Register": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return errorOf(h.MySources.Register(ctx, by, svc.NewSource{URL: acme, Alias: ptr(id)}))
	},
	"template:source Remove": func(h *host, ctx context.Context, by svc.Principal, id string) error {
		return h.MySources.Remove(ctx, by, id)
	},
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
	for name, call := range personalMethods {
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
			err := call(h, t.Context(), a.by, "nothing")
			if refused := svc.ErrorCode(err) == svc.CodeForbidden; refused == a.every {
				t.Errorf("%s by %+v: %v", name, a.by, err)
			}
			_ = h.MyTemplates.Delete(t.Context(), a.by, "nothing")
			_ = h.MySources.Remove(t.Context(), a.by, "nothing")
		}
	}
}

// What is wrong with a request comes before the rights, and what is not there behind them.
func TestPersonalAnswersInOrder(t *testing.T) {
	h := withPersonalStaff(t)
	for name, call := range personalMethods {
		if !strings.Contains("ETag CheckUpdates List Search", name[strings.Index(name, " ")+1:]) {
			if err := call(h, t.Context(), svc.Host, ".."); svc.ErrorCode(err) != svc.CodeInvalid {
				t.Errorf("%s of no id: %v", name, err)
			}
		}
	}
}

// personalState is all that a caller sees of its own.
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

// An id belongs to the server, and to each user, once. Nobody sees or changes what is another's: it is as if it were unknown.
func TestPersonalIsOnesOwn(t *testing.T) {
	is := is.New(t)
	h := withPersonalStaff(t)
	for i, by := range []svc.Principal{owner, other} {
		must(h.MySources.Register(t.Context(), by, svc.NewSource{URL: acme}))
		wantCode(t, errorOf(h.MySources.Register(t.Context(), by, svc.NewSource{URL: acme})), svc.CodeExists, "/alias")
		installed, err := h.MyTemplates.Install(t.Context(), by, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
		is.NoErr(err)
		is.Equal(installed.TemplateKey, svc.TemplateKey{Scope: svc.ScopePersonal, Owner: by.ID, ID: "x"})
		is.Equal(installed.Origin.Source, svc.SourceKey{Scope: svc.ScopePersonal, Owner: by.ID, Name: "acme"})
		_, err = h.MyTemplates.Create(t.Context(), by, svc.NewTemplate{ID: "x", Content: content("X", "1")})
		wantCode(t, err, svc.CodeExists, "/id")
		_, err = h.MyTemplates.Create(t.Context(), by, svc.NewTemplate{ID: fmt.Sprint("only-", i), Content: content("Only", "1")})
		is.NoErr(err)
	}
	create(t, h, "x", svc.Content{})
	create(t, h, "server", svc.Content{})
	is.Equal(h.personalState(t, owner), []string{"personal owner only-0 Only", "personal owner x X", "personal owner source acme"})
	is.Equal(h.personalState(t, other), []string{"personal other only-1 Only", "personal other x X", "personal other source acme"})
	is.Equal(h.personalState(t, account("ops")), h.personalState(t, owner))
	is.Equal(h.personalState(t, user("third", "template:*")), nil)
	is.Equal(len(collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{}))), 2)
	is.Equal(len(collect(t, h.Sources.List(t.Context(), admin))), 0)

	_, unknown := h.MyTemplates.Read(t.Context(), owner, "nothing")
	for name, call := range personalMethods {
		for _, id := range []string{"only-1", "server"} {
			if err := call(h, t.Context(), owner, id); strings.Contains(name, "template:manage") || strings.Contains(name, "Update ") {
				wantCode(t, err, svc.CodeNotFound, "")
			}
			_ = h.MyTemplates.Delete(t.Context(), owner, id)
			_ = h.MySources.Remove(t.Context(), owner, id)
		}
	}
	for _, id := range []string{"only-1", "server"} {
		_, err := h.MyTemplates.Read(t.Context(), owner, id)
		is.Equal(err.Error(), unknown.Error())
	}
	_, err := h.Templates.Read(t.Context(), admin, "only-0")
	is.Equal(err.Error(), unknown.Error())
	_, err = h.MyTemplates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme", AliasID: ptr("y")})
	wantCode(t, err, svc.CodeNotFound, "") // the server has no such source
	is.NoErr(h.MyTemplates.Delete(t.Context(), owner, "x"))
	is.NoErr(h.MySources.Remove(t.Context(), owner, "acme"))
	is.Equal(h.personalState(t, other), []string{"personal other only-1 Only", "personal other x X", "personal other source acme"})
	must(h.Templates.Read(t.Context(), admin, "x"))
}

// An account works for its owner, with the rights that it has itself.
func TestPersonalOfAnAccount(t *testing.T) {
	is := is.New(t)
	h := withPersonalStaff(t)
	must(h.MySources.Register(t.Context(), account("s-source"), svc.NewSource{URL: acme}))
	installed, err := h.MyTemplates.Install(t.Context(), account("s-install"), svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
	is.NoErr(err)
	is.Equal(installed.Owner, "owner")
	h.mu.Lock()
	for _, event := range h.events {
		is.Equal(event.Target.Owner, "owner")
		is.Equal(event.Target.Scope, svc.ScopePersonal)
		is.Equal(event.Actor.Kind, svc.KindServiceAccount)
	}
	is.Equal(len(h.events), 2)
	h.mu.Unlock()
	is.Equal(must(h.MyTemplates.Read(t.Context(), owner, "x")), installed)

	// For the server, too, a personal source is that of the account's owner.
	server, err := h.Templates.Install(t.Context(), account("ops"), svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
	is.NoErr(err)
	is.Equal(server.Scope, svc.ScopeServer)
	is.Equal(server.Origin.Source.Owner, "owner")
	_, err = h.Templates.Install(t.Context(), account("s-install"), svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
	wantCode(t, err, svc.CodeForbidden, "")
	is.NoErr(h.MySources.Remove(t.Context(), owner, "acme")) // what came from it stays
	is.Equal(h.personalState(t, owner), []string{"personal owner x X"})
	must(h.Templates.Read(t.Context(), admin, "x"))
}

// A user has no more than is allowed, however many calls add at once, and whoever makes them. The server has no such limit.
func TestPersonalLimits(t *testing.T) {
	for what, c := range map[string]struct {
		most int
		add  func(h *host, ctx context.Context, by svc.Principal, id string) error
		drop func(h *host, ctx context.Context, by svc.Principal, id string) error
	}{
		"templates": {limits.PersonalTemplates, personalMethods["template:create Create"], personalMethods["template:manage Delete"]},
		"sources":   {limits.PersonalSources, personalMethods["template:source Register"], personalMethods["template:source Remove"]},
	} {
		t.Run(what, func(t *testing.T) {
			is := is.New(t)
			h := withPersonalStaff(t, func(c *svc.Config) { c.Events.OnEvent = nil })
			for i := range c.most - 3 {
				is.NoErr(c.add(h, t.Context(), owner, fmt.Sprint("n", i)))
			}
			var added atomic.Int64
			var group sync.WaitGroup
			for i := range 8 {
				group.Go(func() {
					by := []svc.Principal{owner, account("ops")}[i%2]
					if err := c.add(h, t.Context(), by, fmt.Sprint("at-once", i)); err == nil {
						added.Add(1)
					} else {
						wantCode(t, err, svc.CodeLimit, "")
					}
				})
			}
			group.Wait()
			is.Equal(added.Load(), int64(3))
			is.Equal(len(h.personalState(t, owner)), c.most)
			is.NoErr(c.add(h, t.Context(), other, "n0"))
			wantCode(t, c.add(h, t.Context(), owner, "one-more"), svc.CodeLimit, "")
			is.NoErr(c.drop(h, t.Context(), owner, "n0"))
			is.NoErr(c.add(h, t.Context(), owner, "one-more"))
		})
	}
}

// A repeated request gets its answer, also where no more is allowed. The halves have requests of their own.
func TestPersonalInstallsAreRepeatable(t *testing.T) {
	is := is.New(t)
	h := withPersonalStaff(t, func(c *svc.Config) { c.Events.OnEvent = nil })
	must(h.Sources.Register(t.Context(), owner, svc.NewSource{URL: acme}))
	in := svc.Install{TemplateID: "x", SourceName: "acme", IdempotencyKey: "once"}
	first := must(h.MyTemplates.Install(t.Context(), owner, in))
	is.Equal(first.Origin.Source.Scope, svc.ScopeServer)
	for i := range limits.PersonalTemplates - 1 {
		is.NoErr(personalMethods["template:create Create"](h, t.Context(), owner, fmt.Sprint("n", i)))
	}
	is.Equal(must(h.MyTemplates.Install(t.Context(), owner, in)), first)
	wantCode(t, errorOf(h.Templates.Install(t.Context(), owner, in)), svc.CodeKeyReused, "Idempotency-Key")
	in.IdempotencyKey, in.AliasID = "twice", ptr("y")
	wantCode(t, errorOf(h.MyTemplates.Install(t.Context(), owner, in)), svc.CodeLimit, "")
	is.NoErr(h.MyTemplates.Delete(t.Context(), owner, "n0"))
	_, err := h.MyTemplates.Install(t.Context(), owner, in) // a refusal is no answer
	is.NoErr(err)
}

// deleted is a store in which a user is deleted between the look at its rights and the transaction.
type deleted struct {
	svc.Store
	user *string
}

func (s deleted) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, deletedTx{tx, s.user}) })
}

type deletedTx struct {
	svc.Store
	user *string
}

func (s deletedTx) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	snapshot, err := s.Store.Access(ctx, query)
	if snapshot.User != nil && snapshot.User.ID == *s.user {
		snapshot.User = nil
	}
	return snapshot, err
}

// Nothing is left for a user that is deleted meanwhile. A user of the host, without a row, is none that could be.
func TestPersonalOfADeletedUser(t *testing.T) {
	is := is.New(t)
	gone := ""
	h := withPersonalStaff(t, func(c *svc.Config) { c.Store = deleted{c.Store, &gone} })
	add := func(by svc.Principal, id string) (codes []svc.Code) {
		for _, method := range []string{"template:create Create", "template:source Register", "template:install Install"} {
			codes = append(codes, svc.ErrorCode(personalMethods[method](h, t.Context(), by, id)))
		}
		return codes
	}
	h.market.put(acme, "b", content("B", "1"))
	refused := []svc.Code{svc.CodeForbidden, svc.CodeForbidden, svc.CodeForbidden}
	gone = "owner"
	is.NoErr(func() error { _, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}); return err }())
	is.Equal(add(owner, "a")[:2], refused[:2])
	is.Equal(add(account("ops"), "a")[:2], refused[:2])
	_, err := h.MyTemplates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme"})
	wantCode(t, err, svc.CodeForbidden, "")
	is.Equal(h.personalState(t, owner), nil)
	is.Equal(add(other, "b"), []svc.Code{"", "", svc.CodeExists})
	gone = "vouched"
	is.Equal(add(user("vouched", "template:*"), "b"), []svc.Code{"", "", svc.CodeExists})
}

// In a transaction of the host, own templates and sources are part of it.
func TestPersonalInATransaction(t *testing.T) {
	is := is.New(t)
	h := withPersonalStaff(t)
	back := errors.New("back")
	for _, end := range []error{back, nil} {
		err := h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
			in := &host{Service: h.WithTx(tx)}
			is.NoErr(personalMethods["template:create Create"](in, ctx, account("ops"), "x"))
			is.NoErr(personalMethods["template:source Register"](in, ctx, owner, "x"))
			is.Equal(len(in.personalState(t, owner)), 2)
			return end
		})
		is.True(errors.Is(err, end))
		is.Equal(len(h.personalState(t, owner)) == 2, end == nil)
	}
}

// Each half is compared with sources by itself, and the copies of the server's are not touched by what users do.
func TestPersonalUpdates(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.apply(t, personalStaff())
	var tag string
	eventually(t, func() (kept bool) { tag, kept = h.tag(t); return kept })
	for _, by := range []svc.Principal{owner, other} {
		_, err := h.MyTemplates.Install(t.Context(), by, svc.Install{TemplateID: "x", SourceName: "acme", AliasID: ptr("of-" + by.ID)})
		is.NoErr(err)
	}
	is.Equal(must(h.Templates.ETag(t.Context(), admin)), tag)
	is.Equal(must(h.MyTemplates.ETag(t.Context(), owner)), "")

	h.market.catalog = svc.Catalog{Revision: "1", Entries: []svc.CatalogEntry{{ID: "x", Content: content("X", "2")}}}
	h.market.put(acme, "x", content("X", "2"))
	for range 2 {
		for by, id := range map[string]string{"owner": "of-owner", "other": "of-other", "admin": "x"} {
			check, caller := h.MyTemplates.CheckUpdates, user(by)
			if by == "admin" {
				check, caller = h.Templates.CheckUpdates, admin
			}
			report := must(check(t.Context(), caller, nil))
			is.Equal(report.Checked, 1)
			is.Equal(report.Templates[0].ID, id)
		}
	}
	offered := must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))
	is.Equal(offered.Templates[0].InstalledAs, []string{"x"})
	must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: ptr("mine")}))
	_, err := h.MyTemplates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "mine", SourceScope: svc.ScopePersonal})
	is.NoErr(err)
	found := must(h.MySources.Search(t.Context(), owner, svc.CatalogFilter{}))
	is.Equal(len(found), 1)
	is.Equal(found[0].Templates[0].InstalledAs, []string{"x"})
	is.True(must(h.MyTemplates.Update(t.Context(), owner, "of-owner", svc.UpdateRequest{})).Updated)
	is.True(len(must(h.MyTemplates.Diff(t.Context(), other, "of-other")).Changes) > 0)
	versions := collect(t, h.MyTemplates.History(t.Context(), owner, "of-owner"))
	is.Equal(len(versions), 1)
	back := must(h.MyTemplates.Rollback(t.Context(), owner, "of-owner", versions[0].Number))
	is.Equal(string(back.Manifest), `{"version":"1"}`)
	is.Equal(string(must(h.Templates.Read(t.Context(), admin, "x")).Manifest), `{"version":"1"}`)
}
