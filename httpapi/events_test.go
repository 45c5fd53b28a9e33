package httpapi_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/jcs"
)

func keeping(u *setup) { u.Events.Keep = true }

// eventful is a site that keeps events, some of which have happened, and its administrator.
func eventful(t *testing.T) (*site, caller) {
	s := newSite(t, keeping)
	admin := s.admin()
	s.clock.tick()
	admin.post("/admin/templates", `{"id": "a<b>", "name": "n", "manifest": {"version": "1"}}`).is(200)
	s.clock.tick()
	admin.delete("/admin/templates/a%3Cb%3E").is(204)
	admin.post("/users/alice/api-keys", "").is(201)
	return s, admin
}

// events are those that answer a target, on all pages from it on.
func (c caller) events(target string) []map[string]any {
	c.t.Helper()
	return slices.Concat(c.follow(target)...)
}

func numbers(events []map[string]any) string {
	var all []string
	for _, event := range events {
		all = append(all, fmt.Sprint(event["number"]))
	}
	return strings.Join(all, " ")
}

func TestEventsWhole(t *testing.T) {
	s, admin := eventful(t)
	events := admin.events("/admin/events?limit=3")
	var records []svc.AuditRecord
	for r, err := range s.service.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{}) {
		records = append(records, must(r, err))
	}
	expect.Equal(t, "events", len(events), len(records))
	n := len(records)
	a := admin.get("/admin/events?limit=3").is(200)
	issued, deleted, created := records[0], records[1], records[2]
	key := issued.ActorKey
	a.json(fmt.Sprintf(`{"events": [
	  {"number": %d, "id": %q, "time": "2026-01-02T03:04:07.678901Z", "actor": {"kind": "user", "id": "admin", "key_id": %q}, "action": "api_key.issued",
	   "target": {"kind": "api_key", "id": %q, "scope": null, "owner": null, "holder": {"kind": "user", "id": "alice"}}, "was": null, "is": null, "previous": "%x", "salts": %s, "hash": "%x"},
	  {"number": %d, "id": %q, "time": "2026-01-02T03:04:07.678901Z", "actor": {"kind": "user", "id": "admin", "key_id": %q}, "action": "template.deleted",
	   "target": {"kind": "template", "id": "a<b>", "scope": "server", "owner": null, "holder": null}, "was": null, "is": null, "previous": "%x", "salts": %s, "hash": "%x"},
	  {"number": %d, "id": %q, "time": "2026-01-02T03:04:06.678901Z", "actor": {"kind": "user", "id": "admin", "key_id": %q}, "action": "template.created",
	   "target": {"kind": "template", "id": "a<b>", "scope": "server", "owner": null, "holder": null}, "was": null, "is": null, "previous": "%x", "salts": %s, "hash": "%x"}]}`,
		n, issued.ID, key, issued.Target.ID, deleted.Hash, must(marshal(issued.Salts)), issued.Hash, n-1, deleted.ID, key, created.Hash, must(marshal(deleted.Salts)), deleted.Hash,
		n-2, created.ID, key, created.Previous, must(marshal(created.Salts)), created.Hash))
	expect.Holds(t, len(key) == 16 && key != issued.Target.ID, key)
	first := events[n-1]
	expect.Holds(t, first["previous"] == nil && fmt.Sprint(first["actor"]) == "map[id:<nil> kind:host]", first)
}

// Anybody can check the chain: the hash of an event is that of all else of it. So it is in the documentation.
func TestHashesOfEvents(t *testing.T) {
	s, admin := eventful(t)
	must(s.service.Keys.Issue(t.Context(), svc.Host, alice, svc.NewAPIKey{}))
	admin.post("/users/alice/api-keys", "").is(201)
	wantChain(t, admin.events("/admin/events?limit=4"))
	_, asked, _ := strings.Cut(string(must(os.ReadFile("../docs/reference/events.md"))), "/ext/svc/admin/events?") // the check is of what the page asks for
	asked, _, _ = strings.Cut(asked, "'")
	events := admin.events("/admin/events?" + asked)
	expect.Holds(t, len(events) >= 3, asked, events)
	wantChain(t, events)
	for _, file := range []string{"../docs/reference/events.md", "openapi.json"} {
		_, example, found := strings.Cut(string(must(os.ReadFile(file))), `"events": [`+"\n")
		var events []map[string]any
		if err := json.NewDecoder(strings.NewReader("[" + example)).Decode(&events); err != nil || !found || len(events) != 2 {
			t.Fatal(file, err, len(events))
		}
		wantChain(t, events)
	}
}

// wantChain wants events, newest first, to follow one another.
func wantChain(t *testing.T, events []map[string]any) {
	t.Helper()
	for i, event := range events {
		hash, salts := event["hash"], event["salts"].(map[string]any)
		delete(event, "salts")
		for name, at := range textsOf(event) {
			at.in[at.key] = covered(salts[name], at.in[at.key])
		}
		if delete(event, "hash"); i < len(events)-1 && event["previous"] != events[i+1]["hash"] {
			t.Errorf("%v does not follow %v", event, events[i+1])
		}
		sum := sha256.Sum256(must(jcs.Canonical(must(marshal(event)))))
		expect.Equal[any](t, event, hex.EncodeToString(sum[:]), hash)
	}
}

// place is where an event has a text.
type place struct {
	in  map[string]any
	key string
}

// textsOf returns the places of texts that may be erased, by the names of their salts.
func textsOf(event map[string]any) map[string]place {
	target := event["target"].(map[string]any)
	all := map[string]place{
		"actor": {event["actor"].(map[string]any), "id"}, "target": {target, "id"}, "owner": {target, "owner"}, "was": {event, "was"}, "is": {event, "is"},
	}
	if holder, is := target["holder"].(map[string]any); is {
		all["holder"] = place{holder, "id"}
	}
	return all
}

// covered returns what a hash covers of a text, as the documentation says.
func covered(salt, text any) any {
	if salt == nil {
		return text
	}
	if len(salt.(string)) == 64 {
		return []any{salt}
	}
	form, is := text.(string)
	if !is {
		form = string(must(jcs.Canonical(must(marshal(text)))))
	}
	sum := sha256.Sum256([]byte(salt.(string) + form))
	return []any{hex.EncodeToString(sum[:])}
}

// Rows of access are shown as they are stored, to the byte.
func TestRowsOfEvents(t *testing.T) {
	s, admin := eventful(t)
	row := `{"aa":1e400,"b":9007199254740993,"c":"a<b>\u0000` + "\u2028" + `"}`
	for _, rows := range [][2]string{{"", row}, {row, "{}"}, {row, ""}} {
		event := svc.Event{ID: uuid.Must(uuid.NewV7()), Time: s.clock.Now(), Actor: svc.Host.As("ops").Identity(), Action: event.AccessRemoved}
		event.Was, event.Is = []byte(rows[0]), []byte(rows[1])
		expect.Equal(t, row, s.store.QueueAudit(t.Context(), []svc.Event{event}, func(last svc.AuditRecord, _ []svc.Event) []svc.AuditRecord {
			return []svc.AuditRecord{{Event: event, Number: last.Number + 1, Previous: last.Hash, Hash: last.Hash}}
		}), nil)
		shown := func(row string) string { return cmp.Or(row, "null") }
		want := fmt.Sprintf(`"actor":{"kind":"host","id":"ops"},"action":"access.removed","target":{"kind":"","id":"","scope":null,"owner":null,"holder":null},"was":%s,"is":%s,"previous":`, shown(rows[0]), shown(rows[1]))
		have := string(admin.get("/admin/events?limit=1&actor=ops&actor_kind=host").is(200).body)
		expect.Holds(t, strings.Contains(have, want), have, want)
	}
}

func TestFiltersOfEvents(t *testing.T) {
	_, admin := eventful(t)
	all := admin.events("/admin/events")
	for query, fits := range map[string]func(event map[string]any) bool{
		"":                                         func(map[string]any) bool { return true },
		"actor=&target=&since=":                    func(map[string]any) bool { return true },
		"actor=admin":                              func(e map[string]any) bool { return e["actor"].(map[string]any)["id"] == "admin" },
		"actor=nobody":                             func(map[string]any) bool { return false },
		"actor_kind=host":                          func(e map[string]any) bool { return e["actor"].(map[string]any)["kind"] == "host" },
		"actor_kind=service_account":               func(map[string]any) bool { return false },
		"target=a%3Cb%3E":                          func(e map[string]any) bool { return e["target"].(map[string]any)["id"] == "a<b>" },
		"target_kind=policy":                       func(e map[string]any) bool { return e["target"].(map[string]any)["kind"] == "policy" },
		"target_kind=user&actor_kind=user":         func(map[string]any) bool { return false },
		"since=2026-01-02T03:04:06.678901Z":        func(e map[string]any) bool { return e["time"].(string) >= "2026-01-02T03:04:06.678901Z" },
		"since=2026-01-02T03:04:06.6789011Z":       func(e map[string]any) bool { return e["time"].(string) > "2026-01-02T03:04:06.678901Z" },
		"until=2026-01-02T05:04:06.678901%2B02:00": func(e map[string]any) bool { return e["time"].(string) < "2026-01-02T03:04:06.678901Z" },
		"since=2026-01-02T03:04:06Z&until=2026-01-02T03:04:07Z&target_kind=template": func(e map[string]any) bool { return e["action"] == "template.created" },
	} {
		want := numbers(slices.DeleteFunc(slices.Clone(all), func(e map[string]any) bool { return !fits(e) }))
		for _, limit := range []string{"", "&limit=1", "&limit=2"} {
			expect.Equal(t, query+limit, numbers(admin.events("/admin/events?"+query+limit)), want)
		}
	}
}

func TestPagesOfEvents(t *testing.T) {
	s, admin := eventful(t)
	for range 205 {
		s.key("alice")
	}
	first := admin.get("/admin/events").is(200)
	expect.Equal(t, "a page", len(first.rows()), 100)
	next := first.next("/admin/events")
	s.key("alice") // what is new moves nothing
	expect.Equal(t, next, len(admin.get(next).rows()), 100)
	expect.Equal(t, "by 100", numbers(admin.events("/admin/events")), numbers(admin.events("/admin/events?limit=1000")))
}
