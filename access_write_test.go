package svc_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// pausing is a store that does something else once, before the first write of a call. It counts transactions.
type pausing struct {
	intercept.Store
	before       func()
	judged       func() // before the rows of an edit are read outside of a transaction
	transactions atomic.Int64
	within       bool // a transaction runs
}

func newPausing(store svc.FullStore) *pausing {
	s := &pausing{}
	s.Store = intercept.Store{FullStore: store, Around: func(_ context.Context, call intercept.Call) error {
		inBackground := call.Method == "UseAPIKeys" || call.Method == "ChainAudit"
		if before := s.before; call.Writes && !inBackground && before != nil {
			s.before = nil
			before()
		}
		switch call.Method {
		case "Atomically":
			s.transactions.Add(1)
			s.within = true
			defer func() { s.within = false }()
		case "ReadAccess":
			if s.judged != nil && call.Args[0].(svc.AccessRead).Named != nil {
				s.judged()
			}
		}
		return call.Do()
	}}
	return s
}

// waits is a host whose writes wait: another service of the store does something meanwhile.
type waits struct {
	*host
	store     *pausing
	other     *host
	by        svc.Principal // ann, who may do everything
	key, mine svc.IssuedKey // bob's, and another one of ann
	accounts  svc.IssuedKey // of the account "bot" of ann
}

//go:embed testdata/waits.json
var waitsWorld string

// newWaits returns such a host. With a session ann has no key.
func newWaits(t *testing.T, session bool, edits ...func(*svc.Config)) *waits {
	t.Helper()
	is, w := is.New(t), &waits{store: newPausing(nil)}
	w.other = newHost(t)
	w.host = newHost(t, append(edits, importing, func(c *svc.Config) {
		w.store.FullStore = w.other.store.(svc.FullStore)
		c.Store = w.store
	})...)
	w.other.apply(t, waitsWorld)
	issue := func(holder svc.Identity) svc.IssuedKey {
		return must(w.other.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
	}
	w.key, w.mine, w.accounts = issue(user("bob").Identity()), issue(user("ann").Identity()), issue(account("bot").Identity())
	w.by = user("ann")
	for _, half := range []struct {
		sources   *svc.Sources
		templates *svc.Templates
		scope     svc.Scope
	}{{w.Sources, w.Templates, svc.ScopeServer}, {w.MySources, w.MyTemplates, svc.ScopePersonal}} {
		must(half.sources.Register(t.Context(), w.by, svc.NewSource{URL: acme}))
		must(half.sources.Register(t.Context(), w.by, svc.NewSource{URL: acme, Alias: new("moved")}))
		for i, id := range []string{"x", "y"} {
			w.market.put(acme, id, content("X", "1"))
			in := svc.Install{TemplateID: id, SourceName: []string{"acme", "moved"}[i], SourceScope: half.scope}
			must(half.templates.Install(t.Context(), w.by, in))
			w.market.put(acme, id, content("X", "2"))
		}
		must(half.templates.Patch(t.Context(), w.by, "x", svc.TemplatePatch{Category: &svc.TextPatch{Value: new("c")}}))
		is.NoErr(half.sources.Remove(t.Context(), w.by, "moved"))
		must(half.sources.Register(t.Context(), w.by, svc.NewSource{URL: acme + "/2", Alias: new("moved")}))
	}
	if !session {
		key := issue(user("ann").Identity())
		w.by = must(w.Authenticate(t.Context(), string(key.Key)))
	}
	must(w.Decide(t.Context(), w.by, "iam:users:write", "*", svc.Context{})) // so that it is cached
	return w
}

// mutations are all calls that write for a caller. Those that start with "me" need no action.
func (w *waits) mutations(ctx context.Context) map[string]func() error {
	by, bob, once, little := w.by, user("bob").Identity(), svc.NewAPIKey{IdempotencyKey: "once"}, svc.AttachmentKey{
		PolicyID: "little", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"},
	}
	on, off := svc.APIKeyPatch{Disabled: new(false), Description: &svc.TextPatch{Value: new("d")}}, svc.APIKeyPatch{Disabled: new(true)}
	taken, made := svc.ImportedKey{Prefix: "sk-", Hash: make([]byte, 32)}, svc.ServiceAccount{ID: "new", DisplayName: "New"}
	notes, rows := svc.BankPolicy{BankID: "notes", Document: []byte(bankDoc)}, svc.Bundle{Users: []svc.User{{ID: "new"}}}
	all := map[string]func() error{
		"me issue": func() error { return errorOf(w.Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{})) },
		"me patch": func() error { return errorOf(w.Keys.Patch(ctx, by, svc.Me, w.mine.ID, off)) },
		"me rotate": func() error {
			return errorOf(w.Keys.Rotate(ctx, by, svc.Me, w.mine.ID, svc.Rotation{Overlap: time.Hour}))
		},
		"me revoke":      func() error { return w.Keys.Revoke(ctx, by, svc.Me, w.mine.ID) },
		"me revoke all":  func() error { return errorOf(w.Keys.RevokeAll(ctx, by, svc.Me)) },
		"import":         func() error { return errorOf(w.Keys.Import(ctx, by, bob, taken)) },
		"create user":    func() error { return errorOf(w.Users.Create(ctx, by, svc.User{ID: "new", DisplayName: "New"})) },
		"patch user":     func() error { return errorOf(w.Users.Patch(ctx, by, "bob", svc.UserPatch{Inactive: new(true)})) },
		"delete user":    func() error { return w.Users.Delete(ctx, by, "bob") },
		"add channel":    func() error { return w.Users.AddChannel(ctx, by, "bob", svc.Channel{Provider: "tg", SenderID: "1"}) },
		"remove member":  func() error { return w.Groups.RemoveMembers(ctx, by, "g", "bob") },
		"delete group":   func() error { return w.Groups.Delete(ctx, by, "g") },
		"detach":         func() error { return w.Policies.Detach(ctx, by, little) },
		"delete account": func() error { return w.ServiceAccounts.Delete(ctx, by, "bot") },
		"my account":     func() error { return errorOf(w.MyServiceAccounts.Create(ctx, by, made)) },
		"bank policy":    func() error { return errorOf(w.Banks.SetPolicy(ctx, by, notes)) },
		"bundle":         func() error { return w.Access.Write(ctx, by, rows, svc.BundleWrite{}) },
	}
	for name, of := range map[string]struct {
		holder svc.Identity
		key    svc.IssuedKey
	}{"": {bob, w.key}, "account's ": {account("bot").Identity(), w.accounts}, "my account's ": {svc.MyAccount("bot"), w.accounts}} {
		all[name+"issue"] = func() error { return errorOf(w.Keys.Issue(ctx, by, of.holder, once)) }
		all[name+"enable"] = func() error { return errorOf(w.Keys.Patch(ctx, by, of.holder, of.key.ID, on)) }
		all[name+"disable"] = func() error { return errorOf(w.Keys.Patch(ctx, by, of.holder, of.key.ID, off)) }
		all[name+"rotate"] = func() error { return errorOf(w.Keys.Rotate(ctx, by, of.holder, of.key.ID, svc.Rotation{})) }
		all[name+"revoke"] = func() error { return w.Keys.Revoke(ctx, by, of.holder, of.key.ID) }
		all[name+"revoke all"] = func() error { return errorOf(w.Keys.RevokeAll(ctx, by, of.holder)) }
	}
	for name, half := range map[string]struct {
		sources   *svc.Sources
		templates *svc.Templates
		scope     svc.Scope
	}{"server's ": {w.Sources, w.Templates, svc.ScopeServer}, "my ": {w.MySources, w.MyTemplates, svc.ScopePersonal}} {
		sources, templates, theirs := half.sources, half.templates, svc.UpdateRequest{LocalEdits: svc.TakeTheirs}
		in := svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: half.scope, AliasID: new("new"), IdempotencyKey: "once"}
		merged := svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: ptr(content("Z", "3"))}
		template, source := svc.NewTemplate{ID: "new", Content: content("X", "1")}, svc.NewSource{URL: acme, Alias: new("new")}
		all[name+"create"] = func() error { return errorOf(templates.Create(ctx, by, template)) }
		all[name+"patch"] = func() error { return errorOf(templates.Patch(ctx, by, "x", svc.TemplatePatch{Name: new("n")})) }
		all[name+"delete"] = func() error { return templates.Delete(ctx, by, "x") }
		all[name+"roll back"] = func() error { return errorOf(templates.Rollback(ctx, by, "x", 1)) }
		all[name+"install"] = func() error { return errorOf(templates.Install(ctx, by, in)) }
		all[name+"update"] = func() error { return errorOf(templates.Update(ctx, by, "x", theirs)) }
		all[name+"settle"] = func() error { return errorOf(templates.Update(ctx, by, "x", merged)) }
		all[name+"register"] = func() error { return errorOf(sources.Register(ctx, by, source)) }
		all[name+"remove"] = func() error { return sources.Remove(ctx, by, "acme") }
		all[name+"rebind"] = func() error { return errorOf(sources.Rebind(ctx, by, "moved")) }
	}
	return all
}

// ends are what may happen to a caller while a call of it waits, with the codes that it may get.
var ends = map[string]struct {
	end   func(*testing.T, *waits)
	codes []svc.Code
}{
	"key revoked": {func(t *testing.T, w *waits) {
		is.New(t).NoErr(w.other.Keys.Revoke(t.Context(), svc.Host, w.by.Identity(), w.by.KeyID()))
	}, []svc.Code{svc.CodeUnauthenticated}},
	"key disabled": {func(t *testing.T, w *waits) {
		must(w.other.Keys.Patch(t.Context(), svc.Host, w.by.Identity(), w.by.KeyID(), svc.APIKeyPatch{Disabled: new(true)}))
	}, []svc.Code{svc.CodeUnauthenticated}},
	"key rotated": {func(t *testing.T, w *waits) {
		must(w.other.Keys.Rotate(t.Context(), svc.Host, w.by.Identity(), w.by.KeyID(), svc.Rotation{}))
	}, []svc.Code{svc.CodeUnauthenticated}},
	"key expired": {func(t *testing.T, w *waits) {
		soon := w.other.now().Add(time.Hour)
		must(w.other.Keys.Patch(t.Context(), svc.Host, w.by.Identity(), w.by.KeyID(), svc.APIKeyPatch{ExpiresAt: &soon}))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ticks += 2 * 3600
	}, []svc.Code{svc.CodeUnauthenticated}},
	"all keys revoked": {func(t *testing.T, w *waits) {
		must(w.other.Keys.RevokeAll(t.Context(), svc.Host, w.by.Identity()))
	}, []svc.Code{svc.CodeUnauthenticated}},
	"right detached": {func(t *testing.T, w *waits) {
		key := svc.AttachmentKey{PolicyID: "all", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "ann"}}
		is.New(t).NoErr(w.other.Policies.Detach(t.Context(), svc.Host, key))
	}, []svc.Code{svc.CodeForbidden}},
	"user inactive": {func(t *testing.T, w *waits) {
		must(w.other.Users.Patch(t.Context(), svc.Host, "ann", svc.UserPatch{Inactive: new(true)}))
	}, []svc.Code{svc.CodeUnauthenticated, svc.CodeForbidden}},
	"user deleted": {func(t *testing.T, w *waits) {
		is.New(t).NoErr(w.other.ForgetUser(t.Context(), svc.Host, "ann"))
	}, []svc.Code{svc.CodeUnauthenticated, svc.CodeForbidden, svc.CodeNotFound}},
}

// What was judged before a wait is judged again in the transaction of the write.
func TestWhatWasJudgedBeforeAWaitIsJudgedAgain(t *testing.T) {
	names := slices.Sorted(maps.Keys((&waits{host: &host{Service: &svc.Service{}}}).mutations(t.Context())))
	for _, session := range []bool{false, true} {
		for i, what := range slices.Sorted(maps.Keys(ends)) {
			e := ends[what]
			for k, name := range names {
				switch {
				case (i+k)%longtest.Times(3, 1) > 0:
					continue // here, each mutation meets every third end
				case session && strings.Contains(what, "key"): // it has none
					continue
				case strings.HasPrefix(name, "me ") && what == "right detached":
					continue
				case strings.HasPrefix(name, "me revoke") && session && what == "user deleted":
					continue // its keys are revoked already
				}
				w := newWaits(t, session)
				generation := int64(-1)
				w.store.before = func() {
					e.end(t, w)
					generation = w.other.written(t)
				}
				err := w.mutations(t.Context())[name]()
				if generation < 0 {
					t.Errorf("%s: %s: the call has not waited: %v", what, name, err)
				} else if !slices.Contains(e.codes, svc.ErrorCode(err)) {
					t.Errorf("%s: %s, session %v: got %v", what, name, session, err)
				}
				expect.Holds(t, generation < 0 || w.other.written(t) == generation, what, ": ", name, session, ": nothing more is written")
			}
		}
	}
}

func TestWhatIsJudgedAgainPasses(t *testing.T) {
	for _, session := range []bool{false, true} {
		for name := range (&waits{host: &host{Service: &svc.Service{}}}).mutations(t.Context()) {
			w := newWaits(t, session)
			before := w.other.written(t)
			expect.Equal(t, []any{name, session}, w.mutations(t.Context())[name](), nil)
			expect.Holds(t, w.other.written(t) != before, name, session, ": something is written")
		}
	}
}

// Users.Known, which may be slow, is such a wait as well.
func TestSlowFunctionsOfTheHost(t *testing.T) {
	w := newWaits(t, false)
	known := newHost(t, func(c *svc.Config) {
		c.Store = w.store
		c.Users.Known = func(context.Context, string) (bool, error) {
			ends["right detached"].end(t, w)
			return true, nil
		}
	})
	wantCode(t, errorOf(known.Keys.Issue(t.Context(), w.by, user("bob").Identity(), svc.NewAPIKey{})), svc.CodeForbidden, "")
}

func TestRightsThatKeepChanging(t *testing.T) {
	w := newWaits(t, false)
	changes := 0
	var change func()
	change = func() {
		changes++
		w.other.apply(t, `{"policies": [{"id": "little", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:recall"], "banks": ["`+strings.Repeat("x", changes)+`"]}]}}]}`)
		w.store.before = change
	}
	w.store.before = change
	wantCode(t, errorOf(w.Keys.Issue(t.Context(), w.by, user("bob").Identity(), svc.NewAPIKey{})), svc.CodeUnavailable, "")
	is.New(t).True(changes < 20)
	w.store.before = change // the last try judges what nobody can change
	is.New(t).NoErr(w.mutations(t.Context())["patch user"]())
}

// A dry run accepts the callers that the write accepts: with a key, of a session, the host. It refuses those that the write refuses.
func TestCallersOfADryRun(t *testing.T) {
	for _, session := range []bool{false, true} {
		dry := func(w *waits, by svc.Principal) error {
			return w.Access.Write(t.Context(), by, svc.Bundle{Users: []svc.User{{ID: "new"}}}, svc.BundleWrite{DryRun: true})
		}
		w := newWaits(t, session)
		is.New(t).NoErr(dry(w, w.by))
		is.New(t).NoErr(dry(w, svc.Host))
		for what, e := range ends {
			if session && strings.Contains(what, "key") {
				continue
			}
			w := newWaits(t, session)
			e.end(t, w)
			if err := dry(w, w.by); !slices.Contains(e.codes, svc.ErrorCode(err)) {
				t.Errorf("%s, session %v: got %v", what, session, err)
			}
		}
	}
}

// rightsRules has the rows of the rules: "help" writes rows of every kind and may recall from bank a, "lead" may give others rights on
// banks in addition, and "root" may do everything.
//
//go:embed testdata/rights.json
var rightsRules string

func attending(t *testing.T) (*host, *pausing) {
	store := newPausing(memstore.New())
	h := newHost(t, func(c *svc.Config) { c.Store = store })
	h.store = store.FullStore
	h.apply(t, rightsRules)
	store.transactions.Store(0)
	return h, store
}

// A request that is refused, and a dry one, begin no transaction: no writer waits for their judgement.
func TestRefusedAndDryEditsTakeNoLock(t *testing.T) {
	is := is.New(t)
	h, store := attending(t)
	wantCode(t, h.Policies.Attach(t.Context(), user("help"), attached("retain", svc.GrantedToUser, "ann")), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Policies.Patch(t.Context(), user("help"), "none-such", svc.PolicyPatch{Document: document()})), svc.CodeNotFound, "")
	bundle := must(svc.ParseBundle([]byte(`{"users": [{"id": "new"}]}`)))
	for _, by := range []svc.Principal{svc.Host, user("root"), user("help")} {
		is.NoErr(h.Access.Write(t.Context(), by, bundle, svc.BundleWrite{DryRun: true}))
	}
	is.Equal(store.transactions.Load(), int64(0))
	is.NoErr(h.Access.Write(t.Context(), user("help"), bundle, svc.BundleWrite{}))
	is.Equal(store.transactions.Load(), int64(1))
}

// A new user makes other changes wait, one that is inactive also those that rely on access: it may have had rights.
func TestLocksOfNewUsers(t *testing.T) {
	var locks []svc.Locks
	h := newHost(t, func(c *svc.Config) {
		c.Store = ahead(c.Store, "Lock", func(arg any) error { locks = append(locks, arg.(svc.Locks)); return nil })
	})
	must(h.Users.Create(t.Context(), svc.Host, svc.User{ID: "active"}))
	must(h.Users.Create(t.Context(), svc.Host, svc.User{ID: "inactive", Inactive: true}))
	is.New(t).Equal(locks, []svc.Locks{{AddUsers: true}, {ChangeAccess: true}})
}

// A caller without rights makes the store do nothing, whatever is in its bundle.
func TestBundlesOfCallersWithoutRights(t *testing.T) {
	h, store := attending(t)
	store.judged = func() { t.Error("rows of access were read") }
	for _, text := range []string{`{}`, `{"users": []}`, `{"tests": []}`, `{"users": [{"id": "new"}]}`} {
		for _, how := range []svc.BundleWrite{{}, {Revision: "x"}, {DryRun: true}, {Prune: true}, {Detach: make([]svc.AttachmentKey, 1)}} {
			err := h.Access.Write(t.Context(), user("ann"), must(svc.ParseBundle([]byte(text))), how)
			wantCode(t, err, svc.CodeForbidden, "")
		}
	}
	is.New(t).Equal(store.transactions.Load(), int64(0))
}

// A request that takes long to judge lets other edits of the process pass meanwhile.
func TestLongJudgementsWaitForNobody(t *testing.T) {
	is := is.New(t)
	h, store := attending(t)
	var rows svc.Bundle
	for i := range 100 {
		id := "u" + strconv.Itoa(i)
		rows.Users = append(rows.Users, svc.User{ID: id})
		rows.Policies = append(rows.Policies, svc.Policy{ID: id, Document: document(statement("allow", 30, 30), `{"effect":"allow","actions":["bank:`+id+`"],"banks":["*"]}`)})
		rows.Attachments = append(rows.Attachments, attached(id, svc.GrantedToUser, id), attached("none", svc.GrantedToUser, id))
	}
	denies := times(500, `{"effect":"deny","actions":["y#"],"banks":["y#"]}`)
	rows.Policies = append(rows.Policies, svc.Policy{ID: "none", Document: document(denies...)})
	h.write(t, rows)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	judgements, other := 0, errors.New("the edit is judged at once")
	store.judged = func() {
		if judgements++; judgements == 2 { // the first was given up
			store.judged = nil
			other = h.Groups.AddMembers(ctx, user("root"), "readers", "bob")
		}
	}
	is.NoErr(errorOf(h.Policies.Patch(ctx, user("help"), "none", svc.PolicyPatch{Document: document()})))
	is.NoErr(other)
}

// Who only adds users says so to the store, which then lets others go on who rely on access.
func TestNewUsersAreSaid(t *testing.T) {
	is := is.New(t)
	var wrote []bool
	h := newHost(t, func(c *svc.Config) {
		c.Store = hook(c.Store, hooks{write: func(w svc.AccessWrite) { wrote = append(wrote, w.NewUsers) }})
	})
	must(h.Users.Create(t.Context(), svc.Host, svc.User{ID: "carol"}))
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "dave"}}}))
	is.Equal(wrote, []bool{true, false})
}

// A change of access waits for another as long as in a store, and no longer: not for all before it.
func TestEditsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, held, store := is.New(t), make(chan struct{}), memstore.New()
		is.NoErr(newHost(t, func(c *svc.Config) { c.Store = store }).Access.Apply(t.Context(), svc.Host, svc.Bundle{
			Users: []svc.User{{ID: "ann"}, {ID: "root"}}, Attachments: []svc.Attachment{attached(svc.PolicyIAMAdmin, svc.GrantedToUser, "root")},
		}))
		h := newHost(t, func(c *svc.Config) {
			c.Store = around(store, func(call intercept.Call) error {
				if call.Method == "Atomically" {
					<-held
				}
				return call.Do()
			})
		})
		began, refused, edits := time.Now(), atomic.Int64{}, sync.WaitGroup{}
		for i := range 10 { // the last by the host, which waits in the store
			edits.Go(func() {
				_, err := h.Users.Patch(t.Context(), [...]svc.Principal{user("root"), svc.Host}[i/9], "ann", svc.UserPatch{DisplayName: new(fmt.Sprint(i))})
				if svc.ErrorCode(err) == svc.CodeUnavailable && time.Since(began) == 4*time.Second {
					refused.Add(1)
				}
			})
		}
		time.Sleep(time.Minute)
		close(held)
		edits.Wait()
		is.Equal(refused.Load(), int64(8))
	})
}
