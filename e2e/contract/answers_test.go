package contract_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/internal/wire"
)

// TestEveryAnswer gets every answer that the document promises from a server: each status of each operation, and each
// code of a problem. It sends the examples of the document. It lists the promised answers that it did not get.
func TestEveryAnswer(t *testing.T) {
	s := newStage(t)
	samples := s.contract.Samples()
	for _, sample := range samples {
		s.succeed(sample)
		s.failSources(sample)
		s.failStore(sample)
		s.miss(sample)
	}
	s.refuse(samples)
	s.conflict()
	s.turnPages()
	s.elsewhere()
	s.refuseBundles()
	s.introspect()
	c := s.play(stocked)
	for keys, key := range map[string]string{
		"/me/api-keys": c.key, "/users/alice/api-keys": c.key, "/service-accounts/ci/keys": c.botKey, ownAccounts + "/ci/keys": c.botKey,
	} {
		s.send(entitled(keys), "POST", keys+"/"+key+"/rotate", `{"overlap_seconds": 9}`)
		s.send(entitled(keys), "POST", keys+"/"+key+"/rotate", `{}`).is(409) // it has a successor
	}
	c = s.play(crowded)
	for keys, key := range map[string]string{
		"/me/api-keys": c.key, "/users/alice/api-keys": c.key, "/service-accounts/ci/keys": c.botKey, ownAccounts + "/ci/keys": c.botKey,
	} {
		s.send(entitled(keys), "POST", keys, `{}`).is(409)
		s.send(entitled(keys), "POST", keys+"/"+key+"/rotate", `{"overlap_seconds": 9}`).is(409)
	}
	etag := ""
	for began := time.Now(); etag == "" && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		etag = s.send("admin", "GET", "/admin/templates", "").header.Get("ETag")
	}
	s.send("admin", "GET", "/admin/templates", "", contract.Value{Name: "If-None-Match", Text: etag}).is(304)
	s.play(stocked)
	for _, row := range []string{
		"/users/alice", "/groups/team", "/policies/spare", "/service-accounts/ci", ownAccounts + "/ci", "/banks/support/policy", "/banks/policy?bank=support",
	} {
		etag := contract.Value{Name: "If-None-Match", Text: s.ask("GET " + row).header.Get("ETag")}
		s.send(entitled(row), "GET", row, "", etag).is(304)
	}
	for _, promise := range s.contract.Unseen() {
		t.Errorf("not seen: %s", promise)
	}
}

// introspect asks about narrowed keys, for gateways that read JSON and for others, also while the store fails. A token that can be no key
// needs no store.
func (s *stage) introspect() {
	s.t.Helper()
	c := s.play(stocked)
	narrowed := must(c.service.Keys.Issue(s.t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{ScopingPolicyID: "reads"}))
	for _, target := range []string{"/introspect", "/introspect?inactive=401"} {
		s.send("admin", "POST", target, "token="+string(narrowed.Key)).is(200)
	}
	for status, fault := range map[int]error{500: errors.New("the disk is on fire"), 503: svc.ErrUnavailable} {
		c := s.play(stocked)
		uncached := must(c.service.Keys.Issue(s.t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{}))
		s.send("admin", "POST", "/introspect", "token=x").is(200) // the Service caches the caller
		c.store.faults.Store(&faults{reads: fault})
		s.send("admin", "POST", "/introspect", "token="+string(uncached.Key)).is(status)
	}
}

// refuseBundles sends bundles that conflict with what the scene has.
func (s *stage) refuseBundles() {
	s.t.Helper()
	const path = "/admin/access-bundle"
	c := s.play(stocked)
	c.store.faults.Store(&faults{writes: svc.ErrChanged})
	s.send("admin", "POST", path, `{"users": [{"id": "new"}]}`).is(409)
	c.store.faults.Store(&faults{})
	s.send("admin", "POST", "/users/alice/api-keys", `{"scoping_policy_id": "reads"}`).is(201)
	s.send("admin", "POST", path+"?prune=1", `{"users": [{"id": "alice"}]}`).is(409)
	s.send("admin", "POST", path, `{"users": [{"id": "alice"}],
	  "attachments": [{"policy_id": "iam:admin", "principal_type": "user", "principal_id": "alice"}]}`).is(204)
	s.send("admin", "POST", path, `{"users": [{"id": "alice", "is_active": false}]}`).is(409)
}

// target returns the target of a sample in a scene, with or without the optional parts.
func (c *scene) target(sample contract.Sample, optional bool) string {
	return c.withKeys(sample.Target(optional))
}

// withKeys replaces the keys of the document's examples by those of a scene, and the list of a cursor by that of the target.
func (c *scene) withKeys(target string) string {
	target = withList(target)
	if c.key == "" {
		return target
	}
	return strings.NewReplacer("3kP0xUaB7cJ5t0Qz", c.key, "8mQ2yVcD9eL7u1Rw", c.botKey,
		"5f2b7f0a54c2e3c1a1de2f0b9c8d7e6f", c.revision()).Replace(target)
}

// withList returns the target with the cursor of an example as one of the list there.
func withList(target string) string {
	path, _, _ := strings.Cut(target, "?")
	u, err := url.Parse(target)
	if err != nil || !u.Query().Has("cursor") {
		return target
	}
	cursor, parts := u.Query().Get("cursor"), []string(nil)
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &parts) != nil || len(parts) != 3 {
		return target
	}
	return strings.Replace(target, "cursor="+cursor, "cursor="+wire.Cursor(wire.List(path, u.Query()), parts[1:]), 1)
}

// revision returns that of the rows of access.
func (c *scene) revision() string {
	rows, _ := c.service.Access.Export(context.Background(), svc.Host) // a store that fails has none
	return rows.Revision()
}

// try sends a sample in a scene, with all optional parts.
func (s *stage) try(c *scene, sample contract.Sample) answer {
	s.t.Helper()
	target := c.target(sample, true)
	return s.send(entitled(target), sample.Method, target, sample.Body, sample.Header...)
}

// succeed sends a sample in every setting. It must succeed in one of them.
func (s *stage) succeed(sample contract.Sample) {
	s.t.Helper()
	good := false
	for _, what := range []setting{empty, shelved, stocked, moved} {
		whole := s.try(s.resume(what), sample).status
		target := s.resume(what).target(sample, false)
		least := s.send(entitled(target), sample.Method, target, sample.Body).status
		target = s.resume(what).target(sample, true)
		free := s.send(entitled(target), sample.Method, target, sample.Body).status // without conditions
		good = good || min(whole, least, free) < 300
	}
	if !good {
		s.t.Errorf("%s %s: succeeds nowhere", sample.Operation, sample.Body)
	}
}

// miss sends a sample about things that do not exist.
func (s *stage) miss(sample contract.Sample) {
	s.t.Helper()
	c := s.resume(stocked)
	sample.Path = slices.Clone(sample.Path)
	for i, segment := range sample.Path {
		if segment.Name != "" && segment.Name != "principal_type" {
			sample.Path[i].Text = "none"
		}
	}
	s.try(c, sample)
}

// conflict sends the requests of testdata/conflicts.txt, which the state of a scene refuses.
func (s *stage) conflict() {
	s.t.Helper()
	settings := map[string]setting{"stocked": stocked, "ruled": ruled, "crowded": crowded, "frozen": frozen}
	for line := range strings.Lines(string(must(os.ReadFile("testdata/conflicts.txt")))) {
		switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "", "#":
		case "==":
			s.play(settings[rest])
		default:
			s.ask(rest).is(must(strconv.Atoi(word)))
		}
	}
}

// ask sends a request, written in one line, by who may.
func (s *stage) ask(line string) answer {
	s.t.Helper()
	method, rest, _ := strings.Cut(line, " ")
	target, body, _ := strings.Cut(rest, " ")
	return s.send(entitled(target), method, target, body)
}

// failSources sends a sample while the sources fail.
func (s *stage) failSources(sample contract.Sample) {
	s.t.Helper()
	for _, fault := range []error{errors.New("connection refused"), context.DeadlineExceeded} {
		for _, what := range []setting{shelved, stocked} {
			c := s.resume(what)
			c.shelf.fault.Store(&fault)
			s.try(c, sample)
		}
	}
}

// refuse sends faulty samples, and samples from callers without rights.
func (s *stage) refuse(samples []contract.Sample) {
	s.t.Helper()
	c := s.play(stocked)
	for _, sample := range samples {
		method, target, body := sample.Method, c.target(sample, true), sample.Body
		good := entitled(target)
		s.send("", method, target, body).is(401)
		s.send("nonsense", method, target, body).is(401)
		if caller := barred(target); caller != "" {
			s.send(caller, method, target, body).is(403)
		}
		s.send(good, method, c.target(sample, false)+"?%zz", body).is(400)
		for _, header := range sample.Header {
			switch header.Name {
			case "If-Match":
				header.Text = `"another"`
				s.send(good, method, target, body, header).is(412)
			case "Idempotency-Key":
				s.send(good, "POST", "/me/api-keys", `{"description": "another request"}`, header).is(201)
				s.send(good, method, target, body, header).is(422)
			}
		}
		if body != "" {
			s.send(good, method, target, strings.Repeat(" ", maxBody+1)).is(413)
			s.send(good, method, target, body, contract.Value{Name: "Content-Type", Text: "text/plain"}).is(415)
		}
		c.wait.Store(true)
		s.send(good, method, target, body).is(429)
		c.wait.Store(false)
	}
}

// failStore sends a sample while the store fails: for every call, for a while, or for writes that conflict.
func (s *stage) failStore(sample contract.Sample) {
	s.t.Helper()
	fire := errors.New("the disk is on fire")
	// A judgement that exceeds its budget takes a second; what it answers is the same from anywhere.
	var complex error = &svc.Error{Code: svc.CodeTooComplex, Message: "too much work"}
	var readOnly error = &svc.Error{Code: svc.CodeReadOnly, Message: "this server is read-only"} // as a Service that is
	for _, what := range []setting{shelved, stocked} {
		for _, f := range []faults{
			{fire, fire}, {svc.ErrUnavailable, svc.ErrUnavailable}, {nil, svc.ErrChanged}, {complex, nil}, {nil, complex}, {nil, readOnly},
		} {
			if (f.reads == complex || f.writes == complex) && !s.contract.Promises(sample.Operation, "409 too_complex") ||
				f.writes == readOnly && !s.contract.Promises(sample.Operation, "403 read_only") {
				continue
			}
			c := s.resume(what)
			if f.reads == complex { // an answer from the cache would need no judgement
				c = s.play(what)
			}
			s.send(entitled(c.target(sample, true)), "GET", "/nothing", "").is(404) // the Service caches the caller
			c.store.faults.Store(&f)
			if a := s.try(c, sample); what == stocked && f.reads != nil && f.writes != nil && a.status < 500 && sample.Operation != "POST /introspect" {
				s.t.Errorf("%s: answered %d while the store fails with %v", a.request, a.status, f.reads)
			}
		}
	}
}

// turnPages reads the first two pages of each list, one row a page.
func (s *stage) turnPages() {
	s.t.Helper()
	s.play(stocked)
	for _, list := range []string{"/admin/templates", "/me/templates"} {
		s.ask("POST " + list + ` {"id": "second", "name": "Second", "manifest": {"version": "1"}}`).is(200)
	}
	s.ask("POST /me/api-keys").is(201)
	s.ask("POST /service-accounts/ci/keys").is(201)
	s.turn("/admin/events", "/admin/templates", "/me/templates", "/me/api-keys", "/users/alice/api-keys",
		"/admin/api-keys", "/service-accounts/ci/keys", ownAccounts+"/ci/keys")
	s.play(crowded)
	s.ask(`POST /users/alice/channels {"provider": "telegram", "sender_id": "2002"}`).is(201)
	s.ask(`POST /groups {"id": "second"}`).is(201)
	s.ask(`POST /groups/team/members {"user_id": "bob"}`).is(201)
	s.turn("/users", "/users/alice/channels", "/groups", "/groups/team/members", "/policies", "/policy-attachments",
		"/service-accounts", ownAccounts, "/admin/api-keys")
}

func (s *stage) turn(lists ...string) {
	s.t.Helper()
	for _, list := range lists {
		first := s.ask("GET " + list + "?limit=1")
		next, more := strings.CutSuffix(strings.TrimPrefix(first.header.Get("Link"), "<"), `>; rel="next"`)
		second := s.ask("GET " + list + next)
		if second.is(200); !more || string(first.body) == string(second.body) {
			s.t.Errorf("%s: %s %v\n%s", first.request, first.body, first.header, second.body)
		}
	}
}

// elsewhere sends requests that match no operation.
func (s *stage) elsewhere() {
	s.t.Helper()
	c := s.play(stocked)
	s.send("", "GET", "/nothing", "").is(401)
	s.send("", "POST", "/nothing", "", contract.Value{Name: "Origin", Text: "https://elsewhere.example"}).is(403)
	s.send("admin", "GET", "/nothing", "").is(404)
	s.send("admin", "PUT", "/admin/templates", "").is(405)
	c.wait.Store(true)
	s.send("admin", "GET", "/nothing", "").is(429)
	for status, fault := range map[int]error{500: errors.New("the disk is on fire"), 503: svc.ErrUnavailable} {
		s.play(stocked).store.faults.Store(&faults{reads: fault})
		s.send("alice", "GET", "/nothing", "").is(status)
	}
}
