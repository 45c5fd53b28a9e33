package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

const clients = 8

// together calls do from 8 clients at once and counts the codes of their errors; "": no error.
func together(do func(i int) error) map[svc.Code]int {
	var group sync.WaitGroup
	var mu sync.Mutex
	start, codes := make(chan bool), map[svc.Code]int{}
	for i := range clients {
		group.Go(func() {
			<-start
			code := svc.ErrorCode(do(i))
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	close(start)
	group.Wait()
	return codes
}

// wantOne checks that one client succeeded, and that all others got the code others.
func wantOne(t *testing.T, doing string, codes map[svc.Code]int, others svc.Code) {
	t.Helper()
	if len(codes) != 2 || codes[""] != 1 || codes[others] != clients-1 {
		t.Errorf("%s: %v, want one to come first, and seven %s", doing, codes, others)
	}
}

func TestEightAtOnce(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	u.offer(first)
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
	for round := range 5 {
		wantOne(t, "register", together(func(int) error { return failure(admin.Sources.Register(ctx, svc.NewSource{URL: u.URL + "/acme"})) }), svc.CodeExists)
		wantOne(t, "create", together(func(i int) error { return admin.create("made", fmt.Sprint("n", i)) }), svc.CodeExists)
		wantOne(t, "install", together(func(int) error { return admin.install("chat") }), svc.CodeExists)
		id := must(admin.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})).ID
		wantOne(t, "revoke", together(func(int) error { return admin.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, id) }), svc.CodeNotFound)
		wantOne(t, "delete what was made", together(func(int) error { return admin.Templates.Delete(ctx, "made") }), svc.CodeNotFound)
		wantOne(t, "delete what was installed", together(func(int) error { return admin.Templates.Delete(ctx, "chat") }), svc.CodeNotFound)
		wantOne(t, "remove", together(func(int) error { return admin.Sources.Remove(ctx, "acme") }), svc.CodeNotFound)
		if templates, sources := admin.templates(svc.TemplateQuery{}), must(all(admin.Sources.List(ctx))); len(templates)+len(sources) > 0 {
			t.Errorf("left are %v, %v", templates, sources)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func TestPatchesOfDifferentFieldsAllHold(t *testing.T) {
	admin, ctx := newSite(t, marketplace.Config{}).admin(), t.Context()
	fails(t, admin.create("chat", "n"), "")
	for round := range 10 {
		of := func(field string) string { return fmt.Sprint(field, round) }
		patches := [clients]svc.TemplatePatch{
			{Name: new(of("N"))}, {Description: textOf(new(of("D")))}, {Category: textOf(new(of("C")))}, {Integrations: &[]string{of("I")}}, {Tags: &[]string{of("T")}},
			{Manifest: []byte(`{"version":"` + of("M") + `"}`)},
		}
		codes := together(func(i int) error { return failure(admin.Templates.Patch(ctx, "chat", patches[i])) })
		have := must(admin.Templates.Read(ctx, "chat"))
		got := fmt.Sprintf("%s %s %s %v %v %s", have.Name, *have.Description, *have.Category, have.Integrations, have.Tags, have.Manifest)
		if want := strings.ReplaceAll(`N# D# C# [I#] [T#] {"version":"M#"}`, "#", fmt.Sprint(round)); got != want || codes[""] != clients {
			t.Fatalf("have %s, want %s: %v", got, want, codes)
		}
	}
}

// An update never loses an edit: it conflicts with the edit, or the edit changes the updated
// template.
func TestPatchAgainstUpdate(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
	admin.register(u)
	for round := range 10 {
		u.offer(first)
		fails(t, admin.install("chat"), "")
		u.offer(second)
		codes := together(func(i int) error {
			if i > 0 {
				return admin.update("chat", false)
			}
			time.Sleep(time.Duration(round) * 100 * time.Microsecond)
			_, err := admin.Templates.Patch(ctx, "chat", svc.TemplatePatch{Category: textOf(new("mine"))})
			if err != nil {
				t.Error(err)
			}
			return err
		})
		if have := must(admin.Templates.Read(ctx, "chat")); have.Category == nil || *have.Category != "mine" || codes[""]+codes[svc.CodeEdited] != clients {
			t.Errorf("the edit is lost: %+v %v", have, codes)
		}
		fails(t, admin.Templates.Delete(ctx, "chat"), "")
	}
}

// An update never brings a deleted template back. A template installed after the deletion is
// independent of it.
func TestDeleteAgainstUpdate(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
	admin.register(u)
	for range 10 {
		u.offer(first)
		fails(t, admin.install("chat"), "")
		u.offer(second)
		codes := together(func(i int) error {
			if i > 0 {
				return admin.update("chat", true)
			}
			err := admin.Templates.Delete(ctx, "chat")
			if err != nil {
				t.Error(err)
			}
			return err
		})
		if codes[""]+codes[svc.CodeNotFound] != clients {
			t.Errorf("%v", codes)
		}
		fails(t, failure(admin.Templates.Read(ctx, "chat")), svc.CodeNotFound)
	}
}

// The server never accepts a request that begins after the answer to a revocation.
func TestRevokeAgainstUse(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	for range 5 {
		key := s.key("alice")
		user := s.as(key)
		fails(t, user.try(), "")
		var revoked atomic.Bool
		var late, accepted, refused atomic.Int64
		codes := together(func(i int) error {
			if i == 0 {
				for deadline := time.Now().Add(time.Minute); accepted.Load() < clients && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				err := admin.Keys.Revoke(t.Context(), svc.Identity{Kind: svc.KindUser, ID: "alice"}, keyID(key))
				revoked.Store(true)
				return err
			}
			for n := 0; n < 20; {
				after := revoked.Load()
				err := user.try()
				switch {
				case err == nil && after:
					late.Add(1)
				case err == nil:
					accepted.Add(1)
				case svc.ErrorCode(err) == svc.CodeUnauthenticated:
					refused.Add(1)
				default:
					t.Error(err)
				}
				if after {
					n++
				}
			}
			return nil
		})
		if late.Load() > 0 || accepted.Load() == 0 || refused.Load() == 0 || codes[""] != clients {
			t.Errorf("%d accepted after the revocation; %d before, %d refused, %v", late.Load(), accepted.Load(), refused.Load(), codes)
		}
	}
}

// Lists read during changes are complete and in order, with no id twice.
func TestListsWhileEverythingChanges(t *testing.T) {
	admin, ctx := newSite(t, marketplace.Config{}).admin(), t.Context()
	for i := range 80 {
		fails(t, admin.create(fmt.Sprintf("fixed%03d", i), fmt.Sprintf("n%03d", i)), "")
	}
	var done atomic.Bool
	codes := together(func(i int) error {
		if i < 4 {
			defer done.Store(true)
			for n := range 20 {
				id := fmt.Sprintf("moving%d-%d", i, n)
				if err := errors.Join(admin.create(id, fmt.Sprintf("n%03d", n*4)), admin.Templates.Delete(ctx, id)); err != nil {
					return err
				}
			}
			return nil
		}
		for again := true; again; again = !done.Load() {
			fixed, last := 0, ""
			for each, err := range admin.Templates.List(ctx, svc.TemplateQuery{}) {
				if err != nil {
					return err
				}
				if at := each.Name + "\x00" + each.ID; at <= last {
					t.Errorf("out of order: %q after %q", at, last)
				} else {
					last = at
				}
				if strings.HasPrefix(each.ID, "fixed") {
					fixed++
				}
			}
			if fixed != 80 {
				t.Errorf("%d of 80 that never changed", fixed)
			}
		}
		return nil
	})
	if codes[""] != clients {
		t.Errorf("%v", codes)
	}
}
