package svc_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func TestEventRow(t *testing.T) {
	row := func(bytes int) string { return `{"id":"` + strings.Repeat("a", bytes-9) + `"}` }
	digest := func(text string) string {
		return fmt.Sprintf(`{"bytes":%d,"sha256":"%x"}`, len(text), sha256.Sum256([]byte(text)))
	}
	for in, want := range map[string]string{
		`{}`:                        `{}`,
		`{"id":"a<b>"}`:             `{"id":"a<b>"}`,
		`{"id":"a", "b":[1.0,1e2]}`: `{"b":[1,100],"id":"a"}`,
		`{"n":9007199254740993}`:    `{"n":9007199254740993}`, // no digit is lost
		row(svc.MaxEventRow):        row(svc.MaxEventRow),
		row(svc.MaxEventRow + 1):    digest(row(svc.MaxEventRow + 1)),
		" " + row(svc.MaxEventRow):  row(svc.MaxEventRow),
		`{"a":1,"a":2}`:             digest(`{"a":1,"a":2}`), // it has no canonical form
	} {
		if got := svc.EventRow([]byte(in)); string(got) != want {
			t.Errorf("%.40s: %.80s, want %.80s", in, got, want)
		}
	}
	is.New(t).Equal(svc.EventRow(nil), nil)
}

// recordWithRows is the first record of a log.
func recordWithRows(was, is string) svc.AuditRecord {
	r := svc.AuditRecord{Number: 1, Event: svc.Event{
		ID: uuid.UUID{6: 0x70}, Time: time.Unix(0, 0).UTC(), Actor: svc.Host.Identity(), Action: svc.EventAccessWritten,
		Target: svc.Target{Kind: svc.TargetGroup, ID: "g"},
		Was:    json.RawMessage(was), Is: json.RawMessage(is),
	}}
	rehash(&r)
	return r
}

// appended is a service over a store with these records.
func appended(t *testing.T, records ...svc.AuditRecord) *host {
	t.Helper()
	h := newHost(t, keeping)
	err := h.store.(svc.AuditStore).AppendAudit(t.Context(), func(svc.AuditRecord) []svc.AuditRecord { return records })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestRowsAreInTheChain: a hash vouches for both rows, and for each as what it is.
func TestRowsAreInTheChain(t *testing.T) {
	is := is.New(t)
	middle := `,"number":1,"previous":null,"target":{"holder":null,"id":"g","kind":"group","owner":null,"scope":null},"time":"1970-01-01T00:00:00.000000Z","was":`
	for _, c := range []struct{ was, is string }{
		{"null", `{"id":"g"}`}, {`{"id":"g"}`, "null"}, {`{"id":"g"}`, `{"id":"g","members":["a"]}`},
		{`{"document":{}` + middle + `{}}`, `{"id":"g"}`}, // a policy may look like the rest of a record
	} {
		good := recordWithRows(c.was, c.is)
		for _, row := range []*json.RawMessage{&good.Was, &good.Is} {
			if string(*row) == "null" {
				*row = nil
			}
		}
		appended(t, good).wantSound(t)
		for name, tamper := range map[string]func(*svc.AuditRecord){
			"was is lost":    func(r *svc.AuditRecord) { r.Was = nil },
			"is is lost":     func(r *svc.AuditRecord) { r.Is = nil },
			"was changes":    func(r *svc.AuditRecord) { r.Was = json.RawMessage(`{}`) },
			"is changes":     func(r *svc.AuditRecord) { r.Is = json.RawMessage(`{}`) },
			"they change":    func(r *svc.AuditRecord) { r.Was, r.Is = r.Is, r.Was },
			"null for none":  func(r *svc.AuditRecord) { r.Was, r.Is = orNullRow(r.Was), orNullRow(r.Is) },
			"cut elsewhere":  func(r *svc.AuditRecord) { r.Is, r.Was = cutElsewhere(r.Is, r.Was, middle) },
			"with a space":   func(r *svc.AuditRecord) { r.Is = append(slices.Clone(r.Is), ' ') },
			"rows of nobody": func(r *svc.AuditRecord) { r.Was, r.Is = json.RawMessage(`{"x":1}`), json.RawMessage(`{"x":1}`) },
		} {
			bad := good
			if tamper(&bad); string(bad.Was) == string(good.Was) && string(bad.Is) == string(good.Is) {
				continue
			}
			check, err := appended(t, bad).Audit.Verify(t.Context(), svc.Host)
			is.NoErr(err)
			if check.Fault == nil {
				t.Errorf("%s: %s to %s", name, bad.Was, bad.Is)
			}
		}
	}
}

func orNullRow(row json.RawMessage) json.RawMessage {
	if row == nil {
		return json.RawMessage("null")
	}
	return row
}

// cutElsewhere moves the end of is to where was looks like it: the form of the record is the same.
func cutElsewhere(is, was json.RawMessage, middle string) (otherIs, otherWas json.RawMessage) {
	before, after, found := strings.Cut(string(was), middle)
	if !found {
		return is, was
	}
	return json.RawMessage(string(is) + middle + before), json.RawMessage(after)
}

// TestRowsReachTheHost: in a transaction of the host, the outbox keeps them.
func TestRowsReachTheHost(t *testing.T) {
	is := is.New(t)
	told := make(chan svc.Event, 1)
	h := newHost(t, func(c *svc.Config) { c.OnEvent = func(_ context.Context, e svc.Event) { told <- e } })
	want := recordWithRows(`{"id":"g"}`, `{"id":"g","members":["a"]}`).Event
	is.NoErr(h.store.(svc.OutboxStore).AddEvents(t.Context(), []svc.Event{want}))
	is.Equal(<-told, want)
}
