//go:build unix

package secretleaks

import (
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/store/sqlstore"
)

var (
	older = svc.Pepper{Version: "1", Secret: []byte("the first pepper of two")}
	newer = svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
)

func TestSecretsAreNowhereElse(t *testing.T) {
	for name, peppers := range map[string][2][]svc.Pepper{
		"no pepper": {},
		"a pepper":  {{older}, {newer, older}}, // the Service rehashes keys used under the second list
	} {
		t.Run(name, func(t *testing.T) {
			databases(t, func(t *testing.T, db database) {
				s := newSite(t, db, peppers[0]...)
				s.ownTransaction()
				begun := s.beginKeys()
				s.stop() // writes when keys were used
				s.start(peppers[1]...)
				s.endKeys(begun)
				s.liveSource()
				db.settle()
				db.running(&s.evidence)
				s.stop()
				s.start(peppers[1]...)
				s.hashedAnew(begun.root, peppers[1])
				db.running(&s.evidence) // before keys are pasted: that makes PostgreSQL log secrets
				s.pasteKeys()
				s.fail()
				s.closeInTheMiddle(peppers[1])
				db.stopped(&s.evidence)
				for _, place := range append(db.holdRows(), db.keepRows()...) {
					s.evidence.has(t, place, "svcu_")
				}
				for _, text := range told {
					s.evidence.has(t, text[0], text[1])
				}
				s.clean()
			})
		})
	}
}

// told lists texts that must be there at the end, by place.
var told = [][2]string{
	{"log, JSON", "a value"}, {"log, text", "a value"}, {"log, text", "read API key: duplicate key: "}, {"log, text", "unavailable: connection lost: "}, {"log, text", "panic: told "},
	{"log, text", "checked now: try again later: duplicate key: "}, {"log, text", "connection refused"}, {"log, text", "not written: "}, {"log, text", "database is closed"},
	{"log, text", "source_failed"}, {"log, text", "route=\"POST /ext/svc/me/api-keys/{key_id}/rotate\""},
	{"events", "api_key.issued"}, {"events", "api_key.changed"}, {"events", "api_key.revoked"}, {"events", "source.registered"}, {"events", "template.installed"},
	{"errors", "a valid bearer token is required"}, {"errors", "cannot be read with this server's sealing key"}, {"values", "IssuedKey"}, {"values", "Templates:"},
	{"answers", "201 Created"}, {"answers", "api_key_prefix"}, {"answers", "last_used_at"}, {"answers", "must not be an API key"}, {"answers", "500 Internal"}, {"answers", "503 Service"}, {"answers", "502 Bad"},
}

// ownTransaction issues a key in a transaction of the host, with an event in the outbox.
func (s *site) ownTransaction() {
	s.t.Helper()
	db, dialect := s.db.db()
	tx := must(db.BeginTx(s.t.Context(), nil))
	defer tx.Rollback()
	inTx := s.service.WithTx(sqlstore.Tx(tx, dialect))
	issued := must(inTx.Keys.Issue(s.t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
	s.key(issued.Key)
	s.seen(issued, inTx)
	must(0, tx.Commit())
}

// keys holds the keys of a life. The program ends and starts again in the middle of it.
type keys struct {
	root, bot             string // of admin and of robot
	one, two, three, four answer // the answers that issued alice's keys; four is disabled
}

// beginKeys issues, lists, changes and uses keys, and makes mistakes with them.
func (s *site) beginKeys() keys {
	s.t.Helper()
	root, bot := s.issue(admin), s.issue(robot)
	one := s.ask(201, "session-of-alice", "POST", "/me/api-keys", `{"description": "one"}`)
	two := s.ask(201, "session-of-alice", "POST", "/me/api-keys?view=full", `{"expires_at": "2099-01-01T00:00:00Z"}`)
	three := s.ask(201, root, "POST", "/users/alice/api-keys?view=full", "")
	four := s.ask(201, root, "POST", "/users/alice/api-keys", `{"description": "four"}`)
	key := one.text("api_key")
	s.ask(200, root, "PATCH", "/users/alice/api-keys/"+three.text("id"), `{"description": "3", "expires_at": "2098-01-01T00:00:00Z"}`)
	s.ask(200, key, "PATCH", "/me/api-keys/"+four.text("id"), `{"disabled": true}`)
	for _, path := range []string{"/me/api-keys", "/me/api-keys?view=full", "/users/alice/api-keys", "/users/alice/api-keys?view=full"} {
		s.ask(0, key, "GET", path, "")
		s.ask(0, root, "GET", path, "")
	}
	s.ask(200, "", "GET", "", "", s.ownRoute(key))
	s.ask(200, bot, "GET", "/users/alice/api-keys", "")
	for _, wrong := range mistaken(key, three.text("api_key")) {
		s.ask(401, wrong, "GET", "/me/api-keys", "")
		s.ask(401, "", "GET", "", "", s.ownRoute(wrong))
		_, err := s.service.Authenticate(s.t.Context(), wrong)
		s.keep(err)
	}
	s.ask(401, four.text("api_key"), "GET", "/me/api-keys", "")
	who, err := s.service.Authenticate(s.t.Context(), key)
	s.keep(err, who)
	s.seen(s.service, s.config, s.config.Keys, s.config.Sources)
	s.keysInGo()
	return keys{root, bot, one, two, three, four}
}

// endKeys rotates and revokes the keys.
func (s *site) endKeys(k keys) {
	s.t.Helper()
	root, one, two, key := k.root, k.one, k.two, k.one.text("api_key")
	full := s.ask(200, key, "GET", "/me/api-keys?view=full", "")
	if used := `"id":"` + one.text("id") + `"`; !strings.Contains(string(full.body), used) || !strings.Contains(string(full.body), `"last_used_at":"2`) {
		s.t.Errorf("no use was written: %s", full.body)
	}
	next := s.ask(201, key, "POST", "/me/api-keys/"+one.text("id")+"/rotate", `{"overlap_seconds": 60}`)
	s.ask(200, key, "GET", "/me/api-keys", "")
	last := s.ask(201, root, "POST", "/users/alice/api-keys/"+next.text("id")+"/rotate?view=full", "")
	s.ask(401, next.text("api_key"), "GET", "/me/api-keys", "")
	s.ask(204, last.text("api_key"), "DELETE", "/me/api-keys/"+two.text("id"), "")
	s.ask(401, two.text("api_key"), "GET", "/me/api-keys", "")
	s.stored(last.text("api_key"))
	s.ask(204, root, "DELETE", "/users/alice/api-keys", "")
	for _, ended := range []answer{one, two, k.three, k.four, last} {
		s.ask(401, ended.text("api_key"), "GET", "/me/api-keys", "")
	}
	s.ask(204, s.ask(201, "session-of-alice", "POST", "/me/api-keys", "").text("api_key"), "DELETE", "/me/api-keys", "")
	s.leak(root, k.bot)
}

// hashedAnew checks that the Service has rehashed a used key with the first pepper.
func (s *site) hashedAnew(key string, peppers []svc.Pepper) {
	s.t.Helper()
	snapshot, err := s.store.Access(s.t.Context(), svc.AccessQuery{KeyID: key[5:21]})
	if err != nil || len(peppers) > 0 && snapshot.Key.Pepper != peppers[0].Version {
		s.t.Errorf("hashed under %q: %v", snapshot.Key.Pepper, err)
	}
	s.seen(snapshot, snapshot.Key)
}

func (s *site) ownRoute(bearer string) func(*http.Request) {
	return func(r *http.Request) {
		r.URL.Opaque = "/own"
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
}

// keysInGo does in Go what HTTP offers, and what only Go offers.
func (s *site) keysInGo() {
	ctx := s.t.Context()
	issued, err := s.service.Keys.Issue(ctx, alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "repeated"})
	s.key(issued.Key)
	s.keep(err, issued, issued.APIKey, &issued, []any{issued})
	next, err := s.service.Keys.Rotate(ctx, alice, svc.Me, issued.ID, svc.Rotation{Overlap: time.Hour})
	s.key(next.Key)
	s.keep(err, next)
	patched, err := s.service.Keys.Patch(ctx, alice, svc.Me, issued.ID, svc.APIKeyPatch{Disabled: new(true)})
	s.keep(err, patched)
	listed(s, s.service.Keys.List(ctx, alice, svc.Me, svc.KeyQuery{}))
	listed(s, s.service.Keys.List(ctx, admin, alice.Identity(), svc.KeyQuery{}))
	s.keep(s.service.Keys.Revoke(ctx, alice, svc.Me, next.ID))
}

func listed[T any](s *site, list iter.Seq2[T, error]) {
	for value, err := range list {
		s.keep(err, value)
	}
}

// leak reports keys that somebody has found.
func (s *site) leak(root, bot string) {
	s.t.Helper()
	found := []string{bot, s.issue(alice), s.issue(alice)[:40], root[:21] + bot[21:], "nothing", ""}
	revoked, err := s.service.Keys.RevokeLeaked(s.t.Context(), svc.Host, found)
	if s.keep(err, revoked); err != nil || len(revoked) != 2 {
		s.t.Errorf("%d were revoked: %v", len(revoked), err)
	}
	s.ask(401, bot, "GET", "/users/alice/api-keys", "")
}

// mistaken returns wrong forms of a key. other is another key.
func mistaken(key, other string) []string {
	parts := token.Token{Prefix: key[:5], ID: key[5:21], Secret: other[21:53]}
	typo := []byte(key)
	typo[40] ^= 1
	return []string{
		parts.String(), token.Token{Prefix: "svcs_", ID: key[5:21], Secret: key[21:53]}.String(), string(typo), key + "x", key[1:], key[:58], key[5:], key[21:53],
		strings.ToUpper(key[:5]) + key[5:], "svcu-" + key[5:], key + " " + other, `"` + key + `"`, "sk_" + key,
	}
}

// liveSource goes through the life of a source that needs a token and repeats it in bad answers.
func (s *site) liveSource() {
	root := s.issue(admin)
	secret := s.secret("source token", "q7RkT0vW2mZx9LcHs4YdBn8EjUa5PgFi")
	body := fmt.Sprintf(`{"url": %q, "alias": "acme", "auth_token": %q}`, s.upstream.URL+"/acme", secret)
	s.ask(201, root, "POST", "/admin/template-sources", body)
	s.ask(409, root, "POST", "/admin/template-sources", body)
	for _, bad := range []string{
		body[:len(body)-2], body + body, strings.Replace(body, "auth_token", "token", 1), strings.Replace(body, secret, secret+" ", 1), strings.Replace(body, `"`+secret+`"`, `["`+secret+`"]`, 1),
		strings.Replace(body, "http", "https://"+secret+"@example.com/?t="+secret+"#"+secret, 1), strings.Replace(body, "acme", secret, 1)[:80],
	} {
		s.ask(400, root, "POST", "/admin/template-sources", bad)
	}
	s.ask(200, root, "GET", "/admin/template-sources", "")
	listed(s, s.service.Sources.List(s.t.Context(), svc.Host))
	for how, handler := range echoing {
		s.upstream.with(handler)
		if a := s.ask(0, root, "POST", "/admin/templates/chat/install", `{"source_name": "acme"}`); a.status < 400 {
			s.t.Errorf("%s: answered %d", how, a.status)
		}
		_, err := s.service.Templates.Install(s.t.Context(), svc.Host, svc.Install{TemplateID: "chat", SourceName: "acme"})
		s.keep(err)
	}
	s.upstream.with(nil)
	s.ask(200, root, "POST", "/admin/templates/chat/install", `{"source_name": "acme"}`)
	for _, handler := range echoing {
		s.upstream.with(handler)
		s.ask(0, root, "GET", "/admin/templates/chat/check-update", "")
		s.ask(0, root, "POST", "/admin/templates/chat/update?force=1", "")
	}
	if !s.upstream.saw("Bearer " + secret) {
		s.t.Error("the source was not asked with its token")
	}
	s.reseal()
	s.ask(204, root, "DELETE", "/admin/template-sources/acme", "")
}

// reseal moves a sealed token to another place, where no key opens it.
func (s *site) reseal() {
	db, _ := s.db.db()
	execute(s.t, db, `UPDATE svc_sources SET url = 'https://example.com/moved'`)
	_, err := s.service.Templates.Install(s.t.Context(), svc.Host, svc.Install{TemplateID: "other", SourceName: "acme"})
	if s.keep(err); svc.ErrorCode(err) != svc.CodeInternal {
		s.t.Errorf("a token of another row: %v", err)
	}
}
