package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// AllAccess implements [svc.AccessStore].
func (s *Store) AllAccess(ctx context.Context) (svc.AccessRows, error) {
	var rows svc.AccessRows
	err := s.snapshot(ctx, "read all access", func(ctx context.Context, tx session) (err error) {
		rows, err = tx.allAccess(ctx)
		return err
	})
	return rows, err
}

func (s session) allAccess(ctx context.Context) (rows svc.AccessRows, err error) {
	rows.Generation, err = one(ctx, s, scanNumber, selectGeneration)
	read(ctx, s, &err, &rows.Users, scanUserChannel, selectUsers+byUser)
	read(ctx, s, &err, &rows.Groups, scanGroupMember, selectGroups+byGroup)
	read(ctx, s, &err, &rows.ServiceAccounts, scanServiceAccount,
		selectServiceAccounts+` ORDER BY a.id`)
	read(ctx, s, &err, &rows.Policies, scanPolicy, selectPolicies+` ORDER BY id`)
	read(ctx, s, &err, &rows.Attachments, scanAttachment,
		selectAttachments+` ORDER BY principal_type, principal_id, policy_id`)
	read(ctx, s, &err, &rows.BankPolicies, scanBankPolicy, selectBankPolicies+` ORDER BY bank_id`)
	rows.Users, rows.Groups = merge(rows.Users, mergeUser), merge(rows.Groups, mergeGroup)
	slices.SortStableFunc(rows.Attachments, func(a, b svc.Attachment) int {
		return cmp.Compare(a.PolicyID, b.PolicyID)
	})
	return rows, err
}

// read reads rows into list. When err is already set, it does nothing.
func read[R any](
	ctx context.Context, s session, err *error,
	list *[]R, scan func(scanner) (R, error), query string,
) {
	if *err == nil {
		*list, *err = all(ctx, s, scan, query)
	}
}

// merge merges each row into the row before it when join accepts it: both belong to the same thing.
func merge[R any](rows []R, join func(into *R, row R) bool) []R {
	kept := rows[:0]
	for _, row := range rows {
		if len(kept) == 0 || !join(&kept[len(kept)-1], row) {
			kept = append(kept, row)
		}
	}
	return kept
}

// first returns the first of rows. No rows: ErrNotFound.
func first[R any](rows []R, err error) (R, error) {
	if err == nil && len(rows) == 0 {
		err = svc.ErrNotFound
	}
	if err != nil {
		return *new(R), err
	}
	return rows[0], nil
}

const (
	selectUsers = `SELECT ` + userColumns + `, c.provider, c.sender_id
		FROM svc_users u LEFT JOIN svc_channels c ON c.user_id = u.id`
	byUser = ` ORDER BY u.id, c.provider, c.sender_id`
)

func (s session) user(ctx context.Context, id string) (svc.User, error) {
	rows, err := all(ctx, s, scanUserChannel, selectUsers+` WHERE u.id = $1`+byUser, id)
	return first(merge(rows, mergeUser), err)
}

// scanUserChannel reads a user and one of its channels, if the user has any.
func scanUserChannel(row scanner) (svc.User, error) {
	user := svc.User{Channels: []svc.Channel{}}
	var provider, sender *string
	err := row.Scan(&user.ID, &user.DisplayName, &user.Email, &user.Inactive, &provider, &sender)
	if provider != nil {
		user.Channels = append(user.Channels, svc.Channel{Provider: *provider, SenderID: *sender})
	}
	return user, err
}

func mergeUser(into *svc.User, row svc.User) bool {
	if into.ID != row.ID {
		return false
	}
	into.Channels = append(into.Channels, row.Channels...)
	return true
}

const (
	selectGroups = `SELECT g.id, g.display_name, m.user_id
		FROM svc_access_groups g LEFT JOIN svc_group_members m ON m.group_id = g.id`
	byGroup = ` ORDER BY g.id, m.user_id`
)

func (s session) group(ctx context.Context, id string) (svc.Group, error) {
	rows, err := all(ctx, s, scanGroupMember, selectGroups+` WHERE g.id = $1`+byGroup, id)
	return first(merge(rows, mergeGroup), err)
}

// scanGroupMember reads a group and one of its members, if the group has any.
func scanGroupMember(row scanner) (svc.Group, error) {
	group := svc.Group{Members: []string{}}
	var member *string
	err := row.Scan(&group.ID, &group.DisplayName, &member)
	if member != nil {
		group.Members = append(group.Members, *member)
	}
	return group, err
}

func mergeGroup(into *svc.Group, row svc.Group) bool {
	if into.ID != row.ID {
		return false
	}
	into.Members = append(into.Members, row.Members...)
	return true
}

func scanServiceAccount(row scanner) (account svc.ServiceAccount, err error) {
	err = row.Scan(columnsOfServiceAccount(&account)...)
	return account, err
}

const selectServiceAccounts = `SELECT ` + serviceAccountColumns + ` FROM svc_service_accounts a`

func (s session) serviceAccount(ctx context.Context, id string) (svc.ServiceAccount, error) {
	return one(ctx, s, scanServiceAccount, selectServiceAccounts+` WHERE a.id = $1`, id)
}

const selectPolicies = `SELECT id, display_name, document FROM svc_policies`

func (s session) policy(ctx context.Context, id string) (svc.Policy, error) {
	return one(ctx, s, scanPolicy, selectPolicies+` WHERE id = $1`, id)
}

func scanPolicy(row scanner) (policy svc.Policy, err error) {
	err = row.Scan(&policy.ID, &policy.DisplayName, (*[]byte)(&policy.Document))
	return policy, err
}

const selectAttachments = `SELECT policy_id, principal_type, principal_id, priority
	FROM svc_attachments`

func (s session) attachment(ctx context.Context, key svc.AttachmentKey) (svc.Attachment, error) {
	return one(ctx, s, scanAttachment,
		selectAttachments+` WHERE principal_type = $1 AND principal_id = $2 AND policy_id = $3`,
		key.Principal.Type, key.Principal.ID, key.PolicyID)
}

func scanAttachment(row scanner) (a svc.Attachment, err error) {
	err = row.Scan(&a.PolicyID, &a.Principal.Type, &a.Principal.ID, &a.Priority)
	return a, err
}

const selectBankPolicies = `SELECT bank_id, document FROM svc_bank_policies`

func (s session) bankPolicy(ctx context.Context, id string) (svc.BankPolicy, error) {
	return one(ctx, s, scanBankPolicy, selectBankPolicies+` WHERE bank_id = $1`, id)
}

func scanBankPolicy(row scanner) (policy svc.BankPolicy, err error) {
	err = row.Scan(&policy.BankID, (*[]byte)(&policy.Document))
	return policy, err
}
