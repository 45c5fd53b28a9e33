package svc

import (
	"context"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
)

// KindUnmapped is the kind of a sender that belongs to nobody, or to an inactive user.
const KindUnmapped Kind = "unmapped"

// Unmapped is a sender that belongs to nobody: it may do what a bank's policy gives to the public.
var Unmapped = Principal{Kind: KindUnmapped}

var hostMay = Decision{policy.Always("allowed: the host application may do everything")}

// Decide decides whether a principal may do an action on a bank, with which parameters, by the same code as [Service.Resolve].
// It is for every request that a host serves: what it needs is kept in memory, so that most calls take well under a microsecond and
// no call of the store. What this process writes counts at once, what others write within a second or so (PostgreSQL:
// milliseconds). When the store has not been reached for 5 seconds, each call reads it.
//
// A user without a row has no stored rights. On bank "*" what the host vouches for ([Principal].Actions) counts too.
//
// An error is never an allow. Errors: CodeInvalid (an empty action, an impossible bank), CodeUnavailable.
func (s *Service) Decide(ctx context.Context, p Principal, action, bank string, in Context) (d Decision, err error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fault("decide", err)
	}
	if p.Kind == KindHost {
		return hostMay, nil
	}
	if action == "" {
		return Decision{}, invalid("action", "is required")
	}
	var now cache.Moment
	known := false
	if s.copies != nil {
		now, known = s.copies.again(&d.of, &p, action, bank, (*policy.Context)(&in))
	}
	if !known {
		if d.of, err = s.decide(ctx, p.actor(), action, bank, (*policy.Context)(&in), now); err != nil {
			return Decision{}, err
		}
	}
	if len(p.Actions) > 0 {
		d.of = d.of.Vouch(p.vouched())
	}
	return d, nil
}

// decide decides, with nothing vouched for, and notes the policy of the bank, as it is now; 0: it is not noted.
func (s *Service) decide(ctx context.Context, who actor, action, bank string, in *policy.Context, now cache.Moment) (policy.Decision, error) {
	holder, policyOf, err := s.standing(ctx, who, bank)
	if err != nil {
		return policy.Decision{}, err
	}
	d := holder.rights.Decide(action, bank, in, policyOf)
	if now != 0 {
		holder.rights.Note(action, bank, policyOf, uint64(now))
	}
	return d, nil
}

// standing returns what a decision is made from: copies where they can be trusted, else the store's rows.
func (s *Service) standing(ctx context.Context, who actor, bank string) (*standing, *policy.Bank, error) {
	if who.Kind == KindUnmapped {
		who = Unmapped.actor()
	}
	if s.copies != nil {
		if holder, b, ok := s.copies.get(who, bank); ok {
			return holder, b, nil
		}
	}
	var c checker
	if c.foreign("bank", bank); c.err() != nil {
		return nil, nil, c.err()
	}
	if who.Kind != KindUnmapped && idProblem(who.ID) != "" {
		return &standing{rights: s.compiler.Compile(policy.Subject{Kind: policy.User, Closed: "denied: no principal has that id"})}, nil, nil
	}
	if s.copies == nil {
		holder, b, err := s.readStanding(ctx, who, bank)
		return holder, b.policy, err
	}
	return s.copyStanding(ctx, who, bank)
}

// copyStanding reads what a decision is made from and keeps copies of it.
func (s *Service) copyStanding(ctx context.Context, who actor, bank string) (*standing, *policy.Bank, error) {
	s.followStore()
	c := s.copies
	holderFence, bankFence := c.holders.Fence(who), c.banks.Fence(bank)
	if _, known := c.holders.Get(who); known { // it is the bank that is missing
		if _, b, err := s.readStanding(ctx, Unmapped.actor(), bank); err == nil {
			c.banks.Put(bankFence, bank, b)
		}
	} else {
		defer turn(ctx, c.holders, holderFence, who)()
	}
	if holder, b, ok := c.get(who, bank); ok {
		return holder, b, nil
	}
	holder, b, err := s.readStanding(ctx, who, bank)
	if err != nil {
		return nil, nil, err
	}
	c.holders.Put(holderFence, who, holder)
	c.banks.Put(bankFence, bank, b)
	return holder, b.policy, nil
}

// readStanding reads what is stored about a principal and a bank, in one snapshot.
func (s *Service) readStanding(ctx context.Context, who actor, bank string) (*standing, bankCopy, error) {
	query := AccessQuery{Identity: who.Identity, ScopingPolicyID: who.narrowedBy, BankID: bank}
	if who == Unmapped.actor() {
		query.Identity = Identity{}
	}
	snapshot, err := s.store.Access(ctx, query)
	if err != nil {
		return nil, bankCopy{}, fault("read access", err)
	}
	holder, b := s.snapshotStanding(who, snapshot)
	return holder, b, nil
}

// snapshotStanding is what a snapshot says of a principal and a bank. A principal without a row has no rights, which is no reason to
// deny what the host vouches for.
func (s *Service) snapshotStanding(who actor, snapshot AccessSnapshot) (*standing, bankCopy) {
	if s.copies != nil {
		s.copies.hear(snapshot.Generation)
	}
	subject, holder := snapshot.subject(who.Identity), &standing{generation: snapshot.Generation}
	account, user := snapshot.ServiceAccount, snapshot.User
	switch {
	case who.Kind == KindUser && user == nil:
		subject.Closed = ""
	case who.Kind == KindUser:
		holder.inactive = user.Inactive
	case who.Kind == KindServiceAccount && account == nil:
		subject.Closed = ""
	case who.Kind == KindServiceAccount:
		holder.inactive = account.Inactive
	}
	holder.keysRest = snapshot.keysRest(who.Identity)
	snapshot.narrow(&subject, who.narrowedBy)
	holder.rights = s.compiler.Compile(subject)
	return holder, bankCopy{policy.CompileBank(snapshot.bankPolicy()), snapshot.Generation}
}
