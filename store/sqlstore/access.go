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

// The statements of Access return one row. All grants of the user u come as one text, like its
// groups, because ten more rows would cost a driver as much as everything else. A document is in it
// once, however many groups give it to the user. CROSS JOIN keeps SQLite from scanning the
// attachments of all groups.
const (
	selectBare   = `SELECT g.value, b.document, ` + userColumns
	selectGrants = `,
		(SELECT string_agg(m.group_id, $1) FROM svc_group_members m WHERE m.user_id = u.id),
		(SELECT string_agg(concat_ws($1, w.number, w.ways, p.id, p.display_name, p.document), $1)
		FROM (SELECT t.policy_id, count(*) AS number, string_agg(concat_ws($1,
				t.principal_type, t.principal_id, t.priority), $1) AS ways
			FROM (SELECT 'user' AS type, u.id AS id
				UNION ALL SELECT 'group', m.group_id
				FROM svc_group_members m WHERE m.user_id = u.id) subjects
			CROSS JOIN svc_attachments t
			WHERE t.principal_type = subjects.type AND t.principal_id = subjects.id
			GROUP BY t.policy_id) w
		CROSS JOIN svc_policies p WHERE p.id = w.policy_id)`
	withAccount   = `, ` + serviceAccountColumns + `, n.display_name, n.document`
	withNarrow    = `, y.display_name, y.document`
	withKey       = `, ` + keyColumns
	withoutGrants = `, substr($1, 1, 0), substr($1, 1, 0)` // uses $1, which has no type otherwise
	fromBank      = ` FROM (` + selectGeneration + `) g
		LEFT JOIN svc_bank_policies b ON b.bank_id = $2`
	joinScoping = ` LEFT JOIN svc_policies n ON n.id = a.scoping_policy_id`
	joinAccount = ` LEFT JOIN svc_service_accounts a ON a.id = $3` + joinScoping +
		` LEFT JOIN svc_users u ON u.id = a.owner_user_id`
	joinUser   = ` LEFT JOIN svc_users u ON u.id = $3`
	joinNarrow = ` LEFT JOIN svc_policies y ON y.id = $4`

	fromUser    = fromBank + joinUser
	fromChannel = fromBank + `
		LEFT JOIN svc_channels c ON c.provider = $3 AND c.sender_id = $4
		LEFT JOIN svc_users u ON u.id = c.user_id`
	fromAccount = fromBank + joinAccount
	fromKey     = fromBank + `
		LEFT JOIN svc_api_keys k ON k.id = $3 LEFT JOIN svc_policies y ON y.id = k.scoping_policy_id
		LEFT JOIN svc_service_accounts a
			ON k.holder_kind = 'service_account' AND a.id = k.holder_id` + joinScoping + `
		LEFT JOIN svc_users u
			ON u.id = CASE k.holder_kind WHEN 'user' THEN k.holder_id ELSE a.owner_user_id END`
	fromNarrowedAccount = fromBank + joinAccount + joinNarrow
	fromNarrowedUser    = fromBank + joinUser + joinNarrow
)

// accessRow holds the columns of one row of Access.
type accessRow struct {
	generation  int64
	bank        []byte
	user        svc.User
	groups      string
	grants      string
	boundary    string // separates the texts of groups and grants: random, so no text contains it
	account     svc.ServiceAccount
	scopingName string
	scoping     []byte
	narrowName  string
	narrowing   []byte
	key         svc.APIKey
	keys        int
}

// ask returns the statement for query, its parameters, and the destinations of its columns.
func (r *accessRow) ask(query svc.AccessQuery) (statement string, args parameters, columns []any) {
	args = parameters{r.boundary, query.BankID}
	columns = slices.Concat(
		[]any{&r.generation, &r.bank}, columnsOfUser(&r.user),
		[]any{orZero[string]{&r.groups}, orZero[string]{&r.grants}})
	account := slices.Concat(columns, columnsOfServiceAccount(&r.account),
		[]any{orZero[string]{&r.scopingName}, &r.scoping})
	narrowing := []any{orZero[string]{&r.narrowName}, &r.narrowing}
	with, from := "", fromChannel
	switch who, by := query.Identity, query.ScopingPolicyID; {
	case query.KeyID != "":
		with, from = withAccount+withNarrow+withKey, fromKey
		args = append(args, query.KeyID)
		columns = slices.Concat(account, narrowing, columnsOfKey(&r.key))
	case who.Kind == svc.KindServiceAccount && by != "":
		with, from = withAccount+withNarrow, fromNarrowedAccount
		args, columns = append(args, who.ID, by), append(account, narrowing...)
	case who.Kind == svc.KindUser && by != "":
		with, from = withNarrow, fromNarrowedUser
		args, columns = append(args, who.ID, by), append(columns, narrowing...)
	case who.Kind == svc.KindServiceAccount:
		with, from = withAccount, fromAccount
		args, columns = append(args, who.ID), account
	case who.Kind == svc.KindUser:
		from, args = fromUser, append(args, who.ID)
	default:
		args = append(args, query.Channel.Provider, query.Channel.SenderID)
	}
	grants := selectGrants
	if query.Bare {
		grants = withoutGrants
	}
	if (query.KeysOf != svc.Identity{}) {
		// Parameters are numbered in the order of their appearance, so the count comes last.
		with += `, held.number`
		from += ` CROSS JOIN (` +
			countKeys(&args, query.KeysOf, query.Most, query.ValidAt) + `) held`
		columns = append(columns, &r.keys)
	}
	return selectBare + grants + with + from, args, columns
}

func (r *accessRow) snapshot(query svc.AccessQuery) (snapshot svc.AccessSnapshot, err error) {
	snapshot = svc.AccessSnapshot{
		Generation: r.generation, Key: orNil(r.key.ID, r.key),
		ServiceAccount: orNil(r.account.ID, r.account), User: orNil(r.user.ID, r.user),
		Keys: r.keys,
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
	if r.groups != "" {
		snapshot.Groups = strings.Split(r.groups, r.boundary)
	}
	if r.grants != "" {
		snapshot.Grants, err = r.decodeGrants()
	}
	return snapshot, err
}

// decodeGrants reads, for each policy, the number of its ways, three texts for each way, and the
// policy. All grants of a policy share its document.
func (r *accessRow) decodeGrants() (grants []svc.Grant, err error) {
	for texts := strings.Split(r.grants, r.boundary); len(texts) > 0; {
		ways, err := strconv.Atoi(texts[0])
		if err != nil {
			return nil, err
		}
		to, of := texts[1:1+3*ways], texts[1+3*ways:]
		policy := svc.Policy{ID: of[0], DisplayName: of[1], Document: []byte(of[2])}
		for t := range slices.Chunk(to, 3) {
			priority, err := strconv.ParseInt(t[2], 10, 64)
			if err != nil {
				return nil, err
			}
			principal := svc.GrantedTo{Type: t[0], ID: t[1]}
			grants = append(grants,
				svc.Grant{Policy: policy, Principal: principal, Priority: priority})
		}
		texts = of[3:]
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

// ReadAccess implements [svc.AccessStore].
func (s *Store) ReadAccess(
	ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error,
) (changes svc.StoreChanges, err error) {
	p := &parts{yield: func(part svc.Bundle) error {
		if read.Bare {
			part.Bare()
		}
		if err := yield(part); err != nil {
			return refusal{err}
		}
		return nil
	}}
	var named func() svc.Bundle
	err = s.db.snapshot(ctx, func(ctx context.Context, tx session) (err error) {
		t := accessTx{session: tx, dialect: s.dialect}
		named, err = t.read(ctx, s, p, read, &changes)
		return err
	})
	if err == nil && named != nil {
		err = p.addRows(named())
	}
	return changes, s.outcome(ctx, "read access", err)
}

// read yields rows, or asks for them: then named returns them at the end of the transaction.
func (t accessTx) read(
	ctx context.Context, s *Store, p *parts, read svc.AccessRead, changes *svc.StoreChanges,
) (named func() svc.Bundle, err error) {
	names := read.Named
	if read.Since == 0 {
		err = t.eachLater(ctx, func(row scanner) (enough bool, err error) {
			changes.Generation, err = scanValue[int64](row)
			return true, err
		}, sumGeneration)
	} else if *changes, err = s.changes(ctx, t.session, read.Since); err == nil {
		names = new(svc.AccessNames)
		if *changes, *names = changes.OfAccess(); changes.Reset {
			names = nil
		}
	}
	switch {
	case err != nil:
		return nil, err
	case read.Page != nil:
		return nil, t.page(ctx, p, *read.Page)
	case names == nil:
		return nil, t.allAccess(ctx, p, read.Bare)
	}
	return t.ask(ctx, *names)
}

func (p *parts) addRows(current svc.Bundle) (err error) {
	current.Groups = pieces(current.Groups)
	for _, k := range kinds {
		k.addTo(p, &err, &current)
	}
	if err == nil {
		err = p.flush()
	}
	return err
}

// allAccess yields every row.
func (s session) allAccess(ctx context.Context, p *parts, bare bool) (err error) {
	if bare {
		if err = s.bareUsers(ctx, p); err == nil {
			err = s.bareGroups(ctx, p)
		}
	} else {
		read(ctx, s, &err, p, &p.Users, scanUserChannel, mergeUser, selectUsers)
		read(ctx, s, &err, p, &p.Groups, scanGroupMember, p.mergeGroup, selectGroups+byGroup)
	}
	for _, k := range kinds[2:] {
		k.readAll(ctx, s, &err, p)
	}
	if err == nil {
		err = p.flush()
	}
	return err
}

// read reads rows into list, which is one of p. When err is already set, it does nothing.
func read[R any](
	ctx context.Context, s session, err *error, p *parts, list *[]R,
	scan func(scanner) (R, error), join func(into *R, row R) bool, query string, args ...any,
) {
	if *err == nil {
		*err = each(ctx, s, func(row scanner) (bool, error) {
			r, err := scan(row)
			if err == nil {
				err = add(p, list, r, 1, join)
			}
			return false, err
		}, query, args...)
	}
}

// partSize is the most rows, channels and memberships of a part. A user with more channels is in
// one part nevertheless.
const partSize = 4096

// parts yields rows in parts.
type parts struct {
	svc.Bundle // the part that is not yielded yet
	size       int
	yield      func(svc.Bundle) error
}

func (p *parts) flush() error {
	if p.Empty() {
		return nil
	}
	part := p.Bundle
	p.Bundle, p.size = svc.Bundle{}, 0
	return p.yield(part)
}

// mergeGroup adds the members of row to its group, unless the group continues in the next part.
func (p *parts) mergeGroup(into *svc.Group, row svc.Group) bool {
	if p.size > partSize || into.ID != row.ID {
		return false
	}
	into.Members = append(into.Members, row.Members...)
	return true
}

// add adds a row to list, which is one of p, unless join accepts it for the row before. A nil join
// accepts none. weight is the number of rows, channels and memberships that the row counts for.
func add[R any](
	p *parts, list *[]R, row R, weight int, join func(into *R, row R) bool,
) (err error) {
	p.size += weight
	if n := len(*list); n > 0 && join != nil && join(&(*list)[n-1], row) {
		return nil
	}
	if p.size > partSize {
		err = p.flush()
		p.size = weight
	}
	*list = append(*list, row)
	return err
}

// pieces splits large groups, so that they come in several parts.
func pieces(groups []svc.Group) (out []svc.Group) {
	for _, g := range groups {
		members := g.Members
		for ; len(members) > partSize; members = members[partSize:] {
			g.Members = members[:partSize:partSize]
			out = append(out, g)
		}
		g.Members = members
		out = append(out, g)
	}
	return out
}

const selectUsers = `SELECT ` + userColumns + `, c.provider, c.sender_id
	FROM svc_users u LEFT JOIN svc_channels c ON c.user_id = u.id
	ORDER BY u.id, c.provider, c.sender_id`

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
