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
	"github.com/extsvc/svc/store/memstore"
)

func TestIssuingAgain(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{Description: ptr("laptop"), ExpiresAt: h.now().Add(100 * time.Hour), IdempotencyKey: "once"}
	first, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
	for range 2 {
		again, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
		is.NoErr(err)
		is.Equal(again, first)
	}
	is.Equal(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{})), []svc.APIKey{first.APIKey})
	is.Equal(len(h.actions()), 1)
	_, err = h.Authenticate(t.Context(), string(first.Key))
	is.NoErr(err)

	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, first.ID))
	_, err = h.Keys.Issue(t.Context(), alice, svc.Me, in)
	wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key") // not the key, which is good for nothing
}

func TestIdempotencyKeys(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	first, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
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
	_, err = h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: strings.Repeat("~", 255)})
	is.NoErr(err)
}

func TestWhatFailedIsDoneAgain(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	_, err := h.Templates.Install(t.Context(), admin, install)
	wantCode(t, err, svc.CodeNotFound, "")
	h.market.put(acme, "z", content("Z", "1"))
	_, err = h.Templates.Install(t.Context(), admin, install)
	is.NoErr(err)
	_, err = h.Templates.Install(t.Context(), alice, install) // who may not is told so, whatever was answered
	wantCode(t, err, svc.CodeForbidden, "")
}

func TestInstallingAgain(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.market.put(acme, "z", content("<Z> & \u2028", "1.50"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	first, err := h.Templates.Install(t.Context(), admin, install)
	is.NoErr(err)
	_, err = h.Templates.Patch(t.Context(), admin, "z", svc.TemplatePatch{Name: ptr("edited")})
	is.NoErr(err)
	h.actions()
	asked := len(h.market.asked)
	again, err := h.Templates.Install(t.Context(), admin, install)
	is.NoErr(err)
	is.Equal(again, first)
	is.NoErr(h.Templates.Delete(t.Context(), admin, "z"))
	again, err = h.Templates.Install(t.Context(), admin, install)
	is.NoErr(err)
	is.Equal(again, first)
	is.Equal(len(h.market.asked), asked)
	is.Equal(h.actions(), []string{"template.deleted template/z by admin"})
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
	first, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
	later.Store(int64(svc.IdempotencyPeriod - time.Microsecond))
	again, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
	is.Equal(again, first)
	later.Store(int64(svc.IdempotencyPeriod))
	another, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
	is.True(another.ID != first.ID)
}

// showsAnswers is a store that shows what answers it keeps.
type showsAnswers struct {
	svc.FullStore
	kept *[]svc.KeptAnswer
}

func (s showsAnswers) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, showsAnswers{tx.(svc.FullStore), s.kept})
	})
}

func (s showsAnswers) KeepAnswer(ctx context.Context, answer svc.KeptAnswer, now time.Time) error {
	*s.kept = append(*s.kept, answer)
	return s.FullStore.KeepAnswer(ctx, answer, now)
}

func TestAnswersAreSealed(t *testing.T) {
	is := is.New(t)
	var kept []svc.KeptAnswer
	store := showsAnswers{memstore.New(), &kept}
	old, next := svc.Pepper{Version: "1", Secret: []byte("a pepper of the test")}, svc.Pepper{Version: "2", Secret: []byte("another, which is new")}
	under := func(peppers ...svc.Pepper) *host {
		return newHost(t, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
	}
	in := svc.NewAPIKey{IdempotencyKey: "of-the-client"}
	first, err := under(old).Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
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
	_, err = under().Keys.Issue(t.Context(), bob, svc.Me, in)
	is.NoErr(err)
	is.Equal(len(kept), 2)
}

func TestAnswersAreKeptWithWhatWasDone(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	undone := errors.New("the host's own row is refused")
	err := h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		_, err := h.WithStore(tx).Keys.Issue(ctx, alice, svc.Me, in)
		is.NoErr(err)
		return undone
	})
	is.True(errors.Is(err, undone))
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 0)
	issued, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	is.NoErr(err)
	is.Equal(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{})), []svc.APIKey{issued.APIKey})
}

// answeredMeanwhile is a store in which another call answers between the two looks for an answer, the second of which fails.
type answeredMeanwhile struct {
	svc.FullStore
	looks *atomic.Int32
}

func (s answeredMeanwhile) Answer(ctx context.Context, key []byte, now time.Time) (svc.KeptAnswer, error) {
	if s.looks.Add(1) == 1 {
		return svc.KeptAnswer{}, svc.ErrNotFound
	}
	return svc.KeptAnswer{}, svc.ErrUnavailable
}

// TestAnswersThatCannotBeRead: what was done by another call is no fault of ours when its answer cannot be read just now.
func TestAnswersThatCannotBeRead(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	is.NoErr(err)
	h.market.put(acme, "z", content("Z", "1"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	_, err = h.Templates.Install(t.Context(), admin, install)
	is.NoErr(err)
	is.NoErr(h.Templates.Delete(t.Context(), admin, "z"))
	late := func() *host {
		return newHost(t, func(c *svc.Config) {
			c.Store, c.Marketplace = answeredMeanwhile{h.store.(svc.FullStore), new(atomic.Int32)}, h.market
		})
	}
	_, err = late().Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeUnavailable, "")
	_, err = late().Templates.Install(t.Context(), admin, install)
	wantCode(t, err, svc.CodeUnavailable, "")
}

// keepsNothing is a store that has no room for answers.
type keepsNothing struct{ svc.FullStore }

func (s keepsNothing) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, keepsNothing{tx.(svc.FullStore)}) })
}

func (keepsNothing) KeepAnswer(context.Context, svc.KeptAnswer, time.Time) error {
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
		"all": func(string) error {
			_, err := h.Keys.RevokeAll(t.Context(), alice, svc.Me)
			return err
		},
		"rotated": func(id string) error {
			_, err := h.Keys.Rotate(t.Context(), alice, svc.Me, id, 0)
			return err
		},
	} {
		in.IdempotencyKey = name
		key := h.issueWith(t, in)
		_, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: ptr(true)})
		is.NoErr(err)
		is.Equal(h.issueWith(t, in).Key, key.Key) // it is still there, and may be enabled again
		is.NoErr(revoke(key.ID))
		issued, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
		wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key")
		is.Equal(issued, svc.IssuedKey{})
	}
}
