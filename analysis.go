package svc

import (
	"context"
	"strconv"
	"sync"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
)

// Reach is who may do something, and why.
type Reach struct {
	Users           []string // the ids of active users, sorted; never nil
	ServiceAccounts []string // likewise
	Public          PublicReach
	Statements      []Cited // all that match the request, by policy and statement; never nil
	Revision        string  // of what the store held: equal revisions, equal answers
}

// PublicReach tells whether unmapped senders are allowed. The most specific override that matches the context decides
// (topic over channel over provider). Default decides where no override matches.
type PublicReach struct {
	Default   bool
	Overrides []PublicOverrideReach // in the order of the bank policy; never nil
}

// PublicOverrideReach tells whether unmapped senders are allowed where one override of public access is in force.
type PublicOverrideReach struct {
	Scope   string // "provider", "channel" or "topic"
	Value   string
	Allowed bool
}

// Cited is a statement of a policy that an active principal has.
type Cited struct {
	PolicyID  string
	Statement int // its index in the document, from 0
	Effect    Effect
}

// Capability tells how some requests are decided: see [Service.WhatCan].
type Capability struct {
	Action, Bank string // patterns; read as strings they are a request that this element decides
	Outcome      Outcome
	Parameters   Parameters // zero in a denial; the elements of a list share what it points to
}

// WhoCan returns everybody who may do an action ("" means [ActionRecall]) on a bank: exactly those active users and service
// accounts whom [Service.Decide] allows it, and the contexts in which it allows it to unmapped senders. What a host vouches for
// ([Principal].Actions) is not stored, and does not count. by needs [ActionUsersRead].
//
// All rows of access are kept in memory for it from the first call on, and are as fresh as what Decide answers from.
//
// Errors: CodeInvalid, CodeForbidden, CodeUnavailable.
func (s *Service) WhoCan(ctx context.Context, by Principal, action, bank string) (Reach, error) {
	var c checker
	action = orElse(action, ActionRecall)
	c.id("action", action)
	c.foreign("bank", bank)
	if err := c.err(); err != nil {
		return Reach{}, err
	}
	if err := s.authorize(ctx, by, ActionUsersRead); err != nil {
		return Reach{}, err
	}
	all, err := s.everybody(ctx)
	if err != nil {
		return Reach{}, err
	}
	found := all.world().WhoCan(action, bank)
	return Reach{
		found.Users, found.ServiceAccounts, publicReach(found.Public), cited(found.Statements), all.revision(),
	}, nil
}

func publicReach(found policy.PublicReach) PublicReach {
	reach := PublicReach{Default: found.Default, Overrides: make([]PublicOverrideReach, len(found.Overrides))}
	for i, o := range found.Overrides {
		reach.Overrides[i] = PublicOverrideReach{Scope: string(o.Scope), Value: o.Value, Allowed: o.Allowed}
	}
	return reach
}

func cited(found []policy.Cited) []Cited {
	statements := make([]Cited, len(found))
	for i, c := range found {
		statements[i] = Cited{PolicyID: c.Policy, Statement: c.Statement, Effect: Effect(c.Effect)}
	}
	return statements
}

// WhatCan returns all that a user or a service account may do: for every request, one of its elements says how [Service.Decide]
// decides it, or it is an [ImplicitDeny]. The list is sorted, no longer than it has to be, and never nil; for who is unknown or
// inactive it is empty. What a host vouches for does not count. by needs [ActionUsersRead].
//
// An element covers a request as a statement with its patterns does. Of two that cover it one is closer when neither of its
// patterns is less close than the other's: a literal is closer than a prefix, the string itself closer than "bank:recall" standing for
// what it covers beside itself, and a longer prefix closer than a shorter one. The element that none is closer than decides; where there
// are several of them, they say the same.
//
// A bank whose own policy does not parse is denied to everybody, and is in the list as such, unless its id ends in an asterisk and so
// reads like a pattern. What the elements' Parameters point to is shared by them.
//
// It looks at every pair of an action pattern and a bank pattern: a few thousand of each take seconds. It ends with ctx.
//
// Errors: CodeInvalid, CodeForbidden, CodeUnavailable.
func (s *Service) WhatCan(ctx context.Context, by Principal, who Identity) ([]Capability, error) {
	var c checker
	switch who.Kind {
	case KindUser:
		c.id("user_id", who.ID)
	case KindServiceAccount:
		c.id("sa_id", who.ID)
	default:
		c.add("user_id", "must be that of a user or of a service account")
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, by, ActionUsersRead); err != nil {
		return nil, err
	}
	all, err := s.everybody(ctx)
	if err != nil {
		return nil, err
	}
	subject := all.snapshot(AccessQuery{Identity: who}).subject(who)
	list := capabilities(s.compiler.Apart(ctx).Compile(subject).Capabilities(all.world().Shut()))
	if err := ctx.Err(); err != nil {
		return nil, fault("list what somebody can do", err)
	}
	return list, nil
}

func capabilities(found []policy.Capability) []Capability {
	list := make([]Capability, len(found))
	for i, c := range found {
		list[i] = Capability{c.Action, c.Bank, Outcome(c.Outcome), Parameters(c.Parameters)}
	}
	return list
}

// everybody is all rows of access, and what was compiled from them.
type everybody struct {
	*roster
	world func() *policy.World
}

func (e *everybody) revision() string { return strconv.FormatInt(e.Generation, 10) }

// everybody returns all rows of access: a copy where it can be trusted, else the store's.
func (s *Service) everybody(ctx context.Context) (*everybody, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault("read all access", err)
	}
	if s.copies == nil {
		return s.readEverybody(ctx)
	}
	if all, ok := s.copies.allOf(); ok {
		return all, nil
	}
	s.followStore()
	fence := s.copies.everybody.Fence(struct{}{})
	defer turn(ctx, s.copies.everybody, fence, struct{}{})()
	if all, ok := s.copies.allOf(); ok {
		return all, nil
	}
	all, err := s.readEverybody(ctx)
	if err == nil && cache.Size(all.AccessRows) <= maxEverybody {
		s.copies.everybody.Put(fence, struct{}{}, all)
	}
	return all, err
}

func (s *Service) readEverybody(ctx context.Context) (*everybody, error) {
	rows, err := s.store.AllAccess(ctx)
	if err != nil {
		return nil, fault("read all access", err)
	}
	if s.copies != nil {
		s.copies.hear(rows.Generation)
	}
	r := newRoster(rows)
	return &everybody{r, sync.OnceValue(func() *policy.World {
		world := s.compiler.World(r.census(nil))
		if s.copies != nil && cache.Size(r.AccessRows)+world.Size() > maxEverybody {
			s.copies.everybody.Clear()
		}
		return world
	})}, nil
}
