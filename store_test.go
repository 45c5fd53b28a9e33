package svc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
)

// mostStoreMethods is the most methods that a store must have.
const mostStoreMethods = 26

// docs/howto/transaction.md lists the optional roles with the number of their methods.
func TestStoreIsSmall(t *testing.T) {
	is, page := is.New(t), string(must(os.ReadFile("docs/howto/transaction.md")))
	required, full := reflect.TypeFor[svc.Store](), reflect.TypeFor[svc.FullStore]()
	expect.Holds(t, required.NumMethod() <= mostStoreMethods, "methods that a store must have: ", required.NumMethod())
	optional := 0
	for _, role := range []reflect.Type{
		reflect.TypeFor[svc.SourceFileStore](), reflect.TypeFor[svc.OutboxStore](),
		reflect.TypeFor[svc.AnswerStore](), reflect.TypeFor[svc.AuditStore](),
		reflect.TypeFor[svc.FreshnessStore](), reflect.TypeFor[svc.StatsStore](),
	} {
		is.True(full.Implements(role))
		is.True(strings.Contains(page, fmt.Sprintf("\n| %s | %d |", role.Name(), role.NumMethod())))
		for m := range role.Methods() {
			_, also := required.MethodByName(m.Name)
			is.True(!also)
		}
		optional += role.NumMethod()
	}
	is.Equal(full.NumMethod(), required.NumMethod()+optional)
}

// bareStore is a store without the optional roles.
type bareStore struct{ svc.Store }

func (s bareStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, bareStore{tx}) })
}

func withBareStore(c *svc.Config) { c.Store = bareStore{c.Store} }

// halfStore loses the optional roles in its transactions, which breaks the contract.
type halfStore struct{ svc.FullStore }

func (s halfStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, bareStore{tx}) })
}

// Nothing happens that needs an optional role which a store, or its transactions, lack. The error names the role.
func TestOptionalRolesThatAreMissing(t *testing.T) {
	is, made := is.New(t), svc.NewTemplate{ID: "b", Content: content("B", "1")}
	silent := func(c *svc.Config) { c.Events.OnEvent = nil }
	half := func(c *svc.Config) { c.Store = halfStore{c.Store.(svc.FullStore)} }
	h, keeps, halves, halfKeeps := newHost(t), newHost(t, keeping, silent), newHost(t, half), newHost(t, half, keeping)
	create(t, h, "a", svc.Content{})
	inTx, keepsInTx := h.WithTx(bareStore{h.store}), keeps.WithTx(bareStore{keeps.store})
	ctx, once := t.Context(), svc.NewAPIKey{IdempotencyKey: "once"}
	for _, c := range []struct {
		h    *host
		role string
		call func() error
	}{
		{h, "svc.OutboxStore", func() error { return errorOf(inTx.Keys.Issue(ctx, alice, svc.Me, svc.NewAPIKey{})) }},
		{h, "svc.OutboxStore", func() error { return inTx.Templates.Delete(ctx, admin, "a") }},
		{keeps, "svc.AuditStore", func() error { return errorOf(keepsInTx.Templates.Create(ctx, admin, made)) }},
		{keeps, "svc.AuditStore", func() error { return errorOf(keepsInTx.Audit.Verify(ctx, svc.Host)) }},
		{keeps, "svc.AuditStore", func() error { return lastError(keepsInTx.Audit.Records(ctx, svc.Host, svc.AuditQuery{})) }},
		{halves, "svc.AnswerStore", func() error { return errorOf(halves.Keys.Issue(ctx, alice, svc.Me, once)) }},
		{halfKeeps, "svc.AuditStore", func() error { return errorOf(halfKeeps.Templates.Create(ctx, admin, made)) }},
	} {
		before, err := c.h.written(t), c.call()
		wantCode(t, err, svc.CodeInternal, "")
		is.True(strings.Contains(err.Error(), c.role))
		is.Equal(c.h.written(t), before)
	}
	must(inTx.Templates.Read(ctx, admin, "a"))
	issue(t, halves, alice) // without an idempotency key
	quiet := newHost(t, silent)
	create(t, &host{Service: quiet.WithTx(bareStore{quiet.store})}, "a", svc.Content{})
	_, err := svc.New(svc.Config{Store: bareStore{memstore.New()}, Events: svc.EventConfig{Keep: true}})
	is.True(err != nil && strings.Contains(err.Error(), "Config.Events.Keep") && strings.Contains(err.Error(), "svc.AuditStore"))
}

// A source's answers are then kept nowhere: each process asks the source once more, without a warning.
func TestStoreWithoutSourceFiles(t *testing.T) {
	is := is.New(t)
	var log bytes.Buffer
	h := newHost(t, withBareStore, func(c *svc.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.market.put(acme, "x", content("X", "1"))
	must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"}))
	kept := h.market.asked[len(h.market.asked)-1].Memory
	kept.KeepFile(t.Context(), "", []byte("{}"))
	is.Equal(kept.File(t.Context(), ""), nil)
	is.Equal(must(kept.AcceptSerial(t.Context(), 7)), int64(7)) // is kept with the source itself
	is.Equal(log.String(), "")
}

// outside returns a store whose calls go through a function, also those in the background, but none of transactions.
func outside(store svc.Store, around func(context.Context, intercept.Call) error) *intercept.Store {
	return &intercept.Store{FullStore: store.(svc.FullStore), All: true, Around: around}
}

// around returns a store whose calls go through a function, also those of transactions.
func around(store svc.Store, do func(intercept.Call) error) *intercept.Store {
	return &intercept.Store{FullStore: store.(svc.FullStore), Inside: true, Around: func(_ context.Context, call intercept.Call) error { return do(call) }}
}

// ahead returns a store that runs a function before a method, also in transactions. An error is that of the call.
func ahead(store svc.Store, method string, do func(arg any) error) *intercept.Store {
	return around(store, func(call intercept.Call) error {
		if call.Method == method {
			if err := do(call.Args[0]); err != nil {
				return err
			}
		}
		return call.Do()
	})
}

func shows(store svc.Store, kept *[]svc.StoredAnswer) svc.Store {
	return ahead(store, "KeepAnswer", func(answer any) error { *kept = append(*kept, answer.(svc.StoredAnswer)); return nil })
}

// hooks are what a test does to the calls of a store, also in transactions. A nil hook does nothing.
type hooks struct {
	access func(read *svc.AccessSnapshot, tx bool) error // after Access
	key    func(*svc.APIKey)                             // before it is changed
	names  func(svc.AccessNames)                         // that ChangeAccess reads
	write  func(svc.AccessWrite)
	again  func(current svc.Bundle) svc.Bundle // the rows of a first call of a change, whose result is not written
}

type hooked struct {
	svc.FullStore
	on hooks
	tx bool
}

func hook(store svc.Store, on hooks) svc.Store { return hooked{store.(svc.FullStore), on, false} }

func (s hooked) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, hooked{tx.(svc.FullStore), s.on, true})
	})
}

func (s hooked) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	read, err := s.FullStore.Access(ctx, query)
	if s.on.access != nil && err == nil {
		err = s.on.access(&read, s.tx)
	}
	return read, err
}

func (s hooked) ChangeAccess(ctx context.Context, names svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	if s.on.names != nil {
		s.on.names(names)
	}
	return s.FullStore.ChangeAccess(ctx, names, func(b svc.Bundle) (svc.AccessWrite, error) {
		if s.on.again != nil {
			_, _ = change(s.on.again(b))
		}
		w, err := change(b)
		if s.on.write != nil && err == nil {
			s.on.write(w)
		}
		return w, err
	})
}

func (s hooked) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
		if s.on.key != nil {
			s.on.key(key)
		}
		return change(key)
	})
}

func TestAnswersAreSealed(t *testing.T) {
	is := is.New(t)
	var kept []svc.StoredAnswer
	store := shows(memstore.New(), &kept)
	old, next := svc.Pepper{Version: "1", Secret: []byte("a pepper of the test")}, svc.Pepper{Version: "2", Secret: []byte("another, which is new")}
	under := func(peppers ...svc.Pepper) *host {
		return newHost(t, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
	}
	in := svc.NewAPIKey{IdempotencyKey: "of-the-client"}
	first := must(under(old).Keys.Issue(t.Context(), alice, svc.Me, in))
	is.Equal(len(kept), 1)
	for _, part := range [][]byte{kept[0].Key, kept[0].Request, kept[0].Data} {
		is.True(!bytes.Contains(part, []byte(first.ID)))
		is.True(!bytes.Contains(part, []byte("of-the-client")))
	}
	again := must(under(next, old).Keys.Issue(t.Context(), alice, svc.Me, in)) // after a restart, and under another pepper
	is.Equal(again.Key, first.Key)
	_, err := under(next).Keys.Issue(t.Context(), alice, svc.Me, in) // nobody can read it without the pepper
	wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key")
	must(under().Keys.Issue(t.Context(), bob, svc.Me, in)) // without peppers
	must(under().Keys.Issue(t.Context(), bob, svc.Me, in))
	is.Equal(len(kept), 2)
}

// What is kept of an installation does not grow with the template.
func TestAnswersAreSmall(t *testing.T) {
	is := is.New(t)
	var kept []svc.StoredAnswer
	h := newHost(t, func(c *svc.Config) { c.Store = shows(memstore.New(), &kept) })
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.market.put(acme, "z", content(strings.Repeat("Z", 1000), "1"))
	must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme", AliasID: new(strings.Repeat("語", 128)), IdempotencyKey: "once"}))
	must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once", Description: new(strings.Repeat("d", 4000))}))
	is.Equal(len(kept), 2)
	for _, answer := range kept {
		is.True(len(answer.Key)+len(answer.Caller)+len(answer.Request)+len(answer.Data) < 1024)
	}
}

// A caller has so many answers and no more; the host has more.
func TestAnswersAreNotTooMany(t *testing.T) {
	is, h := is.New(t), newHost(t)
	with := func(many int) *host {
		return newHost(t, func(c *svc.Config) {
			c.Store = around(h.store, func(call intercept.Call) error {
				err := call.Do()
				if n, is := call.Result.(*int); is && call.Method == "CountAnswers" {
					*n = many
				}
				return err
			})
		})
	}
	first, next := svc.NewAPIKey{IdempotencyKey: "first"}, svc.NewAPIKey{IdempotencyKey: "next"}
	must(with(limits.KeptAnswers-1).Keys.Issue(t.Context(), alice, svc.Me, first))
	full := with(limits.KeptAnswers)
	wantCode(t, errorOf(full.Keys.Issue(t.Context(), alice, svc.Me, next)), svc.CodeLimit, "")
	must(full.Keys.Issue(t.Context(), alice, svc.Me, first)) // those there are stay
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 1)
	must(full.Keys.Issue(t.Context(), svc.Host, bob.Identity(), next))
}

func TestNothingIsDoneWithoutItsAnswer(t *testing.T) {
	is, h := is.New(t), newHost(t, func(c *svc.Config) {
		c.Store = ahead(c.Store, "KeepAnswer", func(any) error { return svc.ErrUnavailable })
	})
	wantCode(t, errorOf(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})), svc.CodeUnavailable, "")
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 0)
	is.Equal(len(h.actions()), 0)
	_, err := h.Keys.Import(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{NewAPIKey: svc.NewAPIKey{IdempotencyKey: "once"}})
	wantCode(t, err, svc.CodeInvalid, "prefix")
}

func TestStoreFaults(t *testing.T) {
	is, h := is.New(t), newHost(t)
	for want, cause := range map[svc.Code]error{
		svc.CodeUnavailable: svc.ErrUnavailable,
		svc.CodeChanged:     svc.ErrChanged,
		svc.CodeInternal:    errors.New("disk on fire"),
	} {
		broken := outside(h.store, func(context.Context, intercept.Call) error { return cause })
		b := newHost(t, importing, func(c *svc.Config) { c.Store = broken })
		keeping := newHost(t, importing, func(c *svc.Config) { c.Store, c.Events.Keep = broken, true })
		calls := callAll(t, b, svc.Host)
		for name, err := range callAll(t, keeping, svc.Host) {
			if calls[name+", keeping events"] = err; svc.ErrorCode(calls[name]) == svc.CodeNotFound {
				delete(calls, name) // it reads what is not kept
			}
		}
		for name, err := range calls {
			expect.Holds(t, svc.ErrorCode(err) == want && errors.Is(err, cause), name, ": got ", err, ", want ", want)
			if e, _ := errors.AsType[*svc.Error](err); e != nil {
				is.True(e.Message != "" && e.Message != cause.Error())
			}
		}
		is.Equal(append(b.actions(), keeping.actions()...), nil)
	}
}

// callAll calls every method of a service for a caller, and two for alice.
func callAll(t *testing.T, h *host, by svc.Principal) map[string]error {
	ctx, key := t.Context(), svc.IssuedKey{APIKey: svc.APIKey{ID: "k"}}
	all := map[string]error{
		"read":       errorOf(h.Templates.Read(ctx, by, "x")),
		"check":      errorOf(h.Templates.CheckUpdate(ctx, by, "x")),
		"check all":  errorOf(h.Templates.CheckUpdates(ctx, by, nil)),
		"diff":       errorOf(h.Templates.Diff(ctx, by, "x")),
		"templates":  lastError(h.Templates.List(ctx, by, svc.TemplateQuery{})),
		"history":    lastError(h.Templates.History(ctx, by, "x")),
		"as a user":  errorOf(h.Templates.Read(ctx, alice, "x")),
		"search":     errorOf(h.Sources.Search(ctx, by, svc.CatalogFilter{})),
		"sources":    lastError(h.Sources.List(ctx, by)),
		"reseal":     errorOf(h.Sources.Reseal(ctx, by)),
		"resolve":    errorOf(h.Policies.Resolve(ctx, by, svc.Question{Bank: "b", UserID: "alice"})),
		"verify":     errorOf(h.Audit.Verify(ctx, by)),
		"events":     lastError(h.Audit.Records(ctx, by, svc.AuditQuery{})),
		"keys":       lastError(h.Keys.List(ctx, by, alice.Identity(), svc.KeyQuery{})),
		"issue mine": errorOf(h.Keys.Issue(ctx, alice, svc.Me, svc.NewAPIKey{})),
		"apply":      h.Access.Apply(ctx, by, svc.Bundle{Users: []svc.User{{ID: "a"}}}),
		"ping":       h.Ping(ctx),
	}
	for name, call := range (&waits{host: h, by: by, key: key, mine: key, accounts: key}).mutations(ctx) {
		if !strings.HasPrefix(name, "m") { // what is of users alone
			all[name] = call()
		}
	}
	return all
}

// Stores get no text that a database may be unable to look up, whatever the caller passes.
func TestStoresGetValidText(t *testing.T) {
	for _, bad := range []string{"a\x00", "a\xff"} {
		h := newHost(t, func(c *svc.Config) {
			c.Store = around(c.Store, func(call intercept.Call) error {
				for _, arg := range call.Args {
					got, _ := json.Marshal(arg)
					if s := string(got); strings.Contains(s, `\u0000`) || strings.Contains(s, `\ufffd`) {
						t.Errorf("%s gets %s", call.Method, s)
					}
				}
				return call.Do()
			})
		})
		ctx, narrowed := t.Context(), svc.Principal{Kind: svc.KindUser, ID: "alice", ScopingPolicyID: bad}
		d := must(h.Decide(ctx, narrowed, action.Recall, "notes", svc.Context{}))
		is.New(t).True(!d.Allowed())
		r := must(h.Policies.Resolve(ctx, narrowed, svc.Question{Me: true, Bank: "notes"}))
		is.New(t).Equal(r.Outcome, svc.ImplicitDeny)
		odd := svc.Principal{Kind: svc.KindUser, ID: bad}
		wantCode(t, errorOf(h.Policies.Resolve(ctx, odd, svc.Question{Me: true, Bank: "notes"})), svc.CodeInvalid, "principal")
		wantCode(t, errorOf(h.Users.Me(ctx, odd)), svc.CodeInvalid, "principal")
		wantCode(t, h.Access.RemoveTest(ctx, admin, bad), svc.CodeNotFound, "")
		for _, to := range []svc.AttachmentKey{
			{PolicyID: bad, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"}},
			{PolicyID: "p", Principal: svc.GrantedTo{Type: bad, ID: "bob"}},
			{PolicyID: "p", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: bad}},
		} {
			how := svc.BundleWrite{Detach: []svc.AttachmentKey{to}}
			wantCode(t, h.Access.Write(ctx, svc.Host, svc.Bundle{}, how), svc.CodeNotFound, "")
			wantCode(t, errorOf(h.Access.Preview(ctx, svc.Host, svc.Bundle{}, how)), svc.CodeNotFound, "")
		}
	}
}
