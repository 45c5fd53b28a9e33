package svc_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
)

func TestIssuingAgain(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{Description: ptr("laptop"), ExpiresAt: h.now().Add(100 * time.Hour), IdempotencyKey: "once"}
	first := must(h.Keys.Issue(t.Context(), alice, svc.Me, in))
	for range 2 {
		is.Equal(must(h.Keys.Issue(t.Context(), alice, svc.Me, in)), first)
	}
	is.Equal(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{})), []svc.APIKey{first.APIKey})
	is.Equal(len(h.actions()), 1)
	must(h.Authenticate(t.Context(), string(first.Key)))

	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, first.ID))
	_, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key") // not the key, which is good for nothing
}

// A repeated rotation gets the same successor, also when the old key is gone, and rotates once.
func TestRotatingAgain(t *testing.T) {
	for name, overlap := range map[string]time.Duration{"at once": 0, "with an overlap": time.Hour} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			h := newHost(t)
			old := h.issueWith(t, svc.NewAPIKey{Description: ptr(""), Rate: svc.Rate{PerSecond: 1.5, Burst: 2}, ExpiresAt: h.now().Add(100 * time.Hour)})
			must(h.Keys.Patch(t.Context(), alice, svc.Me, old.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
			h.actions()
			in := svc.Rotation{Overlap: overlap, IdempotencyKey: "once"}
			first := must(h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, in))
			is.Equal(len(h.actions()), 2)
			_, err := h.Keys.Patch(t.Context(), alice, svc.Me, first.ID, svc.APIKeyPatch{Description: &svc.TextPatch{Value: ptr("x")}})
			is.NoErr(err)
			h.actions()
			for range 2 {
				is.Equal(must(h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, in)), first)
			}
			is.Equal(len(h.actions()), 0)
			for _, other := range []func() error{
				func() error {
					_, err := h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{Overlap: overlap + time.Second, IdempotencyKey: "once"})
					return err
				},
				func() error { return errorOf(h.Keys.Rotate(t.Context(), alice, svc.Me, first.ID, in)) },
				func() error {
					return errorOf(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"}))
				},
			} {
				wantCode(t, other(), svc.CodeKeyReused, "Idempotency-Key")
			}
			_, err = h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{IdempotencyKey: "a b"})
			wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
			is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, first.ID))
			_, err = h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, in)
			wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key")
		})
	}
}

// Of equal rotations at once, all get one successor.
func TestRotatingAtOnce(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for _, overlap := range []time.Duration{0, time.Hour} {
		old := h.issueWith(t, svc.NewAPIKey{})
		var group sync.WaitGroup
		keys := make([]svc.IssuedKey, 8)
		errs := make([]error, len(keys))
		for i := range keys {
			group.Go(func() {
				keys[i], errs[i] = h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{Overlap: overlap, IdempotencyKey: old.ID})
			})
		}
		group.Wait()
		for i := range keys {
			is.NoErr(errs[i])
			is.Equal(keys[i], keys[0])
		}
	}
}

func TestIdempotencyKeys(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	first := must(h.Keys.Issue(t.Context(), alice, svc.Me, in))
	for name, other := range map[string]func() error{
		"another description": func() error {
			_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Description: ptr(""), IdempotencyKey: "once"})
			return err
		},
		"another holder": func() error {
			vouched := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: admin.Actions}
			_, err := h.Keys.Issue(t.Context(), vouched, bob.Identity(), in)
			return err
		},
		"something else": func() error {
			vouched := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: admin.Actions}
			_, err := h.Templates.Install(t.Context(), vouched, svc.Install{TemplateID: "x", SourceName: "acme", AliasID: ptr("y"), IdempotencyKey: "once"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, other(), svc.CodeKeyReused, "Idempotency-Key") })
	}
	other, err := h.Keys.Issue(t.Context(), bob, svc.Me, in) // another caller's key is another key
	is.NoErr(err)
	is.True(other.ID != first.ID)
	for _, bad := range []string{"a b", "ä", "\n", strings.Repeat("x", 256)} {
		_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: bad})
		wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
		_, err = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme", IdempotencyKey: bad})
		wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
	}
	must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: strings.Repeat("~", 255)}))
}

func TestWhatFailedIsDoneAgain(t *testing.T) {
	h, _ := withTemplate(t)
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	wantCode(t, errorOf(h.Templates.Install(t.Context(), admin, install)), svc.CodeNotFound, "")
	h.market.put(acme, "z", content("Z", "1"))
	must(h.Templates.Install(t.Context(), admin, install))
	_, err := h.Templates.Install(t.Context(), alice, install) // who may not is told so, whatever was answered
	wantCode(t, err, svc.CodeForbidden, "")
}

func TestInstallingAgain(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.market.put(acme, "z", content("<Z> & \u2028", "1.50"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	first := must(h.Templates.Install(t.Context(), admin, install))
	must(h.Templates.Patch(t.Context(), admin, "z", svc.TemplatePatch{Name: ptr("edited")}))
	h.actions()
	asked := len(h.market.asked)
	again := must(h.Templates.Install(t.Context(), admin, install))
	is.Equal(again.Name, "edited") // as it is now
	is.Equal(again.Origin.Base.Manifest, first.Origin.Base.Manifest)
	is.NoErr(h.Templates.Delete(t.Context(), admin, "z"))
	_, err := h.Templates.Install(t.Context(), admin, install)
	wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key") // it hands out nothing that is gone
	is.Equal(len(h.market.asked), asked)
	is.Equal(h.actions(), []string{"template.deleted template/z by admin"})
	must(h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "z", Content: content("Other", "1")}))
	_, err = h.Templates.Install(t.Context(), admin, install) // another one under the id
	wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key")
}

// What is kept of an installation does not grow with the template.
func TestAnswersAreSmall(t *testing.T) {
	is := is.New(t)
	var kept []svc.StoredAnswer
	h := newHost(t, func(c *svc.Config) { c.Store = showsAnswers{memstore.New(), &kept} })
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.market.put(acme, "z", content(strings.Repeat("Z", 1000), "1"))
	_, err := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme", AliasID: new(strings.Repeat("語", 128)), IdempotencyKey: "once"})
	is.NoErr(err)
	_, err = h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once", Description: new(strings.Repeat("d", 4000))})
	is.NoErr(err)
	is.Equal(len(kept), 2)
	for _, answer := range kept {
		is.True(len(answer.Key)+len(answer.Caller)+len(answer.Request)+len(answer.Data) < 1024)
	}
}

// keepsMany is a store that has so many answers to every caller.
type keepsMany struct {
	svc.FullStore
	many int
}

func (s keepsMany) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, keepsMany{tx.(svc.FullStore), s.many})
	})
}

func (s keepsMany) CountAnswers(_ context.Context, _ []byte, _ time.Time, most int) (int, error) {
	return min(s.many, most), nil
}

// A caller has so many answers and no more; the host has more.
func TestAnswersAreNotTooMany(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	with := func(many int) *host {
		return newHost(t, func(c *svc.Config) { c.Store = keepsMany{h.store.(svc.FullStore), many} })
	}
	first, next := svc.NewAPIKey{IdempotencyKey: "first"}, svc.NewAPIKey{IdempotencyKey: "next"}
	must(with(limits.KeptAnswers-1).Keys.Issue(t.Context(), alice, svc.Me, first))
	full := with(limits.KeptAnswers)
	wantCode(t, errorOf(full.Keys.Issue(t.Context(), alice, svc.Me, next)), svc.CodeLimit, "")
	_, err := full.Keys.Issue(t.Context(), alice, svc.Me, first) // those there are stay
	is.NoErr(err)
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 1)
	must(full.Keys.Issue(t.Context(), svc.Host, bob.Identity(), next))
}

// Answers go with the user: the next one with that id gets none of them, row or not.
func TestAnswersDoNotOutliveTheUser(t *testing.T) {
	for _, row := range []bool{true, false} {
		is := is.New(t)
		h, _ := withTemplate(t)
		if row {
			h.apply(t, `{"users": [{"id": "ann"}]}`)
		}
		ann := svc.Principal{Kind: svc.KindUser, ID: "ann", Actions: []string{"template:*"}}
		install := svc.Install{TemplateID: "x", SourceName: "acme", IdempotencyKey: "once"}
		h.market.put(acme, "x", content("Former", "1"))
		must(h.MyTemplates.Install(t.Context(), ann, install))
		is.NoErr(h.MyTemplates.Delete(t.Context(), ann, "x"))
		key := must(h.Keys.Issue(t.Context(), ann, svc.Me, svc.NewAPIKey{IdempotencyKey: "key"}))
		if !row { // answers alone are something to forget
			must(h.Keys.RevokeAll(t.Context(), ann, svc.Me))
		}
		is.NoErr(h.ForgetUser(t.Context(), svc.Host, "ann"))
		wantCode(t, h.ForgetUser(t.Context(), svc.Host, "ann"), svc.CodeNotFound, "")
		h.market.put(acme, "x", content("Next", "2"))
		is.Equal(must(h.MyTemplates.Install(t.Context(), ann, install)).Name, "Next")
		is.True(must(h.Keys.Issue(t.Context(), ann, svc.Me, svc.NewAPIKey{IdempotencyKey: "key"})).ID != key.ID)
	}
}

func TestRequestsAtOnceAreOne(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.market.put(acme, "z", content("Z", "1"))
	const callers = 16
	var done sync.WaitGroup
	keys, templates, errs := make([]svc.IssuedKey, callers), make([]svc.Template, callers), make([]error, 2*callers)
	for i := range callers {
		done.Go(func() {
			keys[i], errs[i] = h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
		})
		done.Go(func() {
			templates[i], errs[callers+i] = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"})
		})
	}
	done.Wait()
	is.NoErr(errors.Join(errs...))
	for i := range callers {
		is.Equal(keys[i], keys[0])
		is.Equal(templates[i], templates[0])
	}
	is.Equal(len(h.actions()), 2)
}

func TestAnswersExpire(t *testing.T) {
	is := is.New(t)
	var later atomic.Int64
	h := newHost(t, func(c *svc.Config) {
		c.Now = func() time.Time {
			return time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).Add(time.Duration(later.Load()))
		}
	})
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	first := must(h.Keys.Issue(t.Context(), alice, svc.Me, in))
	later.Store(int64(svc.IdempotencyPeriod - time.Microsecond))
	is.Equal(must(h.Keys.Issue(t.Context(), alice, svc.Me, in)), first)
	later.Store(int64(svc.IdempotencyPeriod))
	is.True(must(h.Keys.Issue(t.Context(), alice, svc.Me, in)).ID != first.ID)
}

// showsAnswers is a store that shows what answers it keeps.
type showsAnswers struct {
	svc.FullStore
	kept *[]svc.StoredAnswer
}

func (s showsAnswers) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, showsAnswers{tx.(svc.FullStore), s.kept})
	})
}

func (s showsAnswers) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
	*s.kept = append(*s.kept, answer)
	return s.FullStore.KeepAnswer(ctx, answer, now)
}

func TestAnswersAreSealed(t *testing.T) {
	is := is.New(t)
	var kept []svc.StoredAnswer
	store := showsAnswers{memstore.New(), &kept}
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
	again, err := under(next, old).Keys.Issue(t.Context(), alice, svc.Me, in) // after a restart, and under another pepper
	is.NoErr(err)
	is.Equal(again.Key, first.Key)
	_, err = under(next).Keys.Issue(t.Context(), alice, svc.Me, in) // nobody can read it without the pepper
	wantCode(t, err, svc.CodeInternal, "")
	_, err = under().Keys.Issue(t.Context(), bob, svc.Me, in) // without peppers
	is.NoErr(err)
	must(under().Keys.Issue(t.Context(), bob, svc.Me, in))
	is.Equal(len(kept), 2)
}

func TestAnswersAreKeptWithWhatWasDone(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	undone := errors.New("the host's own row is refused")
	err := h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		_, err := h.WithTx(tx).Keys.Issue(ctx, alice, svc.Me, in)
		is.NoErr(err)
		return undone
	})
	is.True(errors.Is(err, undone))
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 0)
	issued := must(h.Keys.Issue(t.Context(), alice, svc.Me, in))
	is.Equal(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{})), []svc.APIKey{issued.APIKey})
}

// answeredMeanwhile is a store in which another call answers between the two looks for an answer, the second of which fails.
type answeredMeanwhile struct {
	svc.FullStore
	looks *atomic.Int32
}

func (s answeredMeanwhile) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	if s.looks.Add(1) == 1 {
		return svc.StoredAnswer{}, svc.ErrNotFound
	}
	return svc.StoredAnswer{}, svc.ErrUnavailable
}

// TestAnswersThatCannotBeRead: what was done by another call is no fault of ours when its answer cannot be read just now.
func TestAnswersThatCannotBeRead(t *testing.T) {
	h, _ := withTemplate(t)
	must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"}))
	h.market.put(acme, "z", content("Z", "1"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	must(h.Templates.Install(t.Context(), admin, install))
	is.New(t).NoErr(h.Templates.Delete(t.Context(), admin, "z"))
	late := func() *host {
		return newHost(t, func(c *svc.Config) {
			c.Store, c.Sources.Marketplace = answeredMeanwhile{h.store.(svc.FullStore), new(atomic.Int32)}, h.market
		})
	}
	_, err := late().Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeUnavailable, "")
	wantCode(t, errorOf(late().Templates.Install(t.Context(), admin, install)), svc.CodeUnavailable, "")
}

// keepsNothing is a store that has no room for answers.
type keepsNothing struct{ svc.FullStore }

func (s keepsNothing) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, keepsNothing{tx.(svc.FullStore)}) })
}

func (keepsNothing) KeepAnswer(context.Context, svc.StoredAnswer, time.Time) error {
	return svc.ErrUnavailable
}

func TestNothingIsDoneWithoutItsAnswer(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) { c.Store = keepsNothing{c.Store.(svc.FullStore)} })
	_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeUnavailable, "")
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 0)
	is.Equal(len(h.actions()), 0)
	_, err = h.Keys.Import(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{NewAPIKey: svc.NewAPIKey{IdempotencyKey: "once"}})
	wantCode(t, err, svc.CodeInvalid, "prefix")
}

// A key that was revoked is not handed out again, however it was revoked.
func TestRepeatedRequestOfARevokedKey(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	for name, revoke := range map[string]func(id string) error{
		"one": func(id string) error { return h.Keys.Revoke(t.Context(), alice, svc.Me, id) },
		"all": func(string) error { return errorOf(h.Keys.RevokeAll(t.Context(), alice, svc.Me)) },
		"rotated": func(id string) error {
			return errorOf(h.Keys.Rotate(t.Context(), alice, svc.Me, id, svc.Rotation{}))
		},
	} {
		in.IdempotencyKey = name
		key := h.issueWith(t, in)
		must(h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
		is.Equal(h.issueWith(t, in).Key, key.Key) // it is still there, and may be enabled again
		is.NoErr(revoke(key.ID))
		issued, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
		wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key")
		is.Equal(issued, svc.IssuedKey{})
	}
}
