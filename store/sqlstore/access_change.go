package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/extsvc/svc"
)

// manyRows is the most rows that a change of access may name and still count as a request. A larger
// change is a bundle and may take longer.
const manyRows = 100

// ChangeAccess implements [svc.AccessStore].
func (s *Store) ChangeAccess(
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error),
) error {
	if len(named.Users)+len(named.Groups)+len(named.ServiceAccounts)+len(named.Policies)+
		len(named.Attachments)+len(named.BankPolicies)+len(named.Members) > manyRows {
		ctx = withoutHurry(ctx)
	}
	return s.mutate(ctx, "change access", func(
		ctx context.Context, tx session,
	) (targets, renamed []svc.Target, err error) {
		if err := tx.lock(ctx, "access"); err != nil {
			return nil, nil, err
		}
		current, err := tx.currentAccess(ctx, named)
		if err != nil {
			return nil, nil, err
		}
		write, err := change(current)
		if err != nil {
			return nil, nil, refusal{err}
		}
		if write.Empty() {
			return nil, nil, errUnchanged
		}
		return write.Targets, write.Renamed, tx.writeAccess(ctx, write)
	})
}

// currentAccess reads the named rows and the holders of the named channels.
func (s session) currentAccess(
	ctx context.Context, named svc.AccessNames,
) (current svc.Bundle, err error) {
	users := named.Users[:len(named.Users):len(named.Users)]
	for _, channel := range named.Channels {
		holder, err := oneOrNil(ctx, s, scanText,
			`SELECT user_id FROM svc_channels WHERE provider = $1 AND sender_id = $2`,
			channel.Provider, channel.SenderID)
		if err != nil {
			return current, err
		}
		if holder != nil {
			users = append(users, *holder)
		}
	}
	pick(ctx, &err, users, &current.Users, s.user)
	current.Groups, err = s.currentGroups(ctx, named, err)
	pick(ctx, &err, named.ServiceAccounts, &current.ServiceAccounts, s.serviceAccount)
	pick(ctx, &err, named.Policies, &current.Policies, s.policy)
	pick(ctx, &err, named.Attachments, &current.Attachments, s.attachment)
	pick(ctx, &err, named.BankPolicies, &current.BankPolicies, s.bankPolicy)
	return current, err
}

// currentGroups reads the named groups and their named members. When err is already set, it does
// nothing.
func (s session) currentGroups(
	ctx context.Context, named svc.AccessNames, err error,
) (groups []svc.Group, _ error) {
	ids := slices.Concat(named.Groups, named.MembersOf)
	for _, m := range named.Members {
		ids = append(ids, m.Group)
	}
	pick(ctx, &err, ids, &groups, s.group)
	members := map[string][]string{}
	for _, id := range named.MembersOf {
		if err == nil && members[id] == nil {
			members[id], err = all(ctx, s, scanText, `SELECT user_id FROM svc_group_members
				WHERE group_id = $1 ORDER BY user_id`, id)
		}
	}
	var some []svc.Membership
	pick(ctx, &err, named.Members, &some, func(
		ctx context.Context, m svc.Membership,
	) (svc.Membership, error) {
		_, err := one(ctx, s, scanText, `SELECT user_id FROM svc_group_members
			WHERE group_id = $1 AND user_id = $2`, m.Group, m.User)
		return m, err
	})
	for _, m := range some {
		if !slices.Contains(named.MembersOf, m.Group) {
			members[m.Group] = append(members[m.Group], m.User)
		}
	}
	for i, g := range groups {
		if list := members[g.ID]; list != nil {
			slices.Sort(list)
			groups[i].Members = list
		}
	}
	return groups, err
}

// pick reads the rows with these keys into list, each row once. When err is already set, it does
// nothing.
func pick[K comparable, R any](
	ctx context.Context, err *error, keys []K, list *[]R, read func(context.Context, K) (R, error),
) {
	seen := map[K]bool{}
	for _, key := range keys {
		if *err != nil {
			return
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		switch row, fault := read(ctx, key); {
		case fault == nil:
			*list = append(*list, row)
		case !errors.Is(fault, svc.ErrNotFound):
			*err = fault
		}
	}
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// writeAccess upserts rows; a row comes before the rows that refer to it. All users give up their
// channels before any user takes one.
func (s session) writeAccess(ctx context.Context, b svc.AccessWrite) error {
	var err error
	write(&err, b.Users, func(u svc.User) error { return s.writeUser(ctx, u) })
	write(&err, b.Users, func(u svc.User) error { return s.writeChannels(ctx, u) })
	write(&err, b.Groups, func(g svc.Group) error {
		return s.hit(ctx, `INSERT INTO svc_access_groups (id, display_name) VALUES ($1, $2)
			ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name`,
			g.ID, g.DisplayName)
	})
	write(&err, b.Leave, func(m svc.Membership) error {
		_, err := s.exec(ctx, `DELETE FROM svc_group_members
			WHERE group_id = $1 AND user_id = $2`, m.Group, m.User)
		return err
	})
	write(&err, b.Join, func(m svc.Membership) error {
		_, err := s.exec(ctx, `INSERT INTO svc_group_members (group_id, user_id) VALUES ($1, $2)
			ON CONFLICT DO NOTHING`, m.Group, m.User)
		return err
	})
	write(&err, b.Policies, func(p svc.Policy) error {
		return s.hit(ctx, `INSERT INTO svc_policies (id, display_name, document) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name,
			document = excluded.document`,
			p.ID, p.DisplayName, string(p.Document))
	})
	write(&err, b.ServiceAccounts, func(a svc.ServiceAccount) error {
		return s.hit(ctx, `INSERT INTO svc_service_accounts
			(id, display_name, owner_user_id, scoping_policy_id, inactive)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name,
			owner_user_id = excluded.owner_user_id,
			scoping_policy_id = excluded.scoping_policy_id, inactive = excluded.inactive`,
			a.ID, a.DisplayName, a.OwnerUserID, a.ScopingPolicyID, flag(a.Inactive))
	})
	write(&err, b.Attachments, func(a svc.Attachment) error {
		return s.hit(ctx, `INSERT INTO svc_attachments
			(principal_type, principal_id, policy_id, priority) VALUES ($1, $2, $3, $4)
			ON CONFLICT (principal_type, principal_id, policy_id)
			DO UPDATE SET priority = excluded.priority`,
			a.Principal.Type, a.Principal.ID, a.PolicyID, a.Priority)
	})
	write(&err, b.BankPolicies, func(p svc.BankPolicy) error {
		return s.hit(ctx, `INSERT INTO svc_bank_policies (bank_id, document) VALUES ($1, $2)
			ON CONFLICT (bank_id) DO UPDATE SET document = excluded.document`,
			p.BankID, string(p.Document))
	})
	return err
}

// write calls fn with each row until err is set.
func write[R any](err *error, rows []R, fn func(R) error) {
	for i := 0; i < len(rows) && *err == nil; i++ {
		*err = fn(rows[i])
	}
}

func (s session) writeUser(ctx context.Context, u svc.User) error {
	err := s.hit(ctx, `INSERT INTO svc_users (id, display_name, email, inactive)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name, email = excluded.email,
		inactive = excluded.inactive`,
		u.ID, u.DisplayName, u.Email, flag(u.Inactive))
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, `DELETE FROM svc_channels WHERE user_id = $1`, u.ID)
	return err
}

func (s session) writeChannels(ctx context.Context, u svc.User) error {
	for _, channel := range u.Channels {
		n, err := s.exec(ctx, `INSERT INTO svc_channels (provider, sender_id, user_id)
			VALUES ($1, $2, $3)
			ON CONFLICT (provider, sender_id) DO UPDATE SET user_id = excluded.user_id
			WHERE svc_channels.user_id = excluded.user_id`,
			channel.Provider, channel.SenderID, u.ID)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("channel %q of %q is another user's",
				channel.SenderID, channel.Provider)
		}
	}
	return nil
}

// flag returns the stored form of a bool.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
