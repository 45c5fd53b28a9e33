package linear_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// accessState is what decides whether a user may recall from the bank of its name. The zero value
// allows it.
type accessState struct{ inactive, left, denied bool }

// accessCall is a call about one user, its group and the policy of that group.
type accessCall struct {
	user string
	do   string
}

func (c accessCall) subject() string { return c.user }
func (c accessCall) kind() string    { return c.do }
func (c accessCall) reads() bool     { return c.do == "decide" || c.do == "who can" }
func (c accessCall) String() string  { return c.do }

// accessAnswer is the result of a call.
type accessAnswer struct {
	code    svc.Code
	allowed bool // of decide and who can
}

func (a accessAnswer) unknown() bool { return a.code == svc.CodeUnavailable }

func (a accessAnswer) kind() string {
	if a.allowed {
		return "allowed"
	}
	return cmp.Or(string(a.code), "ok")
}

func (a accessAnswer) String() string { return a.kind() }

func (s accessState) step(call accessCall, have accessAnswer) []accessState {
	after, want := s.after(call)
	switch {
	case have.unknown():
		return []accessState{s, after}
	case have != want:
		return nil
	}
	return []accessState{after}
}

// after holds the rules: the new state and the answer of a call.
func (s accessState) after(call accessCall) (accessState, accessAnswer) {
	switch call.do {
	case "activate", "deactivate":
		s.inactive = call.do == "deactivate"
	case "allow", "deny":
		s.denied = call.do == "deny"
	case "join":
		s.left = false
	case "leave":
		if s.left {
			return s, accessAnswer{code: svc.CodeNotFound}
		}
		s.left = true
	case "decide", "who can":
		return s, accessAnswer{allowed: s == accessState{}}
	}
	return s, accessAnswer{}
}

// household gives each user a group, a policy and a bank of its name.
func household(users []string) (b svc.Bundle) {
	for _, id := range users {
		b.Users = append(b.Users, svc.User{ID: id})
		b.Groups = append(b.Groups, svc.Group{ID: id, Members: []string{id}})
		b.Policies = append(b.Policies, policyOf(id, id))
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: id}})
	}
	return b
}

func policyOf(id, bank string) svc.Policy {
	return svc.Policy{ID: id, Document: fmt.Appendf(nil,
		`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":[%q]}]}`, bank)}
}

func (c *client) actOnAccess(ctx context.Context) {
	user := c.random.IntN(len(c.users))
	call := accessCall{c.users[user], pick(c.random, "activate", "deactivate", "join", "leave", "allow", "deny", "rename",
		"decide", "decide", "decide", "decide", "decide", "who can", "who can")}
	service := c.service
	if !c.exact {
		service = c.services[user%len(c.services)]
	}
	called := time.Since(c.began)
	answer := askAccess(ctx, service, call)
	c.access = append(c.access, moment[accessCall, accessAnswer]{c.number, call, answer, called, time.Since(c.began)})
}

func askAccess(ctx context.Context, service *svc.Service, call accessCall) accessAnswer {
	id := call.user
	apply := func(b svc.Bundle) error { return service.Access.Apply(ctx, svc.Host, b) }
	var err error
	switch call.do {
	case "activate", "deactivate":
		err = apply(svc.Bundle{Users: []svc.User{{ID: id, Inactive: call.do == "deactivate"}}})
	case "rename":
		err = apply(svc.Bundle{Groups: []svc.Group{{ID: id, DisplayName: time.Now().String()}}})
	case "allow":
		err = apply(svc.Bundle{Policies: []svc.Policy{policyOf(id, id)}})
	case "deny":
		err = apply(svc.Bundle{Policies: []svc.Policy{policyOf(id, "another")}})
	case "join":
		err = service.Access.AddMembers(ctx, svc.Host, id, id)
	case "leave":
		err = service.Access.RemoveMembers(ctx, svc.Host, id, id)
	case "decide":
		var d svc.Decision
		if d, err = service.Decide(ctx, svc.Principal{Kind: svc.KindUser, ID: id}, svc.ActionRecall, id, svc.Context{}); err == nil {
			return accessAnswer{allowed: d.Allowed()}
		}
	case "who can":
		var reach svc.Reach
		if reach, err = service.Policies.WhoCan(ctx, svc.Host, svc.ActionRecall, id); err == nil {
			return accessAnswer{allowed: slices.Contains(reach.Users, id)}
		}
	}
	return accessAnswer{code: svc.ErrorCode(err)}
}
