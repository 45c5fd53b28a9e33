package contract_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
)

// TestEveryAnswer gets every answer that the document promises from a server: each status of each
// operation, and each code of a problem. It sends the examples of the document. It lists the
// promised answers that it did not get.
func TestEveryAnswer(t *testing.T) {
	s := newStage(t)
	samples := s.contract.Samples()
	for _, sample := range samples {
		s.succeed(sample)
		s.failSources(sample)
		s.failStore(sample)
	}
	s.refuse(samples)
	s.turnPages()
	s.elsewhere()
	s.play(stocked)
	s.send("admin", "POST", "/debug/simulate", `{
	  "bundle": {"users": [{"id": "alice", "channels": [{"provider": "telegram", "sender_id": "1001"}]}]},
	  "query": {"bank": "support", "user_id": "alice"}}`).is(409) // it belongs to bob
	key := s.play(crowded).key
	for bearer, keys := range map[string]string{"alice": "/me/api-keys", "admin": "/users/alice/api-keys"} {
		s.send(bearer, "POST", keys, `{}`).is(409)
		s.send(bearer, "POST", keys+"/"+key+"/rotate", `{"overlap_seconds": 9}`).is(409)
	}
	etag := ""
	for began := time.Now(); etag == "" && time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		etag = s.send("admin", "GET", "/admin/templates", "").header.Get("ETag")
	}
	s.send("admin", "GET", "/admin/templates", "", contract.Value{Name: "If-None-Match", Text: etag}).is(304)
	for _, promise := range s.contract.Unseen() {
		t.Errorf("not seen: %s", promise)
	}
}

// target returns the target of a sample in a scene, with or without the optional parts.
func (c *scene) target(sample contract.Sample, optional bool) string {
	if c.key == "" {
		return sample.Target(optional)
	}
	return strings.Replace(sample.Target(optional), "3kP0xUaB7cJ5t0Qz", c.key, 1)
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
		whole := s.try(s.play(what), sample).status
		target := s.play(what).target(sample, false)
		least := s.send(entitled(target), sample.Method, target, sample.Body).status
		good = good || min(whole, least) < 300
	}
	if !good {
		s.t.Errorf("%s %s: succeeds nowhere", sample.Operation, sample.Body)
	}
}

// failSources sends a sample while the sources fail.
func (s *stage) failSources(sample contract.Sample) {
	s.t.Helper()
	for _, fault := range []error{errors.New("connection refused"), context.DeadlineExceeded} {
		for _, what := range []setting{shelved, stocked} {
			c := s.play(what)
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

// failStore sends a sample while the store fails: for every call, for a while, or for writes that
// conflict.
func (s *stage) failStore(sample contract.Sample) {
	s.t.Helper()
	fire := errors.New("the disk is on fire")
	for _, what := range []setting{shelved, stocked} {
		for _, f := range []faults{{fire, fire}, {svc.ErrUnavailable, svc.ErrUnavailable}, {nil, svc.ErrChanged}} {
			c := s.play(what)
			s.send(entitled(c.target(sample, true)), "GET", "/nothing", "").is(404) // the Service caches the caller
			c.store.faults.Store(&f)
			if a := s.try(c, sample); what == stocked && f.reads != nil && a.status < 500 {
				s.t.Errorf("%s: answered %d while the store fails with %v", a.request, a.status, f.reads)
			}
		}
	}
}

// turnPages reads lists of two rows, one row a page.
func (s *stage) turnPages() {
	s.t.Helper()
	s.play(stocked)
	if page := s.send("admin", "GET", "/admin/events?limit=1", ""); page.header.Get("Link") == "" {
		s.t.Errorf("%s: %s %v", page.request, page.body, page.header)
	}
	s.send("admin", "POST", "/admin/templates", `{"id": "second", "name": "Second", "manifest": {"version": "1"}}`).is(200)
	s.send("alice", "POST", "/me/api-keys", "").is(201)
	for _, list := range []string{"/admin/templates", "/me/api-keys", "/users/alice/api-keys"} {
		first := s.send(entitled(list), "GET", list+"?limit=1", "")
		next, more := strings.CutSuffix(strings.TrimPrefix(first.header.Get("Link"), "<"), `>; rel="next"`)
		second := s.send(entitled(list), "GET", list+next, "")
		if second.is(200); !more || second.header.Get("Link") != "" || string(first.body) == string(second.body) {
			s.t.Errorf("%s: %s %v\n%s %v", first.request, first.body, first.header, second.body, second.header)
		}
	}
}

// elsewhere sends requests that match no operation.
func (s *stage) elsewhere() {
	s.t.Helper()
	c := s.play(stocked)
	s.send("", "GET", "/nothing", "").is(401)
	s.send("admin", "GET", "/nothing", "").is(404)
	s.send("admin", "PUT", "/admin/templates", "").is(405)
	c.wait.Store(true)
	s.send("admin", "GET", "/nothing", "").is(429)
	for status, fault := range map[int]error{500: errors.New("the disk is on fire"), 503: svc.ErrUnavailable} {
		s.play(stocked).store.faults.Store(&faults{reads: fault})
		s.send("alice", "GET", "/nothing", "").is(status)
	}
}
