package svc

import (
	"context"
	"strconv"
	"sync"

	"github.com/extsvc/svc/internal/policy"
)

// Reach is who may do something, and why.
type Reach struct {
	Users           IDs
	ServiceAccounts IDs
	Public          PublicReach
	Statements      []Cited // all that match the request, by policy and statement; never nil
	Revision        string  // of what the store held: equal revisions, equal answers
}

type (
	// IDs are sorted ids that nobody can change: who asks the same is given the same ones, without a copy. The zero value is empty. They
	// may be read concurrently.
	IDs = policy.IDs
	// PublicReach is whether unmapped senders are allowed: as the most specific of its Overrides says that matches where they are
	// (topic over channel over provider), and where none does, by its Default.
	PublicReach = policy.PublicReach
	// PublicOverrideReach is whether unmapped senders are allowed where an override of the bank's public access is in force.
	PublicOverrideReach = policy.PublicOverrideReach
	// Cited is a statement of a policy that somebody active has.
	Cited = policy.Cited
	// Capability is what is decided for some requests: see [Service.WhatCan].
	Capability = policy.Capability
)

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
	c.id("bank", bank)
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
	return Reach{found.Users, found.ServiceAccounts, found.Public, found.Statements, all.revision()}, nil
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
	return s.compiler.Compile(subject).Capabilities(all.world().Shut()), nil
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
	if err == nil {
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
	return &everybody{r, sync.OnceValue(func() *policy.World { return s.compiler.World(r.census()) })}, nil
}
