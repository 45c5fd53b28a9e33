package storetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/limits"
)

// The rules write the values below. They have the form that the Service writes: valid UTF-8 without
// NUL, times in UTC to the microsecond, manifests without insignificant white space.

// odd are valid ids and names that a careless store confuses, in byte order.
var odd = func() []string {
	list := []string{
		" ", " a", "!", `"`, "#", "$1", "%", "%2F", "%41", "&", "'", "''", "' OR '1'='1", "(", "*",
		"+", "-- ", ":", ":a", ";", "<b>", "?", "@", "A", "AA", "B", "Z",
		"[", "_", "a", "a ", "a%", "a:b", "aa", "ab", "a_", "a@b.example",
		"b", "null", "z", "{}", "~",
		"\u00e9", "e\u0301", "\u00df", "ss", "\u0130", "i", "\u4e2d", "\uffff", "\U0001f600",
		"\U0001f468\u200d\U0001f469",
		strings.Repeat("x", 128), strings.Repeat("\U0001f600", 128), "0", "00", "1", "1.0", "10",
		"2",
	}
	slices.Sort(list)
	return list
}()

// characters are ids of one character, in byte order: all of Latin-1 that an id may hold, and some
// of other planes.
var characters = func() []string {
	var list []string
	for r := ' '; r <= '\u00ff'; r++ {
		if !strings.ContainsRune(`./\`, r) && !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) {
			list = append(list, string(r))
		}
	}
	for _, r := range []rune{
		0x100, 0x17f, 0x3a3, 0x3c2, 0x5d0, 0x904, 0x1e9e, 0x212a, 0x3042, 0xac00, 0xe000, 0xfb00,
		0xff21, 0xfffd,
		0x10000, 0x1d400, 0x20000, 0xe0100, 0xf0000, 0x10fffd,
	} {
		list = append(list, string(r))
	}
	return list
}()

// noise returns text that does not compress: length characters, chosen from the count characters
// that start at first. Each seed gives another text.
func noise(seed uint64, length int, first, count rune) string {
	random := rand.New(rand.NewPCG(seed, seed))
	var b strings.Builder
	for range length {
		b.WriteRune(first + random.Int32N(count))
	}
	return b.String()
}

func at(microseconds int64) time.Time {
	return time.Date(2026, 3, 24, 12, 0, 0, 1000*int(microseconds), time.UTC)
}

func sourceKey(name string) svc.SourceKey {
	return svc.SourceKey{Scope: svc.ScopeServer, Name: name}
}

func personalSource(owner, name string) svc.SourceKey {
	return svc.SourceKey{Scope: svc.ScopePersonal, Owner: owner, Name: name}
}

func newSource(key svc.SourceKey) svc.Source {
	return svc.Source{
		SourceKey: key, URL: "https://example.com/" + key.Name + "?a=b%20c",
		Description: new("about " + key.Name),
		SealedToken: []byte("\x00\xff\x80 sealed"), SigningKey: []byte("\x00\xfe key"),
		Serial: 1 << 53, CreatedAt: at(1), UpdatedAt: at(2),
	}
}

func templateKey(id string) svc.TemplateKey {
	return svc.TemplateKey{Scope: svc.ScopeServer, ID: id}
}

func personalTemplate(owner, id string) svc.TemplateKey {
	return svc.TemplateKey{Scope: svc.ScopePersonal, Owner: owner, ID: id}
}

// under returns a template with another key.
func under(key svc.TemplateKey, template svc.Template) svc.Template {
	template.TemplateKey = key
	return template
}

// handMade returns a template without an origin.
func handMade(id string, tags ...string) svc.Template {
	return svc.Template{
		TemplateKey: templateKey(id),
		Content: svc.Content{
			Name: "name of " + id, Description: new("about " + id), Category: new("category"),
			Integrations: []string{"slack", "mail"}, Tags: tags,
			Manifest: json.RawMessage(`{"version":"1","id":1.0}`),
		},
		InstalledAt: at(10), UpdatedAt: at(20),
	}
}

// installed returns a template with an origin. Its base differs from its content in every field.
func installed(id string, tags ...string) svc.Template {
	template := handMade(id, tags...)
	template.Origin = &svc.Origin{
		Source: personalSource("alice", "acme"), ID: "upstream " + id,
		URL: "https://example.com/acme", Revision: "sha256:" + id, Edited: true,
		Base: svc.Content{
			Name: "base of " + id, Description: new("base about"), Category: new("base category"),
			Integrations: []string{"base"}, Tags: []string{"base-tag", "base-tag"},
			Manifest: json.RawMessage(`{"version":"0"}`),
		},
	}
	return template
}

var alice = asUser("alice")

func asUser(id string) svc.Identity { return svc.Identity{Kind: svc.KindUser, ID: id} }

func asAccount(id string) svc.Identity { return svc.Identity{Kind: svc.KindServiceAccount, ID: id} }

func newKey(id string, holder svc.Identity, created time.Time) svc.APIKey {
	return svc.APIKey{
		ID: id, Holder: holder, Prefix: "svcu_" + id, Description: new("for " + id),
		Hash:   []byte("\x00\xffhash of " + id),
		Pepper: "1", CreatedAt: created, Seal: []byte("\xff\x00seal of " + id),
	}
}

func newPolicy(id string) svc.Policy {
	return svc.Policy{
		ID: id, DisplayName: "policy " + id,
		Document: json.RawMessage(`{"version":"2026-03-24","statements":[],"n":1.0}`),
	}
}

func newBank(id, document string) svc.BankPolicy {
	return svc.BankPolicy{BankID: id, Document: json.RawMessage(document)}
}

func newTest(id string, allowed bool) svc.AccessTest {
	return svc.AccessTest{
		ID: id, UserID: "user " + id, ServiceAccountID: "account " + id, Sender: "sender:" + id,
		Action: "action " + id, Bank: "bank/" + id, Channel: "channel " + id, Topic: "topic " + id,
		Allowed: allowed,
	}
}

func attach(policy, kind, principal string, priority int64) svc.Attachment {
	return svc.Attachment{
		PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: principal}, Priority: priority,
	}
}

func keyOf(a svc.Attachment) svc.AttachmentKey {
	return svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
}

// grant returns what attach gives.
func grant(policy, kind, principal string, priority int64) svc.Grant {
	return svc.Grant{
		Policy: newPolicy(policy), Principal: svc.GrantedTo{Type: kind, ID: principal},
		Priority: priority,
	}
}

// newEvent returns an event. A greater n is newer.
func newEvent(n uint32) svc.Event {
	id := uuid.UUID{0x01, 0x95, 0xff, 0x80, 0, 0, 0x70, 0, 0x80}
	binary.BigEndian.PutUint32(id[12:], n)
	holder := asAccount("holder of " + odd[int(n)%len(odd)])
	tenant := ""
	if n%2 == 1 {
		tenant = odd[int(n+2)%len(odd)]
	}
	return svc.Event{
		ID: id, Tenant: tenant, Time: at(int64(n)), Actor: alice, ActorKey: odd[int(n+1)%len(odd)],
		Action: event.APIKeyIssued,
		Target: svc.Target{
			Kind: event.TargetAPIKey, ID: odd[int(n)%len(odd)], Scope: svc.ScopePersonal,
			Owner: "bob", Holder: holder,
		},
		Was: rows[n%3], Is: rows[n/3%3],
	}
}

// rows are rows of access as events have them: none, a usual one, one that a careless store writes
// in another form, and one of the most bytes.
var rows = []json.RawMessage{
	nil,
	json.RawMessage(`{"id":"alice"}`),
	json.RawMessage(`{"a":9007199254740993,"aa":1e400,"b":"\u0000\"<é` + "\u2028" + `"}`),
	json.RawMessage(`{"id":"` + noise(7, limits.EventRow-9, 'a', 26) + `"}`),
}

// withRows returns an event for each pair of rows.
func withRows() (events []svc.Event) {
	for _, was := range rows {
		for _, is := range rows {
			event := newEvent(uint32(len(events)))
			event.Was, event.Is = was, is
			events = append(events, event)
		}
	}
	return events
}

// sameRows compares the rows of events. It tells nil from a row without bytes.
func (c *checker) sameRows(got, want []svc.Event) {
	all := func(events []svc.Event) []string {
		return column(events, func(e svc.Event) string {
			return fmt.Sprintf("%s %t to %s %t", e.Was, e.Was == nil, e.Is, e.Is == nil)
		})
	}
	c.same("rows of events", all(got), all(want))
}

// apply writes a bundle.
func (c *checker) apply(bundle svc.Bundle) {
	c.write(bundle.Write())
}

// write writes a change of access.
func (c *checker) write(write svc.AccessWrite) {
	c.ok(c.ChangeAccess(c.ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		return write, nil
	}))
}

// current reads rows as ChangeAccess passes them to change.
func (c *checker) current(named svc.AccessNames) svc.Bundle {
	var read svc.Bundle
	c.ok(c.ChangeAccess(c.ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
		read = current
		return svc.AccessWrite{}, nil
	}))
	return read
}

func (c *checker) access(query svc.AccessQuery) svc.AccessSnapshot {
	snapshot := must(c.Access(c.ctx, query))
	snapshot.Grants = sortedRows(snapshot.Grants, func(g svc.Grant) string {
		return g.ID + "\x00" + g.Principal.Type + "\x00" + g.Principal.ID
	})
	slices.Sort(snapshot.Groups)
	return snapshot
}

func users(ids ...string) []svc.User {
	list := make([]svc.User, len(ids))
	for i, id := range ids {
		list[i] = svc.User{ID: id, DisplayName: id}
	}
	return list
}
