package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// company returns users in groups of 100, and policies of four statements, five to a group. root
// administers without reading any bank; boss has everything.
func company(users, policies int) (b svc.Bundle) {
	document := func(statements ...map[string]any) json.RawMessage {
		text, _ := json.Marshal(map[string]any{"version": "2026-03-24", "statements": statements})
		return text
	}
	statement := func(bank string, actions ...string) map[string]any {
		return map[string]any{"effect": "allow", "actions": actions, "banks": []string{bank}}
	}
	for i := range policies {
		bank := fmt.Sprintf("bank-%d", i)
		b.Policies = append(b.Policies, svc.Policy{ID: fmt.Sprintf("policy-%d", i), Document: document(
			statement(bank, "bank:recall"), statement(bank+"::*", "bank:retain"), statement(bank, "bank:reflect"), statement("shared", "bank:recall"))})
	}
	b.Policies = append(b.Policies, svc.Policy{ID: "everything", Document: document(statement("*", "bank:*", "iam:*", "template:*"))})
	for i := range users {
		id := fmt.Sprintf("user-%06d", i)
		b.Users = append(b.Users, svc.User{ID: id})
		if i%100 == 0 {
			group := fmt.Sprintf("group-%d", i/100)
			b.Groups = append(b.Groups, svc.Group{ID: group})
			for j := range 5 {
				b.Attachments = append(b.Attachments, svc.Attachment{
					PolicyID: fmt.Sprintf("policy-%d", (i/100*5+j)%policies), Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: group}})
			}
		}
		g := &b.Groups[len(b.Groups)-1]
		g.Members = append(g.Members, id)
	}
	for id, policy := range map[string]string{"root": svc.PolicyIAMAdmin, "boss": "everything"} {
		b.Users = append(b.Users, svc.User{ID: id})
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}})
	}
	return b
}

// BenchmarkAccessWrite compares a write by a caller whose rights are judged with the same write by
// the host, who is not judged, with 10,000 users, 100 groups and 500 policies.
func BenchmarkAccessWrite(b *testing.B) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		b.Run(e.name, func(b *testing.B) {
			p := placeOf(b, e, "access")
			if err := p.service.Access.Apply(b.Context(), svc.Host, company(10_000, 500)); err != nil {
				b.Fatal(err)
			}
			ctx := b.Context()
			attachment := func(to svc.GrantedTo) func(by svc.Principal) error {
				return func(by svc.Principal) error {
					a := svc.Attachment{PolicyID: "policy-7", Principal: to}
					if err := p.service.Policies.Attach(ctx, by, a); err != nil {
						return err
					}
					return p.service.Policies.Detach(ctx, by, svc.AttachmentKey{PolicyID: "policy-7", Principal: to})
				}
			}
			version := 0
			for name, write := range map[string]func(by svc.Principal) error{
				"attach-to-user":  attachment(svc.GrantedTo{Type: svc.GrantedToUser, ID: "user-005000"}),
				"attach-to-group": attachment(svc.GrantedTo{Type: svc.GrantedToGroup, ID: "group-50"}),
				"member": func(by svc.Principal) error {
					if err := p.service.Groups.AddMembers(ctx, by, "group-9", "user-005000"); err != nil {
						return err
					}
					return p.service.Groups.RemoveMembers(ctx, by, "group-9", "user-005000")
				},
				"document": func(by svc.Principal) error {
					version++
					_, err := p.service.Policies.Patch(ctx, by, "policy-3", svc.PolicyPatch{Document: json.RawMessage(fmt.Sprintf(
						`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["bank-%d"]}]}`, version))})
					return err
				},
			} {
				for _, id := range []string{"root", "boss"} {
					by := svc.Principal{Kind: svc.KindUser, ID: id}
					b.Run(name+"/"+id, func(b *testing.B) {
						compare(b, side{name: "host", call: func() error { return write(svc.Host) }},
							side{name: "service", call: func() error { return write(by) }})
					})
				}
			}
		})
	}
}

// BenchmarkAttachOverHTTP compares one attachment over HTTP with one audited mutation of the store:
// a row, its change and its record in one transaction.
func BenchmarkAttachOverHTTP(b *testing.B) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		b.Run(e.name, func(b *testing.B) {
			if err := e.check(); err != nil {
				b.Skip(err)
			}
			place, err := e.place("attach")
			if err != nil {
				b.Fatal(err)
			}
			store, err := e.open(place)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			service, err := svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}})
			if err != nil {
				b.Fatal(err)
			}
			defer service.Close()
			ctx := b.Context()
			if err := service.Access.Apply(ctx, svc.Host, company(10_000, 500)); err != nil {
				b.Fatal(err)
			}
			issued, err := service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "root"}, svc.NewAPIKey{})
			if err != nil {
				b.Fatal(err)
			}
			server := httptest.NewServer(httpapi.New(service, httpapi.Options{}))
			defer server.Close()
			priority := 0
			put := func() error {
				priority++
				body := fmt.Sprintf(`{"policy_id":"policy-7","principal_type":"user","principal_id":"user-005000","priority":%d}`, priority)
				return resource{"PUT", "/policy-attachments", body}.send(ctx, server.URL+"/ext/svc", string(issued.Key))
			}
			bare := func() error {
				priority++
				return store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
					a := svc.Attachment{PolicyID: "policy-8", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "user-005000"}, Priority: int64(priority)}
					err := tx.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
						return svc.Bundle{Attachments: []svc.Attachment{a}}.Write(), nil
					})
					if err != nil {
						return err
					}
					return tx.(svc.AuditStore).AppendAudit(ctx, func(last svc.AuditRecord) []svc.AuditRecord {
						next := svc.AuditRecord{Number: last.Number + 1, Previous: last.Hash, Hash: make([]byte, 32)}
						next.ID, next.Time, next.Action = uuid.Must(uuid.NewV7()), time.Now().UTC().Truncate(time.Microsecond), svc.EventAccessWritten
						return []svc.AuditRecord{next}
					})
				})
			}
			compare(b, side{name: "mutation", call: bare}, side{name: "service", call: put})
		})
	}
}

// BenchmarkDeleteUser deletes a user with 1,000 keys and 1,000 templates, and shows how long other
// writers wait meanwhile.
func BenchmarkDeleteUser(b *testing.B) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		b.Run(e.name, func(b *testing.B) {
			p := placeOf(b, e, "leaver")
			ctx := b.Context()
			worst := time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				if err := fillLeaver(ctx, p.service); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				cost := took(b, func() error { return p.service.ForgetUser(ctx, svc.Host, "leaver") })
				worst = max(worst, cost)
			}
			b.ReportMetric(float64(worst.Milliseconds()), "ms-worst")
		})
	}
}

func fillLeaver(ctx context.Context, service *svc.Service) error {
	by := svc.Principal{Kind: svc.KindUser, ID: "leaver", Actions: []string{"template:*"}}
	if err := service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "leaver"}}}); err != nil {
		return err
	}
	for i := range 1000 {
		if _, err := service.Keys.Issue(ctx, svc.Host, by.Identity(), svc.NewAPIKey{}); err != nil {
			return err
		}
		content := svc.Content{Name: "t", Tags: []string{"a", "b"}, Manifest: json.RawMessage(`{"version":"1"}`)}
		if _, err := service.MyTemplates.Create(ctx, by, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: content}); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkProvider makes 300 resources over HTTP on SQLite, ten at once as Terraform does: users,
// groups, members, policies, attachments and service accounts. It reports the slowest request.
func BenchmarkProvider(b *testing.B) {
	var slowest, all time.Duration
	requests := 0
	for i := 0; b.Loop(); i++ {
		p := placeOf(b, sqliteEngine, fmt.Sprint("provider", i))
		if err := p.service.Access.Apply(b.Context(), svc.Host, company(1_000, 50)); err != nil {
			b.Fatal(err)
		}
		issued, err := p.service.Keys.Issue(b.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "boss"}, svc.NewAPIKey{})
		if err != nil {
			b.Fatal(err)
		}
		server := httptest.NewServer(httpapi.New(p.service, httpapi.Options{}))
		for _, step := range resources(50) {
			var mu sync.Mutex
			next := 0
			err := together(10, func(int) error {
				for {
					mu.Lock()
					if next == len(step) {
						mu.Unlock()
						return nil
					}
					r := step[next]
					next++
					mu.Unlock()
					began := time.Now()
					if err := r.send(b.Context(), server.URL+"/ext/svc", string(issued.Key)); err != nil {
						return err
					}
					mu.Lock()
					slowest, all, requests = max(slowest, time.Since(began)), all+time.Since(began), requests+1
					mu.Unlock()
				}
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		server.Close()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest")
	b.ReportMetric(float64(all.Microseconds())/1000/float64(requests), "ms-mean")
}

// resource is a request that makes something.
type resource struct{ method, path, body string }

// resources returns six kinds of n resources each. A step needs those before it.
func resources(n int) [][]resource {
	steps := make([][]resource, 2)
	for i := range n {
		add := func(step int, method, path, body string) {
			steps[step] = append(steps[step], resource{method, path, fmt.Sprintf(body, i)})
		}
		add(0, "POST", "/users", `{"id":"person-%d"}`)
		add(0, "POST", "/groups", `{"id":"unit-%d"}`)
		add(0, "POST", "/policies", `{"id":"rule-%d","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["b"]}]}}`)
		add(1, "POST", fmt.Sprintf("/groups/unit-%d/members", i), `{"user_id":"person-%d"}`)
		add(1, "PUT", "/policy-attachments", fmt.Sprintf(`{"policy_id":"rule-%d","principal_type":"group","principal_id":"unit-%%d"}`, i))
		add(1, "POST", "/service-accounts", fmt.Sprintf(`{"id":"robot-%d","owner_user_id":"person-%%d"}`, i))
	}
	return steps
}

func (r resource) send(ctx context.Context, base, key string) error {
	request, err := http.NewRequestWithContext(ctx, r.method, base+r.path, strings.NewReader(r.body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s answered %d: %s", r.method, r.path, answer.StatusCode, text)
	}
	return nil
}
