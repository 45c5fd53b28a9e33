package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"

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

// Access implements [svc.AccessStore] with one statement: one snapshot, one round trip.
func (s *Store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	row := accessRow{boundary: rand.Text()[:10]}
	statement, args, columns := row.ask(query)
	snapshot, err := one(ctx, s.db.reading(), func(r scanner) (svc.AccessSnapshot, error) {
		if err := r.Scan(columns...); err != nil {
			return svc.AccessSnapshot{}, err
		}
		return row.snapshot(query)
	}, statement, args...)
	if errors.Is(err, svc.ErrNotFound) {
		err = errNoGeneration
	}
	return snapshot, s.fault(ctx, "read access", err)
}

// The statements of Access return one row. All grants of the user u come as one text, because ten
// more rows would cost a driver as much as everything else. CROSS JOIN keeps SQLite from scanning
// the attachments of all groups.
const (
	selectAccess = `SELECT g.value, b.document, ` + userColumns + `,
		(SELECT string_agg(concat_ws($1,
			t.principal_type, t.principal_id, t.priority, p.id, p.display_name, p.document), $1)
		FROM (SELECT 'user' AS type, u.id AS id
			UNION ALL SELECT 'group', m.group_id
			FROM svc_group_members m WHERE m.user_id = u.id) subjects
		CROSS JOIN svc_attachments t CROSS JOIN svc_policies p
		WHERE t.principal_type = subjects.type AND t.principal_id = subjects.id
			AND p.id = t.policy_id)`
	withAccount = `, ` + serviceAccountColumns + `, n.display_name, n.document`
	withNarrow  = `, y.display_name, y.document`
	withKey     = `, ` + keyColumns
	fromBank    = ` FROM svc_generation g LEFT JOIN svc_bank_policies b ON b.bank_id = $2`
	joinScoping = ` LEFT JOIN svc_policies n ON n.id = a.scoping_policy_id`
	joinAccount = ` LEFT JOIN svc_service_accounts a ON a.id = $3` + joinScoping +
		` LEFT JOIN svc_users u ON u.id = a.owner_user_id`
	joinUser   = ` LEFT JOIN svc_users u ON u.id = $3`
	joinNarrow = ` LEFT JOIN svc_policies y ON y.id = $4`

	accessOfUser    = selectAccess + fromBank + joinUser + ` WHERE g.id = 1`
	accessOfChannel = selectAccess + fromBank + `
		LEFT JOIN svc_channels c ON c.provider = $3 AND c.sender_id = $4
		LEFT JOIN svc_users u ON u.id = c.user_id WHERE g.id = 1`
	accessOfAccount = selectAccess + withAccount + fromBank + joinAccount + ` WHERE g.id = 1`
	accessOfKey     = selectAccess + withAccount + withNarrow + withKey + fromBank + `
		LEFT JOIN svc_api_keys k ON k.id = $3 LEFT JOIN svc_policies y ON y.id = k.scoping_policy_id
		LEFT JOIN svc_service_accounts a
			ON k.holder_kind = 'service_account' AND a.id = k.holder_id` + joinScoping + `
		LEFT JOIN svc_users u
			ON u.id = CASE k.holder_kind WHEN 'user' THEN k.holder_id ELSE a.owner_user_id END
		WHERE g.id = 1`
	narrowedAccount = selectAccess + withAccount + withNarrow + fromBank + joinAccount +
		joinNarrow + ` WHERE g.id = 1`
	narrowedUser = selectAccess + withNarrow + fromBank + joinUser + joinNarrow + ` WHERE g.id = 1`
)

// accessRow holds the columns of one row of Access.
type accessRow struct {
	generation  int64
	bank        []byte
	user        svc.User
	grants      string
	boundary    string // separates the texts of grants: random, so no text contains it
	account     svc.ServiceAccount
	scopingName string
	scoping     []byte
	narrowName  string
	narrowing   []byte
	key         keyRow
}

// ask returns the statement for query, its parameters, and the destinations of its columns.
func (r *accessRow) ask(query svc.AccessQuery) (statement string, args, columns []any) {
	args = []any{r.boundary, query.BankID}
	columns = slices.Concat(
		[]any{&r.generation, &r.bank}, columnsOfUser(&r.user), []any{orZero[string]{&r.grants}})
	account := slices.Concat(columns, columnsOfServiceAccount(&r.account),
		[]any{orZero[string]{&r.scopingName}, &r.scoping})
	narrowing := []any{orZero[string]{&r.narrowName}, &r.narrowing}
	switch who, by := query.Identity, query.ScopingPolicyID; {
	case query.KeyID != "":
		columns = slices.Concat(account, narrowing, r.key.columns())
		return accessOfKey, append(args, query.KeyID), columns
	case who.Kind == svc.KindServiceAccount && by != "":
		return narrowedAccount, append(args, who.ID, by), append(account, narrowing...)
	case who.Kind == svc.KindUser && by != "":
		return narrowedUser, append(args, who.ID, by), append(columns, narrowing...)
	case who.Kind == svc.KindServiceAccount:
		return accessOfAccount, append(args, who.ID), account
	case who.Kind == svc.KindUser:
		return accessOfUser, append(args, who.ID), columns
	}
	return accessOfChannel, append(args, query.Channel.Provider, query.Channel.SenderID), columns
}

func (r *accessRow) snapshot(query svc.AccessQuery) (snapshot svc.AccessSnapshot, err error) {
	snapshot = svc.AccessSnapshot{
		Generation: r.generation, Key: orNil(r.key.ID, r.key.apiKey()),
		ServiceAccount: orNil(r.account.ID, r.account), User: orNil(r.user.ID, r.user),
	}
	if r.scoping != nil {
		id := r.account.ScopingPolicyID
		snapshot.Scoping = &svc.Policy{ID: id, DisplayName: r.scopingName, Document: r.scoping}
	}
	if r.narrowing != nil {
		id := cmp.Or(query.ScopingPolicyID, r.key.ScopingPolicyID)
		snapshot.Narrowing = &svc.Policy{ID: id, DisplayName: r.narrowName, Document: r.narrowing}
	}
	if r.bank != nil {
		snapshot.BankPolicy = &svc.BankPolicy{BankID: query.BankID, Document: r.bank}
	}
	if r.grants != "" {
		snapshot.Grants, err = r.decodeGrants()
	}
	return snapshot, err
}

func (r *accessRow) decodeGrants() ([]svc.Grant, error) {
	texts := strings.Split(r.grants, r.boundary)
	grants := make([]svc.Grant, 0, len(texts)/6)
	for t := range slices.Chunk(texts, 6) {
		priority, err := strconv.ParseInt(t[2], 10, 64)
		if err != nil {
			return nil, err
		}
		policy := svc.Policy{ID: t[3], DisplayName: t[4], Document: []byte(t[5])}
		principal := svc.GrantedTo{Type: t[0], ID: t[1]}
		grants = append(grants, svc.Grant{Policy: policy, Principal: principal, Priority: priority})
	}
	return grants, nil
}

const (
	userColumns           = `u.id, u.display_name, u.email, u.inactive`
	serviceAccountColumns = `a.id, a.display_name, a.owner_user_id, a.scoping_policy_id, a.inactive`
)

func columnsOfUser(u *svc.User) []any {
	return []any{orZero[string]{&u.ID}, orZero[string]{&u.DisplayName}, &u.Email,
		orZero[bool]{&u.Inactive}}
}

func columnsOfServiceAccount(a *svc.ServiceAccount) []any {
	return []any{orZero[string]{&a.ID}, orZero[string]{&a.DisplayName},
		orZero[string]{&a.OwnerUserID}, orZero[string]{&a.ScopingPolicyID},
		orZero[bool]{&a.Inactive}}
}
