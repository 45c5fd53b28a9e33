//go:build linux

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	api "github.com/extsvc/svc/client"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/calltest"
)

// person is an object with parts, which an administrator and the user itself make and remove over
// HTTP. All parts have the id of the user. Its state names its parts.
type person struct {
	id    string
	parts parts
}

type parts map[string]bool

func (p parts) String() string {
	if len(p) == 0 {
		return absent
	}
	return strings.Join(slices.Sorted(maps.Keys(p)), ",")
}

func partsOf(state string) parts {
	p := parts{}
	for part := range strings.SplitSeq(state, ",") {
		if part != absent {
			p[part] = true
		}
	}
	return p
}

// has reports whether the state of a person has a part.
func has(state, part string) bool { return slices.Contains(strings.Split(state, ","), part) }

func isPerson(object string) bool { return strings.HasPrefix(object, "p-") }

// step makes or removes parts of a person.
type step struct {
	adds         bool
	parts, needs []string
	action       string
	by, call     string
}

// steps are those of testdata/people.txt.
var steps = func() (all []step) {
	for line := range strings.Lines(string(got(os.ReadFile("testdata/people.txt")))) {
		if w := strings.SplitN(strings.TrimSpace(line), " ", 5); w[0] != "#" {
			all = append(all, step{w[0][0] == '+', strings.Split(w[0][1:], ","), strings.Split(w[1], ","), w[2], w[3], w[4]})
		}
	}
	return all
}()

// after returns the parts after a step; nil: the step cannot be done.
func (s step) after(now parts) parts {
	for _, need := range s.needs {
		if part, not := strings.CutPrefix(need, "!"); now[part] == not {
			return nil
		}
	}
	next := maps.Clone(now)
	for _, part := range s.parts {
		if next[part] = true; !s.adds {
			delete(next, part)
		}
	}
	return next
}

// do makes the call of a step. For a new key of the user it returns the key.
func (s step) do(ctx context.Context, w *worker, id string) (key string, err error) {
	bearer := administrator
	if s.by == "self" {
		bearer = id
	}
	call := strings.NewReplacer("$id", id, "$fill", fill(id, 1)).Replace(s.call)
	value, err := calltest.Do(ctx, w.as(bearer, direct{w.api}), svc.Principal{}, call)
	if issued, is := value.(svc.IssuedKey); is && s.parts[0] == "key" {
		key = string(issued.Key)
	}
	return key, err
}

// visit makes or removes a part of a person: of a new one, or of one that the client has made.
func (c *client) visit() {
	if !c.Fault.people() {
		return
	}
	var p *person
	if len(c.people) < 2 { // few, so that they get many parts
		p = &person{c.name("p"), parts{}}
	} else {
		i := rand.N(len(c.people))
		p = c.people[i]
		c.people = slices.Delete(c.people, i, i+1)
	}
	possible := slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return s.after(p.parts) == nil })
	s := possible[rand.N(len(possible))]
	next := s.after(p.parts)
	ok := c.worker.run(p.id, s.action, next.String(), func(ctx context.Context) (string, error) {
		return s.do(ctx, c.worker, p.id)
	})
	if ok {
		p.parts = next
	}
	if ok || !c.outcomeUnknown() {
		c.people = append(c.people, p)
	}
}

// people returns some people with parts, and their states.
func (l *ledger) people() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := map[string]string{}
	for name, e := range l.objects {
		if isPerson(name) && e.attempt == nil && has(e.state, "user") && len(some) < 8 {
			some[name] = e.state
		}
	}
	return some
}

// as returns a client of the worker's interface with a bearer: the administrator, or a person.
func (w *worker) as(bearer string, over http.RoundTripper) *api.Client {
	return got(api.New(api.Config{
		BaseURL: "http://worker/ext/svc", Token: svc.Secret(bearer), HTTPClient: &http.Client{Transport: over},
	}))
}

// direct passes requests to a handler of this process.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
	in.Header = r.Header
	d.handler.ServeHTTP(answer, in)
	return answer.Result(), nil
}

// personQueries read the parts of people, by the person's id.
var personQueries = map[string]string{
	"user":        `SELECT id FROM svc_users`,
	"channel":     `SELECT user_id FROM svc_channels`,
	"account":     `SELECT id FROM svc_service_accounts WHERE owner_user_id = id`,
	"policy":      `SELECT id FROM svc_policies`,
	"group":       `SELECT id FROM svc_access_groups`,
	"member":      `SELECT group_id FROM svc_group_members WHERE user_id = group_id`,
	"attachment":  `SELECT principal_id FROM svc_attachments WHERE policy_id = principal_id`,
	"key":         `SELECT holder_id FROM svc_api_keys WHERE holder_kind = 'user' AND revoked_at IS NULL`,
	"account-key": `SELECT holder_id FROM svc_api_keys WHERE holder_kind = 'service_account' AND revoked_at IS NULL`,
	"template":    `SELECT owner FROM svc_templates WHERE scope = 'personal'`,
	"source":      `SELECT owner FROM svc_sources WHERE scope = 'personal'`,
}

// readPeople reads the parts of each person. Parts that remain of a user are torn.
func (o observation) readPeople(ctx context.Context) {
	people := map[string]parts{}
	for part, query := range personQueries {
		for _, row := range o.rows(ctx, query) {
			id, part := row[0], part
			if !isPerson(id) {
				continue
			}
			if people[id] == nil {
				people[id] = parts{}
			}
			if people[id][part] {
				part = "another " + part
			}
			people[id][part] = true
		}
	}
	for id, p := range people {
		rest := maps.Clone(p)
		delete(rest, "policy")
		delete(rest, "group")
		if o.states[id] = p.String(); len(rest) > 0 && !p["user"] {
			o.states[id] = torn + "of a user that is gone there is left: " + rest.String()
		}
	}
}

// told reports whether an event goes into the ledger: one for each mutation of the store. A deletion is
// one mutation, and one more for each holder whose keys it revokes. A person has one key of each holder.
func told(of svc.Event) bool {
	kind := of.Target.Kind
	if isPerson(object(of.Target)) {
		switch of.Action {
		case event.TemplateDeleted, event.SourceRemoved:
			return false // with its user
		case event.APIKeyRevoked:
			return true
		case event.AccessRemoved:
			return kind == event.TargetUser || kind == event.TargetGroup || kind == event.TargetPolicy
		}
		return kind != event.TargetGroup || len(rowOf(of.Was).Members) == 0 // else its user leaves
	}
	return of.Action != event.AccessWritten || kind == event.TargetPolicy
}

// row is what an event says of a row of access.
type row struct{ Members, Channels []json.RawMessage }

func rowOf(text json.RawMessage) (r row) {
	_ = json.Unmarshal(text, &r) // nil has no members
	return r
}

// tale is what the records tell of people: how many of each part there are.
type tale map[string]map[string]int

func (t tale) clone() tale {
	other := tale{}
	for id, counts := range t {
		other[id] = maps.Clone(counts)
	}
	return other
}

// add adds a record, in any order. It returns what is wrong with the record.
func (t tale) add(r svc.AuditRecord) (wrong string) {
	id := object(r.Target)
	if !isPerson(id) {
		return ""
	}
	counts := t[id]
	if counts == nil {
		counts = map[string]int{}
		t[id] = counts
	}
	part := map[event.TargetKind]string{
		event.TargetUser: "user", event.TargetGroup: "group", event.TargetServiceAccount: "account", event.TargetPolicy: "policy",
		event.TargetAttachment: "attachment", event.TargetAPIKey: "key", event.TargetTemplate: "template", event.TargetSource: "source",
	}[r.Target.Kind]
	if r.Target.Holder.Kind == svc.KindServiceAccount {
		part = "account-key"
	}
	switch r.Action {
	case event.APIKeyIssued, event.TemplateCreated, event.SourceRegistered:
		counts[part]++
	case event.APIKeyRevoked, event.TemplateDeleted, event.SourceRemoved:
		counts[part]--
	case event.AccessWritten, event.AccessRemoved:
		if r.Was == nil {
			counts[part]++
		}
		if r.Is == nil {
			counts[part]--
		}
		was, is := rowOf(r.Was), rowOf(r.Is)
		counts["member"] += len(is.Members) - len(was.Members)
		counts["channel"] += len(is.Channels) - len(was.Channels)
		if (r.Is == nil) != (r.Action == event.AccessRemoved) || r.Was == nil && r.Is == nil {
			return fmt.Sprintf("record %d, %s of %s: was %s, is %s", r.Number, r.Action, id, r.Was, r.Is)
		}
	default:
		return fmt.Sprintf("record %d: %s of %s", r.Number, r.Action, id)
	}
	return ""
}

// state returns the state of a person that the records tell.
func (t tale) state(id string) string {
	p := parts{}
	for part, n := range t[id] {
		if n == 1 {
			p[part] = true
		} else if n != 0 {
			p[fmt.Sprint(n, " × ", part)] = true
		}
	}
	return p.String()
}

// checkTale compares what the records tell of people with the rows.
func (l *ledger) checkTale(told tale, found observation) {
	for id := range l.objects {
		state := found.states[id]
		if state == "" {
			state = absent
		}
		if tells := told.state(id); isPerson(id) && tells != state {
			l.problemLocked("torn: %s: the records tell %s, %s is there", id, tells, state)
		}
	}
}
