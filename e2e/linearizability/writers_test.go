package linearizability_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/calltest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// accessWrite is a write of access by one of several writers at once.
type accessWrite struct {
	by    svc.Principal
	line  string    // of calltest
	event svc.Event // its first
}

// firstEvent is the key of a context's *svc.Event, which gets the first event of a call.
type firstEvent struct{}

func keepFirst(ctx context.Context, e svc.Event) {
	if first, is := ctx.Value(firstEvent{}).(*svc.Event); is && first.Time.IsZero() {
		*first = e
	}
}

func serveKeeping(t *testing.T, stores ...svc.Store) []*svc.Service {
	return serveWith(t, func(c *svc.Config) { c.Events = svc.EventConfig{OnEvent: keepFirst, Keep: true} }, stores...)
}

// The rows of the writers' world. Policies role-N are those that writers begin with.
var (
	writersUsers   = []string{"u0", "u1", "u2", "u3", "u4", "u5", "keeper"}
	writersGroups  = []string{"g0", "g1"}
	writersRoles   = []string{"role-0", "role-1", "role-2", "role-3", "role-4", "role-5"}
	writersParts   = []string{"p0", "p1", "p2", "p3", "vault"}
	writersActions = []string{
		"iam:users:write", "iam:groups:write", "iam:policies:write", "iam:attachments:write", "iam:service_accounts:manage", "iam:banks:write",
		"iam:banks:grant", "iam:audit:read", "iam:users:read",
	}
)

func statements(of ...string) []byte {
	return []byte(`{"version":"2026-03-24","statements":[` + strings.Join(of, ",") + `]}`)
}

func statement(effect, bank string, actions ...string) string {
	return fmt.Sprintf(`{"effect":%q,"actions":["%s"],"banks":[%q]}`, effect, strings.Join(actions, `","`), bank)
}

// writersWorld has an administrator without banks, writers of some kinds of rows, and a keeper of what no writer has.
func writersWorld() svc.Bundle {
	var b svc.Bundle
	for _, id := range writersUsers {
		b.Users = append(b.Users, svc.User{ID: id})
	}
	b.Groups = []svc.Group{{ID: "g0", Members: []string{"u1", "u2"}}, {ID: "g1", Members: []string{"u3"}}}
	for i, document := range [][]byte{
		statements(statement("allow", "*", "iam:users:*", "iam:groups:*", "iam:policies:*", "iam:attachments:*", "iam:service_accounts:*")),
		statements(statement("allow", "*", "iam:groups:write", "iam:attachments:write"), statement("allow", "a", "bank:recall")),
		statements(statement("allow", "*", "iam:policies:write", "iam:attachments:write"), statement("allow", "z", "bank:*")),
		statements(statement("allow", "*", "iam:users:write", "iam:service_accounts:manage", "iam:banks:write"), statement("allow", "*", "bank:recall")),
		statements(statement("allow", "*", writersActions[:6]...), statement("deny", "*", "bank:retain")),
		statements(statement("allow", "*", "iam:banks:*", "iam:attachments:write", "iam:policies:write")),
	} {
		b.Policies = append(b.Policies, svc.Policy{ID: writersRoles[i], Document: document})
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: writersRoles[i], Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: writersUsers[i]}})
	}
	for _, id := range writersParts[:4] {
		b.Policies = append(b.Policies, svc.Policy{ID: id, Document: statements(statement("allow", "a", "bank:recall"))})
	}
	vault := statements(statement("allow", "*", "iam:audit:read", "template:*"))
	b.Policies = append(b.Policies, svc.Policy{ID: "vault", Document: vault})
	b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: "vault", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "keeper"}})
	b.ServiceAccounts = []svc.ServiceAccount{
		{ID: "s0", OwnerUserID: "u0", ScopingPolicyID: "role-1"}, {ID: "s1", OwnerUserID: "u4"}, {ID: "s2", OwnerUserID: "keeper", ScopingPolicyID: "p0"},
	}
	return b
}

func drawWrite(r *rand.Rand) accessWrite {
	by := svc.Principal{Kind: svc.KindUser, ID: pick(r, writersUsers[:6]...)}
	switch r.IntN(12) {
	case 0, 1:
		by = svc.Principal{Kind: svc.KindServiceAccount, ID: pick(r, "s0", "s1")}
	case 2, 3:
		by.ScopingPolicyID = pick(r, writersRoles...)
	case 4:
		by = svc.Host
	}
	return accessWrite{by: by, line: drawLine(r)}
}

func drawLine(r *rand.Rand) string {
	policy, user, group := pick(r, slices.Concat(writersRoles, writersParts, writersParts)...), pick(r, writersUsers...), pick(r, writersGroups...)
	to := fmt.Sprintf(`{"Type": "user", "ID": %q}`, user)
	if r.IntN(3) == 0 {
		to = fmt.Sprintf(`{"Type": "group", "ID": %q}`, group)
	}
	switch r.IntN(9) {
	case 0, 1:
		return fmt.Sprintf(`Policies.Attach {"PolicyID": %q, "Principal": %s}`, policy, to)
	case 2:
		return fmt.Sprintf(`Policies.Detach {"PolicyID": %q, "Principal": %s}`, policy, to)
	case 3:
		return fmt.Sprintf(`Groups.AddMembers %q %q`, group, user)
	case 4:
		return fmt.Sprintf(`Groups.RemoveMembers %q %q`, group, user)
	case 5:
		if r.IntN(2) == 0 {
			return fmt.Sprintf(`Users.Patch %q {"Inactive": %t}`, user, r.IntN(3) == 0)
		}
		scoping := "null"
		if r.IntN(3) > 0 {
			scoping = fmt.Sprintf("%q", pick(r, slices.Concat(writersRoles, writersParts)...))
		}
		return fmt.Sprintf(`ServiceAccounts.Patch %q {"ScopingPolicyID": {"Value": %s}}`, pick(r, "s0", "s1", "s2"), scoping)
	}
	if r.IntN(3) == 0 {
		return fmt.Sprintf(`Banks.SetPolicy {"BankID": %q, "Document": {"version": "2026-03-24",
			"public_access": {"overrides": [{"scope": "channel", "value": "c", "actions": [%q]}]}}}`,
			pick(r, "a", "z"), pick(r, "bank:recall", "bank:retain", "bank:*"))
	}
	parts := []string{statement("allow", "*", pick(r, writersActions...), pick(r, writersActions[:6]...)),
		statement(pick(r, "allow", "allow", "deny"), pick(r, "a", "z", "*"), pick(r, "bank:recall", "bank:retain", "bank:*"))}
	return fmt.Sprintf(`Policies.Patch %q {"Document": %s}`, policy, statements(parts[r.IntN(2):]...))
}

// writersAsked are the requests that are compared. Those of the first ones are of the control plane.
var writersAsked, writersControl = func() (asked [][2]string, control int) {
	for _, action := range append(writersActions, "template:admin") {
		asked = append(asked, [2]string{action, "*"})
	}
	control = len(asked)
	for _, bank := range []string{"a", "z", "other"} {
		for _, action := range []string{"bank:recall", "bank:retain", "bank:other"} {
			asked = append(asked, [2]string{action, bank})
		}
	}
	return asked, control
}()

// held is what a principal is allowed, by writersAsked.
func held(t *testing.T, s *svc.Service, p svc.Principal) []bool {
	all := make([]bool, len(writersAsked))
	for i, asked := range writersAsked {
		action := asked[0]
		if strings.HasSuffix(action, "*") {
			action += "x" // Decide refuses patterns, and no narrower one covers this
		}
		d := must(s.Decide(t.Context(), p, action, asked[1], svc.Context{Channel: "c"}))
		all[i] = d.Allowed() && !(p.Kind == svc.KindUnmapped && i < writersControl)
	}
	return all
}

// writersParties are all whose rights writers may change. The last is the bearer of a narrowed key.
func writersParties() []svc.Principal {
	all := []svc.Principal{svc.Unmapped}
	for _, id := range writersUsers {
		all = append(all, svc.Principal{Kind: svc.KindUser, ID: id})
	}
	for _, id := range []string{"s0", "s1", "s2"} {
		all = append(all, svc.Principal{Kind: svc.KindServiceAccount, ID: id})
	}
	return append(all, svc.Principal{Kind: svc.KindUser, ID: "u0", ScopingPolicyID: "role-1"})
}

// unfair returns a right that a write gave or took, and that its writer lacked; "": none.
func unfair(may []bool, before, after [][]bool) string {
	grants := may[slices.Index(writersActions, action.BanksGrant)]
	for p, party := range writersParties() {
		for i, asked := range writersAsked {
			control := i < writersControl
			changed := after[p][i] && !before[p][i] || control && before[p][i] && !after[p][i]
			if changed && !may[i] && (control || !grants) {
				return fmt.Sprintf("%s %s: %v on %s, then %v", party.Kind, party.ID, before[p][i], asked, after[p][i])
			}
		}
	}
	return ""
}

// race has writers write at once for some time, and returns what was written.
func race(t *testing.T, services []*svc.Service, seed uint64, as func(svc.Principal) svc.Principal) (written []accessWrite) {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	ended := time.Now().Add(300 * time.Millisecond)
	for i := range clients {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for time.Now().Before(ended) {
				w := drawWrite(r)
				ctx := context.WithValue(t.Context(), firstEvent{}, &w.event)
				_, err := calltest.Do(ctx, services[i%len(services)], as(w.by), w.line)
				if code := svc.ErrorCode(err); code == svc.CodeInternal || code == svc.CodeUnavailable {
					t.Errorf("%+v, %s: %v", w.by, w.line, err)
				}
				mu.Lock()
				if !w.event.Time.IsZero() {
					written = append(written, w)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return written
}

// ordered sorts writes by the records of their events.
func ordered(t *testing.T, s *svc.Service, written []accessWrite) {
	numbers := map[string]int64{}
	for record, err := range s.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{}) {
		numbers[must(record, err).ID.String()] = record.Number
	}
	slices.SortFunc(written, func(a, b accessWrite) int { return int(numbers[a.event.ID.String()] - numbers[b.event.ID.String()]) })
}

// replay repeats writes one by one on a service of its own, and returns the first that gave or took what its writer lacked. It fails when
// the rows end otherwise than in the store of the race.
func replay(t *testing.T, of *svc.Service, written []accessWrite) string {
	t.Helper()
	s := serveKeeping(t, memstore.New())[0]
	apply(t, s)
	parties := writersParties()
	see := func() (all [][]bool) {
		for _, p := range parties {
			all = append(all, held(t, s, p))
		}
		return all
	}
	before := see()
	for i, w := range written {
		may := slices.Repeat([]bool{true}, len(writersAsked))
		if w.by.Kind != svc.KindHost {
			may = held(t, s, w.by)
		}
		if _, err := calltest.Do(t.Context(), s, svc.Host, w.line); err != nil {
			t.Fatalf("write %d: %+v, %s: %v", i, w.by, w.line, err)
		}
		after := see()
		if gained := unfair(may, before, after); gained != "" {
			return fmt.Sprintf("write %d of %d: %+v, %s: %s", i, len(written), w.by, w.line, gained)
		}
		before = after
	}
	if have, want := exported(t, of), exported(t, s); !reflect.DeepEqual(have, want) {
		t.Fatalf("after %d writes there are\n%+v\nnot\n%+v", len(written), have, want)
	}
	return ""
}

// apply makes the writers' world, with a narrowed key: its bearer is one of writersParties.
func apply(t *testing.T, s *svc.Service) {
	must(0, s.Access.Apply(t.Context(), svc.Host, writersWorld()))
	must(s.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "u0"}, svc.NewAPIKey{ScopingPolicyID: "role-1"}))
}

func exported(t *testing.T, s *svc.Service) svc.Bundle {
	return must(s.Access.Export(t.Context(), svc.Host))
}

// Writers with different rights write at once. Each write, in the order of the records, gave nobody what its writer lacked then. So nobody
// ends with a right that no holder of it gave.
func TestNoSequenceOfWritersGains(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		writes, rounds := 0, uint64(longtest.Times(1, 5))
		for round := range rounds {
			t.Run(fmt.Sprint(round), func(t *testing.T) { // its connections end with it
				services := serveKeeping(t, open(t)...)
				apply(t, services[0])
				written := race(t, services, firstSeed(t)+round, func(by svc.Principal) svc.Principal { return by })
				ordered(t, services[0], written)
				if gained := replay(t, services[0], written); gained != "" {
					t.Fatal(gained)
				}
				writes += len(written)
			})
		}
		t.Logf("%d writes in %d rounds", writes, rounds)
		if writes == 0 {
			t.Error("nothing was written")
		}
	})
}

// A service that lets everybody write is noticed, and one that takes a narrowed caller for its user.
func TestGainsAreNoticed(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	for name, as := range map[string]func(svc.Principal) svc.Principal{
		"everybody writes":       func(svc.Principal) svc.Principal { return svc.Host },
		"narrowing is forgotten": func(by svc.Principal) svc.Principal { return svc.Principal{Kind: by.Kind, ID: by.ID} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) { // in some orders nobody gains
				services := serveKeeping(t, memstore.New())
				apply(t, services[0])
				written := race(t, services, seed, as)
				ordered(t, services[0], written)
				if replay(t, services[0], written) != "" {
					return
				}
			}
			t.Error("the replay says that nobody gained")
		})
	}
}
