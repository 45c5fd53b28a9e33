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

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
	"github.com/matryer/is"
)

func TestIssuingAgain(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{Description: ptr("laptop"), ExpiresAt: h.now().Add(100 * time.Hour), IdempotencyKey: "once"}
	first, err := h.IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	for range 2 {
		again, err := h.IssueMyAPIKey(t.Context(), alice, in)
		is.NoErr(err)
		is.Equal(again, first)
	}
	is.Equal(collect(t, h.MyAPIKeys(t.Context(), alice)), []svc.APIKey{first.APIKey})
	is.Equal(len(h.actions()), 1)
	_, err = h.Authenticate(t.Context(), string(first.Key))
	is.NoErr(err)

	is.NoErr(h.RevokeMyAPIKey(t.Context(), alice, first.ID))
	_, err = h.IssueMyAPIKey(t.Context(), alice, in)
	wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key") // not the key, which is good for nothing
}

func TestIdempotencyKeys(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	first, err := h.IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	for name, other := range map[string]func() error{
		"another description": func() error {
			_, err := h.IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{Description: ptr(""), IdempotencyKey: "once"})
			return err
		},
		"another holder": func() error {
			vouched := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: admin.Actions}
			_, err := h.IssueAPIKey(t.Context(), vouched, bob.Identity(), in)
			return err
		},
		"something else": func() error {
			vouched := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: admin.Actions}
			_, err := h.InstallTemplate(t.Context(), vouched, svc.Install{TemplateID: "x", SourceName: "acme", AliasID: ptr("y"), IdempotencyKey: "once"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, other(), svc.CodeKeyReused, "Idempotency-Key") })
	}
	other, err := h.IssueMyAPIKey(t.Context(), bob, in) // another caller's key is another key
	is.NoErr(err)
	is.True(other.ID != first.ID)
	for _, bad := range []string{"a b", "ä", "\n", strings.Repeat("x", 256)} {
		_, err := h.IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{IdempotencyKey: bad})
		wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
		_, err = h.InstallTemplate(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme", IdempotencyKey: bad})
		wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
	}
	_, err = h.IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{IdempotencyKey: strings.Repeat("~", 255)})
	is.NoErr(err)
}

func TestWhatFailedIsDoneAgain(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	_, err := h.InstallTemplate(t.Context(), admin, install)
	wantCode(t, err, svc.CodeNotFound, "")
	h.market.put(acme, "z", content("Z", "1"))
	_, err = h.InstallTemplate(t.Context(), admin, install)
	is.NoErr(err)
	_, err = h.InstallTemplate(t.Context(), alice, install) // who may not is told so, whatever was answered
	wantCode(t, err, svc.CodeForbidden, "")
}

func TestInstallingAgain(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.market.put(acme, "z", content("<Z> & \u2028", "1.50"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	first, err := h.InstallTemplate(t.Context(), admin, install)
	is.NoErr(err)
	_, err = h.PatchTemplate(t.Context(), admin, "z", svc.TemplatePatch{Name: ptr("edited")})
	is.NoErr(err)
	h.actions()
	asked := len(h.market.asked)
	again, err := h.InstallTemplate(t.Context(), admin, install)
	is.NoErr(err)
	is.Equal(again, first)
	is.NoErr(h.DeleteTemplate(t.Context(), admin, "z"))
	again, err = h.InstallTemplate(t.Context(), admin, install)
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
			keys[i], errs[i] = h.IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{IdempotencyKey: "once"})
		})
		done.Go(func() {
			templates[i], errs[callers+i] = h.InstallTemplate(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"})
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
	first, err := h.IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	later.Store(int64(svc.IdempotencyPeriod - time.Microsecond))
	again, err := h.IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	is.Equal(again, first)
	later.Store(int64(svc.IdempotencyPeriod))
	another, err := h.IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	is.True(another.ID != first.ID)
}

// showsAnswers is a store that shows what answers it keeps.
type showsAnswers struct {
	svc.Store
	kept *[]svc.Answer
}

func (s showsAnswers) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, showsAnswers{tx, s.kept}) })
}

func (s showsAnswers) KeepAnswer(ctx context.Context, answer svc.Answer, now time.Time) error {
	*s.kept = append(*s.kept, answer)
	return s.Store.KeepAnswer(ctx, answer, now)
}

func TestAnswersAreSealed(t *testing.T) {
	is := is.New(t)
	var kept []svc.Answer
	store := showsAnswers{memstore.New(), &kept}
	old, next := svc.Pepper{Version: "1", Secret: []byte("a pepper of the test")}, svc.Pepper{Version: "2", Secret: []byte("another, which is new")}
	under := func(peppers ...svc.Pepper) *host {
		return newHost(t, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
	}
	in := svc.NewAPIKey{IdempotencyKey: "of-the-client"}
	first, err := under(old).IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	is.Equal(len(kept), 1)
	for _, part := range [][]byte{kept[0].Key, kept[0].Request, kept[0].Data} {
		is.True(!bytes.Contains(part, []byte(first.ID)))
		is.True(!bytes.Contains(part, []byte("of-the-client")))
	}
	again, err := under(next, old).IssueMyAPIKey(t.Context(), alice, in) // after a restart, and under another pepper
	is.NoErr(err)
	is.Equal(again.Key, first.Key)
	_, err = under(next).IssueMyAPIKey(t.Context(), alice, in) // nobody can read it without the pepper
	wantCode(t, err, svc.CodeInternal, "")
	_, err = under().IssueMyAPIKey(t.Context(), bob, in) // without peppers
	is.NoErr(err)
	_, err = under().IssueMyAPIKey(t.Context(), bob, in)
	is.NoErr(err)
	is.Equal(len(kept), 2)
}

func TestAnswersAreKeptWithWhatWasDone(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	undone := errors.New("the host's own row is refused")
	err := h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		_, err := h.WithStore(tx).IssueMyAPIKey(ctx, alice, in)
		is.NoErr(err)
		return undone
	})
	is.True(errors.Is(err, undone))
	is.Equal(len(collect(t, h.MyAPIKeys(t.Context(), alice))), 0)
	issued, err := h.IssueMyAPIKey(t.Context(), alice, in)
	is.NoErr(err)
	is.Equal(collect(t, h.MyAPIKeys(t.Context(), alice)), []svc.APIKey{issued.APIKey})
}

// answeredMeanwhile is a store in which another call answers between the two looks for an answer, the second of which fails.
type answeredMeanwhile struct {
	svc.Store
	looks *atomic.Int32
}

func (s answeredMeanwhile) Answer(ctx context.Context, key []byte, now time.Time) (svc.Answer, error) {
	if s.looks.Add(1) == 1 {
		return svc.Answer{}, svc.ErrNotFound
	}
	return svc.Answer{}, svc.ErrUnavailable
}

// TestAnswersThatCannotBeRead: what was done by another call is no fault of ours when its answer cannot be read just now.
func TestAnswersThatCannotBeRead(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	_, err := h.IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{IdempotencyKey: "once"})
	is.NoErr(err)
	h.market.put(acme, "z", content("Z", "1"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	_, err = h.InstallTemplate(t.Context(), admin, install)
	is.NoErr(err)
	is.NoErr(h.DeleteTemplate(t.Context(), admin, "z"))
	late := func() *host {
		return newHost(t, func(c *svc.Config) { c.Store, c.Marketplace = answeredMeanwhile{h.store, new(atomic.Int32)}, h.market })
	}
	_, err = late().IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeUnavailable, "")
	_, err = late().InstallTemplate(t.Context(), admin, install)
	wantCode(t, err, svc.CodeUnavailable, "")
}

// keepsNothing is a store that has no room for answers.
type keepsNothing struct{ svc.Store }

func (s keepsNothing) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, keepsNothing{tx}) })
}

func (keepsNothing) KeepAnswer(context.Context, svc.Answer, time.Time) error {
	return svc.ErrUnavailable
}

func TestNothingIsDoneWithoutItsAnswer(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) { c.Store = keepsNothing{c.Store} })
	_, err := h.IssueMyAPIKey(t.Context(), alice, svc.NewAPIKey{IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeUnavailable, "")
	is.Equal(len(collect(t, h.MyAPIKeys(t.Context(), alice))), 0)
	is.Equal(len(h.actions()), 0)
	_, err = h.ImportAPIKey(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{NewAPIKey: svc.NewAPIKey{IdempotencyKey: "once"}})
	wantCode(t, err, svc.CodeInvalid, "prefix")
}

// A key that was revoked is not handed out again, however it was revoked.
func TestRepeatedRequestOfARevokedKey(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	in := svc.NewAPIKey{IdempotencyKey: "once"}
	for name, revoke := range map[string]func(id string) error{
		"one": func(id string) error { return h.RevokeMyAPIKey(t.Context(), alice, id) },
		"all": func(string) error {
			_, err := h.RevokeMyAPIKeys(t.Context(), alice)
			return err
		},
		"rotated": func(id string) error {
			_, err := h.RotateMyAPIKey(t.Context(), alice, id, 0)
			return err
		},
	} {
		in.IdempotencyKey = name
		key := h.issueWith(t, in)
		_, err := h.PatchMyAPIKey(t.Context(), alice, key.ID, svc.APIKeyPatch{Disabled: ptr(true)})
		is.NoErr(err)
		is.Equal(h.issueWith(t, in).Key, key.Key) // it is still there, and may be enabled again
		is.NoErr(revoke(key.ID))
		issued, err := h.IssueMyAPIKey(t.Context(), alice, in)
		wantCode(t, err, svc.CodeKeyReused, "Idempotency-Key")
		is.Equal(issued, svc.IssuedKey{})
	}
}
