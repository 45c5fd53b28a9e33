package svc

import (
	"context"
	"errors"

	"github.com/extsvc/svc/internal/policy"
)

// The control-plane actions, which a caller must be allowed on bank "*".
const (
	ActionUsersRead     = "iam:users:read"
	ActionUsersWrite    = "iam:users:write"
	ActionPoliciesRead  = "iam:policies:read"
	ActionTemplateAdmin = "template:admin"
	ActionAuditRead     = "iam:audit:read"
)

// controlPlane is the bank that stands for this service itself.
const controlPlane = "*"

func forbidden(message string) *Error { return &Error{Code: CodeForbidden, Message: message} }

// authorize lets the host, and whoever is allowed the control-plane action, pass.
func (s *Service) authorize(ctx context.Context, by Principal, action string) error {
	if by.Kind == KindHost {
		return fault("authorize", ctx.Err())
	}
	_, err := s.permitted(ctx, by, action)
	return err
}

// permitted returns the rights of a caller who is allowed the control-plane action: never the public, whatever a bank policy gives to it.
func (s *Service) permitted(ctx context.Context, by Principal, action string) (*policy.Rights, error) {
	if by.Kind == KindUnmapped {
		return nil, forbidden("a sender who is nobody here administers nothing")
	}
	if err := ctx.Err(); err != nil {
		return nil, fault("authorize", err)
	}
	caller, all, err := s.standing(ctx, by.actor(), controlPlane)
	if err != nil {
		return nil, err
	}
	if !caller.rights.Decide(action, controlPlane, &policy.Context{}, all).Vouch(by.vouched()).Allowed() {
		return nil, forbidden("you are not allowed " + action)
	}
	return caller.rights, nil
}

// authorizeMe lets users pass, unless they are narrowed: what is theirs is more than what is the narrowed one's.
func authorizeMe(by Principal) error {
	switch {
	case by.Kind != KindUser:
		return forbidden("only a user has keys of its own here")
	case by.ScopingPolicyID != "":
		return forbidden("a narrowed key does not reach the other keys of its user")
	}
	return nil
}

// authorizeMyIssue lets users pass who may issue, and so prolong, keys of their own.
func (s *Service) authorizeMyIssue(ctx context.Context, by Principal) error {
	if err := authorizeMe(by); err != nil {
		return err
	}
	if err := s.checkUser(ctx, by, by.ID); ErrorCode(err) != CodeNotFound {
		return err
	}
	return forbidden("the host application does not know you as a user, so you get no new keys")
}

// authorizeKeys lets a caller who may do the action, and whom the holder's rights do not exceed when it writes, at the
// keys of a holder. The keys of a user who has left are there to be listed and ended, so the host
// is not asked for the user.
func (s *Service) authorizeKeys(ctx context.Context, by Principal, holder Identity, action string) error {
	if by.Kind == KindHost {
		return s.checkAccount(ctx, holder)
	}
	caller, err := s.permitted(ctx, by, action)
	if err != nil {
		return err
	}
	if action == ActionUsersWrite {
		if err := s.withinCeiling(ctx, caller, by.vouched(), holder); err != nil {
			return err
		}
	}
	return s.checkAccount(ctx, holder)
}

// authorizeIssue lets those pass who may issue, and so prolong, keys of a holder that the host
// knows.
func (s *Service) authorizeIssue(ctx context.Context, by Principal, holder Identity) error {
	if err := s.authorizeChange(ctx, by, holder); err != nil || holder.Kind != KindUser {
		return err
	}
	return s.checkUser(ctx, by, holder.ID)
}

// authorizeChange lets those pass who may change keys of a holder so that they are good for less.
func (s *Service) authorizeChange(ctx context.Context, by Principal, holder Identity) error {
	switch {
	case by.Kind == KindServiceAccount:
		return forbidden("a service account issues no keys")
	case by.ScopingPolicyID != "":
		return forbidden("a narrowed key issues no keys")
	}
	return s.authorizeKeys(ctx, by, holder, ActionUsersWrite)
}

// withinCeiling refuses when the holder has a control-plane right that the caller lacks: its keys would give it to whoever
// issues them. What an inactive holder would have when active counts.
func (s *Service) withinCeiling(ctx context.Context, caller *policy.Rights, vouched []string, holder Identity) error {
	target, _, err := s.standing(ctx, actor{Identity: holder}, controlPlane)
	if err != nil {
		return err
	}
	if action, within := policy.Within(target.rights.Opened(), caller, vouched); !within {
		return forbidden("the holder of these keys is allowed " + action + ", and you are not")
	}
	return nil
}

// checkAccount refuses a service account without a row.
func (s *Service) checkAccount(ctx context.Context, holder Identity) error {
	if holder.Kind != KindServiceAccount {
		return nil
	}
	_, err := s.store.ServiceAccount(ctx, holder.ID)
	if errors.Is(err, ErrNotFound) {
		return notFound("there is no such service account")
	}
	return fault("read service account", err)
}

// checkUser refuses a user whom the host does not know. The host itself is not asked about what it
// does.
func (s *Service) checkUser(ctx context.Context, by Principal, id string) error {
	if s.config.KnownUser == nil || by.Kind == KindHost {
		return nil
	}
	known, err := s.config.KnownUser(ctx, id)
	if err != nil {
		return fault("ask the host for a user", err)
	}
	if !known {
		return notFound("there is no such user")
	}
	return nil
}
