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
	ActionTemplateAdmin = "template:admin"
)

func forbidden(message string) *Error { return &Error{Code: CodeForbidden, Message: message} }

// authorize lets the host, and whoever is permitted the action, pass.
func (s *Service) authorize(ctx context.Context, by Principal, action string) error {
	if by.Kind == KindHost {
		return nil
	}
	_, err := s.permitted(ctx, by, action)
	return err
}

// permitted returns the rights of a caller, other than the host, that is permitted the action.
func (s *Service) permitted(ctx context.Context, by Principal, action string) (policy.Subject, error) {
	caller, err := s.subject(ctx, by.Identity())
	if err == nil && !policy.Permits(caller, by.Actions, action) {
		err = forbidden("you are not allowed " + action)
	}
	return caller, err
}

// authorizeMe lets users pass.
func authorizeMe(by Principal) error {
	if by.Kind != KindUser {
		return forbidden("only a user has keys of its own here")
	}
	return nil
}

// authorizeKeys lets a caller who may do the action, and whom the holder's rights do not exceed when it writes, at the
// keys of a holder that exists.
func (s *Service) authorizeKeys(ctx context.Context, by Principal, holder Identity, action string) error {
	if by.Kind == KindHost {
		return s.checkKnown(ctx, holder)
	}
	caller, err := s.permitted(ctx, by, action)
	if err == nil && action == ActionUsersWrite {
		err = s.withinCeiling(ctx, caller, by.Actions, holder)
	}
	if err != nil {
		return err
	}
	return s.checkKnown(ctx, holder)
}

// withinCeiling refuses when the holder has a control-plane right that the caller lacks: its keys would give it to whoever
// issues them. What an inactive holder would have when active counts.
func (s *Service) withinCeiling(ctx context.Context, caller policy.Subject, vouched []string, holder Identity) error {
	target, err := s.subject(ctx, holder)
	if err != nil {
		return err
	}
	target.Closed = ""
	if action, within := policy.Within(target, caller, vouched); !within {
		return forbidden("the holder of these keys is allowed " + action + ", and you are not")
	}
	return nil
}

func (s *Service) checkKnown(ctx context.Context, holder Identity) error {
	if holder.Kind == KindServiceAccount {
		_, err := s.store.ServiceAccount(ctx, holder.ID)
		if errors.Is(err, ErrNotFound) {
			return notFound("there is no such service account")
		}
		return fault("read service account", err)
	}
	if s.config.KnownUser == nil {
		return nil
	}
	known, err := s.config.KnownUser(ctx, holder.ID)
	if err != nil {
		return fault("ask the host for a user", err)
	}
	if !known {
		return notFound("there is no such user")
	}
	return nil
}

// subject reads a principal's rights. One without a row has none, which is no reason to deny what the host vouches for.
func (s *Service) subject(ctx context.Context, who Identity) (policy.Subject, error) {
	snapshot, err := s.store.Access(ctx, AccessQuery{Identity: who})
	if err != nil {
		return policy.Subject{}, fault("read access", err)
	}
	subject := snapshot.subject(who)
	if who.Kind == KindUser && snapshot.User == nil || who.Kind == KindServiceAccount && snapshot.ServiceAccount == nil {
		subject.Closed = ""
	}
	return subject, nil
}
