package sqlstore

import (
	"context"

	"github.com/extsvc/svc"
)

// User implements [svc.AccessStore].
func (s *Store) User(ctx context.Context, id string) (svc.User, error) {
	user, err := s.db.reading().user(ctx, id)
	return user, s.fault(ctx, "read user", err)
}

// ServiceAccount implements [svc.AccessStore].
func (s *Store) ServiceAccount(ctx context.Context, id string) (svc.ServiceAccount, error) {
	account, err := s.db.reading().serviceAccount(ctx, id)
	return account, s.fault(ctx, "read service account", err)
}

// Access implements [svc.AccessStore].
func (s *Store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	var snapshot svc.AccessSnapshot
	err := s.snapshot(ctx, "read access", func(ctx context.Context, tx session) (err error) {
		if snapshot, err = tx.subject(ctx, query); err != nil {
			return err
		}
		snapshot.Generation, snapshot.BankPolicy, err = tx.generation(ctx, query.BankID)
		if err != nil || snapshot.User == nil {
			return err
		}
		snapshot.Grants, err = tx.grants(ctx, snapshot.User.ID)
		return err
	})
	if err != nil {
		return svc.AccessSnapshot{}, err
	}
	return snapshot, nil
}

// subject reads whom a query is about.
func (s session) subject(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	switch query.Identity.Kind {
	case svc.KindUser:
		user, err := oneOrNil(ctx, s, scanUser, `SELECT `+userColumns+` FROM svc_users u WHERE u.id = $1`, query.Identity.ID)
		return svc.AccessSnapshot{User: user}, err
	case svc.KindServiceAccount:
		subject, err := oneOrNil(ctx, s, scanServiceAccountSubject, `SELECT `+serviceAccountColumns+`, `+userColumns+`,
			p.id, p.display_name, p.document
			FROM svc_service_accounts a
			LEFT JOIN svc_users u ON u.id = a.owner_user_id
			LEFT JOIN svc_policies p ON p.id = a.scoping_policy_id
			WHERE a.id = $1`, query.Identity.ID)
		if err != nil || subject == nil {
			return svc.AccessSnapshot{}, err
		}
		return *subject, nil
	case "":
		user, err := oneOrNil(ctx, s, scanUser, `SELECT `+userColumns+` FROM svc_channels c JOIN svc_users u ON u.id = c.user_id
			WHERE c.provider = $1 AND c.sender_id = $2`, query.Channel.Provider, query.Channel.SenderID)
		return svc.AccessSnapshot{User: user}, err
	}
	return svc.AccessSnapshot{}, nil
}

func (s session) generation(ctx context.Context, bankID string) (generation int64, policy *svc.BankPolicy, err error) {
	_, err = one(ctx, s, func(row scanner) (struct{}, error) {
		var id *string
		var document []byte
		err := row.Scan(&generation, &id, &document)
		if id != nil {
			policy = &svc.BankPolicy{BankID: *id, Document: document}
		}
		return struct{}{}, err
	}, `SELECT g.value, b.bank_id, b.document
		FROM svc_generation g LEFT JOIN svc_bank_policies b ON b.bank_id = $1 WHERE g.id = 1`, bankID)
	return generation, policy, err
}

func (s session) grants(ctx context.Context, userID string) ([]svc.Grant, error) {
	return all(ctx, s, scanGrant, `SELECT t.principal_type, t.principal_id, t.priority, p.id, p.display_name, p.document
		FROM svc_attachments t JOIN svc_policies p ON p.id = t.policy_id
		WHERE t.principal_type = 'user' AND t.principal_id = $1
		UNION ALL
		SELECT t.principal_type, t.principal_id, t.priority, p.id, p.display_name, p.document
		FROM svc_group_members m
		JOIN svc_attachments t ON t.principal_type = 'group' AND t.principal_id = m.group_id
		JOIN svc_policies p ON p.id = t.policy_id
		WHERE m.user_id = $1`, userID)
}

func scanGrant(row scanner) (grant svc.Grant, err error) {
	err = row.Scan(&grant.Principal.Type, &grant.Principal.ID, &grant.Priority, &grant.ID, &grant.DisplayName,
		(*[]byte)(&grant.Document))
	return grant, err
}

func scanServiceAccountSubject(row scanner) (svc.AccessSnapshot, error) {
	var account serviceAccountRow
	var owner userRow
	var scopingID, scopingName *string
	var document []byte
	columns := append(append(account.columns(), owner.columns()...), &scopingID, &scopingName, &document)
	if err := row.Scan(columns...); err != nil {
		return svc.AccessSnapshot{}, err
	}
	snapshot := svc.AccessSnapshot{ServiceAccount: account.serviceAccount(), User: owner.user()}
	if scopingID != nil {
		snapshot.Scoping = &svc.Policy{ID: *scopingID, DisplayName: *scopingName, Document: document}
	}
	return snapshot, nil
}

const userColumns = `u.id, u.display_name, u.email, u.inactive`

// userRow is the columns of a user, all null where a join found none.
type userRow struct {
	id, displayName, email *string
	inactive               *bool
}

func (r *userRow) columns() []any { return []any{&r.id, &r.displayName, &r.email, &r.inactive} }

func (r *userRow) user() *svc.User {
	if r.id == nil {
		return nil
	}
	return &svc.User{ID: *r.id, DisplayName: *r.displayName, Email: r.email, Inactive: *r.inactive}
}

func scanUser(row scanner) (user svc.User, err error) {
	err = row.Scan(&user.ID, &user.DisplayName, &user.Email, &user.Inactive)
	return user, err
}

const serviceAccountColumns = `a.id, a.display_name, a.owner_user_id, a.scoping_policy_id, a.inactive`

// serviceAccountRow is the columns of a service account, all null where a join found none.
type serviceAccountRow struct {
	id, displayName, owner, scoping *string
	inactive                        *bool
}

func (r *serviceAccountRow) columns() []any {
	return []any{&r.id, &r.displayName, &r.owner, &r.scoping, &r.inactive}
}

func (r *serviceAccountRow) serviceAccount() *svc.ServiceAccount {
	if r.id == nil {
		return nil
	}
	return &svc.ServiceAccount{
		ID: *r.id, DisplayName: *r.displayName, OwnerUserID: *r.owner, ScopingPolicyID: *r.scoping, Inactive: *r.inactive,
	}
}

func scanServiceAccount(row scanner) (svc.ServiceAccount, error) {
	var account serviceAccountRow
	if err := row.Scan(account.columns()...); err != nil {
		return svc.ServiceAccount{}, err
	}
	return *account.serviceAccount(), nil
}
