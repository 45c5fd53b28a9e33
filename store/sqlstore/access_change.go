package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

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
	return s.mutate(ctx, "change access", func(ctx context.Context, tx session) (mutation, error) {
		t := accessTx{session: tx, dialect: s.dialect}
		write, err := t.plan(ctx, named, change)
		if err != nil {
			return mutation{}, err
		}
		if done := 0; write.Progress != nil {
			t.wrote = func(_ int64, n int) error { done += n; write.Progress(done); return nil }
		}
		gone, unbound, err := t.remove(ctx, write.Remove)
		if err != nil {
			return mutation{}, err
		}
		if write.Gone != nil {
			write.Gone(slices.Clone(gone))
		}
		targets := slices.Concat(write.Targets, gone, unbound)
		return mutation{targets, write.Renamed}, t.write(ctx, write)
	})
}

// plan locks access and returns what change returns for the named rows.
func (t accessTx) plan(
	ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error),
) (write svc.AccessWrite, err error) {
	lock := func(locks svc.Locks) error { return t.lockAll(ctx, locks, t.dialect) }
	if reflect.ValueOf(named).IsZero() {
		if write, err = change(svc.Bundle{}); err != nil {
			return write, refusal{err}
		}
		err = lock(svc.Locks{ChangeAccess: !write.NewUsers, AddUsers: write.NewUsers})
	} else if err = lock(svc.Locks{ChangeAccess: true}); err == nil {
		var rows func() svc.Bundle
		if rows, err = t.ask(ctx, named); err == nil {
			err = t.answers(ctx)
		}
		if err != nil {
			return write, err
		}
		if write, err = change(rows()); err != nil {
			return write, refusal{err}
		}
	}
	if err == nil && write.Empty() {
		err = errUnchanged
	}
	return write, err
}

// accessTx reads and writes many rows of access with few statements. {rows} in a statement stands
// for the rows of its parameter, whose columns are value->>0, value->>1 and so on. {ids} stands for
// rows of one text each, which is value: that costs SQLite half as much.
type accessTx struct {
	session
	dialect Dialect
	// wrote, unless nil, is called after a statement for n rows, which wrote so many.
	wrote func(written int64, n int) error
}

// batchSize is the size from which on rows are one statement, in bytes of JSON.
const batchSize = 128 << 10

// batches calls run with a statement and its parameter, which is a JSON array of n rows, until all
// rows have come or run fails.
func batches[R any](
	t accessTx, query string, rows []R, columns func(R) any,
	run func(query, parameter string, n int) error,
) error {
	elements, texts := "json_each", "json_each" // jsonb_each is faster, and needs SQLite 3.51
	if t.dialect.Elements != "" {
		elements, texts = t.dialect.Elements, t.dialect.Elements+"_text"
	}
	query = strings.NewReplacer("{rows}", elements+"($1)", "{ids}", texts+"($1)").Replace(query)
	buffer, n := []byte{'['}, 0
	for i, row := range rows {
		cells, err := json.Marshal(columns(row))
		if err != nil {
			return err
		}
		buffer, n = append(append(buffer, cells...), ','), n+1
		if len(buffer) < batchSize && i+1 < len(rows) {
			continue
		}
		buffer[len(buffer)-1] = ']'
		if err := run(query, string(buffer), n); err != nil {
			return err
		}
		buffer, n = buffer[:1], 0
	}
	return nil
}

// pick reads what query finds for keys into list, for each key once. The list is complete after
// answers. When err is already set, it does nothing.
func pick[K comparable, R any](
	ctx context.Context, t accessTx, err *error, list *[]R, scan func(scanner) (R, error),
	keys []K, columns func(K) any, query string,
) {
	if *err != nil {
		return
	}
	keys = once(slices.Clone(keys), func(key K) K { return key })
	*err = batches(t, query, keys, columns, func(query, parameter string, _ int) error {
		return t.eachLater(ctx, func(row scanner) (bool, error) {
			r, err := scan(row)
			*list = append(*list, r)
			return false, err
		}, query, parameter)
	})
}

// ask asks for the named rows and the holders of the named channels. rows returns them after
// answers. CROSS JOIN keeps SQLite from scanning the table: it looks up each key.
func (t accessTx) ask(
	ctx context.Context, named svc.AccessNames,
) (rows func() svc.Bundle, err error) {
	var b svc.Bundle
	var members []svc.Membership
	t.users(ctx, &err, &b.Users, named)
	t.groups(ctx, &err, &b.Groups, &members, named)
	t.serviceAccounts(ctx, &err, &b.ServiceAccounts, named)
	pick(ctx, t, &err, &b.Policies, scanPolicy, named.Policies, itself,
		`SELECT p.id, p.display_name, p.document FROM {ids} j
		CROSS JOIN svc_policies p WHERE p.id = j.value`)
	t.attachments(ctx, &err, &b.Attachments, named)
	pick(ctx, t, &err, &b.BankPolicies, scanBankPolicy, named.BankPolicies, itself,
		`SELECT b.bank_id, b.document FROM {ids} j
		CROSS JOIN svc_bank_policies b WHERE b.bank_id = j.value`)
	pick(ctx, t, &err, &b.Tests, scanTest, named.Tests, itself,
		`SELECT `+testColumns+` FROM {ids} j CROSS JOIN svc_access_tests t WHERE t.id = j.value`)
	return func() svc.Bundle {
		b.Users = withChannels(b.Users)
		b.Groups = withMembers(once(b.Groups, func(g svc.Group) string { return g.ID }), members)
		b.ServiceAccounts = once(b.ServiceAccounts, func(a svc.ServiceAccount) string {
			return a.ID
		})
		b.Attachments = once(b.Attachments, func(a svc.Attachment) svc.AttachmentKey {
			return svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
		})
		return b
	}, err
}

// serviceAccounts asks for the named service accounts.
func (t accessTx) serviceAccounts(
	ctx context.Context, err *error, list *[]svc.ServiceAccount, named svc.AccessNames,
) {
	by := func(column string, names []string) {
		pick(ctx, t, err, list, scanServiceAccount, names, itself,
			`SELECT `+serviceAccountColumns+` FROM {ids} j
			CROSS JOIN svc_service_accounts a WHERE a.`+column+` = j.value`)
	}
	by(`id`, named.ServiceAccounts)
	by(`owner_user_id`, named.AccountsOf)
	by(`scoping_policy_id`, named.UsesOf)
}

// attachments asks for the named attachments.
func (t accessTx) attachments(
	ctx context.Context, err *error, list *[]svc.Attachment, named svc.AccessNames,
) {
	const columns = `SELECT t.policy_id, t.principal_type, t.principal_id, t.priority FROM `
	const toPrincipal = columns + `{rows} j CROSS JOIN svc_attachments t
		WHERE t.principal_type = j.value->>0 AND t.principal_id = j.value->>1`
	pick(ctx, t, err, list, scanAttachment, named.Attachments, columnsOfAttachmentKey,
		toPrincipal+` AND t.policy_id = j.value->>2`)
	pick(ctx, t, err, list, scanAttachment, named.AttachmentsTo,
		func(to svc.GrantedTo) any { return []any{to.Type, to.ID} }, toPrincipal)
	pick(ctx, t, err, list, scanAttachment, named.UsesOf, itself,
		columns+`{ids} j CROSS JOIN svc_attachments t WHERE t.policy_id = j.value`)
}

func columnsOfAttachmentKey(k svc.AttachmentKey) any {
	return []any{k.Principal.Type, k.Principal.ID, k.PolicyID}
}

// once returns each row once.
func once[K comparable, R any](rows []R, key func(R) K) []R {
	seen := make(map[K]bool, len(rows))
	return slices.DeleteFunc(rows, func(row R) bool {
		k := key(row)
		again := seen[k]
		seen[k] = true
		return again
	})
}

// users asks for the named users and the holders of the named channels, with a row for each of
// their channels. It looks up the holder of a channel only when none of the named users has it.
func (t accessTx) users(
	ctx context.Context, err *error, list *[]svc.User, named svc.AccessNames,
) {
	const columns = `SELECT ` + userColumns + `, c.provider, c.sender_id FROM `
	pick(ctx, t, err, list, scanUserChannel, named.Users, itself, columns+`{ids} j
		CROSS JOIN svc_users u LEFT JOIN svc_channels c ON c.user_id = u.id WHERE u.id = j.value`)
	if len(named.Channels) == 0 || *err != nil {
		return
	}
	*err = t.answers(ctx)
	held := make(map[svc.Channel]bool, len(named.Channels))
	for _, u := range *list {
		for _, c := range u.Channels {
			held[c] = true
		}
	}
	other := slices.DeleteFunc(slices.Clone(named.Channels), func(c svc.Channel) bool {
		return held[c]
	})
	pick(ctx, t, err, list, scanUserChannel, other, columnsOfChannel, columns+`{rows} j
		CROSS JOIN svc_channels h CROSS JOIN svc_users u
		LEFT JOIN svc_channels c ON c.user_id = u.id
		WHERE h.provider = j.value->>0 AND h.sender_id = j.value->>1 AND u.id = h.user_id`)
}

// withChannels returns users whose rows come once for each channel.
func withChannels(rows []svc.User) []svc.User {
	slices.SortFunc(rows, func(a, b svc.User) int { return cmp.Compare(a.ID, b.ID) })
	users := rows[:0]
	for _, row := range rows {
		if n := len(users); n == 0 || !mergeUser(&users[n-1], row) {
			users = append(users, row)
		}
	}
	for i, u := range users {
		slices.SortFunc(u.Channels, func(a, b svc.Channel) int {
			return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.SenderID, b.SenderID))
		})
		users[i].Channels = slices.Compact(u.Channels) // two of the named ones may be its own
	}
	return users
}

// groups asks for the named groups, and for their named members.
func (t accessTx) groups(
	ctx context.Context, err *error, list *[]svc.Group, members *[]svc.Membership,
	named svc.AccessNames,
) {
	const groups = `SELECT g.id, g.display_name FROM `
	const ofMembers = `SELECT m.group_id, m.user_id FROM `
	ids := slices.Concat(named.Groups, named.MembersOf)
	for _, m := range named.Members {
		ids = append(ids, m.Group)
	}
	pick(ctx, t, err, list, scanGroup, ids, itself, groups+`{ids} j
		CROSS JOIN svc_access_groups g WHERE g.id = j.value`)
	pick(ctx, t, err, list, scanGroup, named.GroupsOf, itself, groups+`{ids} j
		CROSS JOIN svc_group_members m CROSS JOIN svc_access_groups g
		WHERE m.user_id = j.value AND g.id = m.group_id`)
	pick(ctx, t, err, members, scanMembership, named.GroupsOf, itself, ofMembers+`{ids} j
		CROSS JOIN svc_group_members m WHERE m.user_id = j.value`)
	pick(ctx, t, err, members, scanMembership, named.MembersOf, itself, ofMembers+`{ids} j
		CROSS JOIN svc_group_members m WHERE m.group_id = j.value`)
	some := slices.DeleteFunc(slices.Clone(named.Members), func(m svc.Membership) bool {
		return slices.Contains(named.MembersOf, m.Group)
	})
	pick(ctx, t, err, members, scanMembership, some, columnsOfMembership, ofMembers+`{rows} j
		CROSS JOIN svc_group_members m
		WHERE m.group_id = j.value->>0 AND m.user_id = j.value->>1`)
}

// withMembers adds members to their groups.
func withMembers(groups []svc.Group, members []svc.Membership) []svc.Group {
	place := make(map[string]int, len(groups))
	for i, g := range groups {
		place[g.ID] = i
	}
	for _, m := range members {
		if i, there := place[m.Group]; there { // in a transaction of the host it may be gone
			groups[i].Members = append(groups[i].Members, m.User)
		}
	}
	for i, g := range groups {
		slices.Sort(g.Members)
		groups[i].Members = slices.Compact(g.Members)
	}
	return groups
}

func itself(id string) any { return id }

func columnsOfMembership(m svc.Membership) any { return []any{m.Group, m.User} }

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

func scanMembership(row scanner) (m svc.Membership, err error) {
	err = row.Scan(&m.Group, &m.User)
	return m, err
}

// held is a channel and the user who has it.
type held struct {
	svc.Channel
	user string
}

// put runs a statement that writes rows, or lets the driver run it with the next one, unless the
// rows are many. When err is already set, it does nothing.
func put[R any](
	ctx context.Context, t accessTx, err *error, rows []R, columns func(R) any, query string,
) {
	if *err != nil {
		return
	}
	*err = batches(t, query, rows, columns, func(query, parameter string, n int) error {
		var check func(int64) error
		if t.wrote != nil {
			check = func(written int64) error { return t.wrote(written, n) }
		}
		if len(parameter) < batchSize {
			return t.later(ctx, check, query, parameter)
		}
		written, err := t.exec(ctx, query, parameter)
		if err == nil && check != nil {
			err = check(written)
		}
		return err
	})
}

// write upserts rows; a row comes before the rows that refer to it. All users give up their
// channels before any user takes one. WHERE true tells SQLite that no join follows.
func (t accessTx) write(ctx context.Context, w svc.AccessWrite) (err error) {
	put(ctx, t, &err, w.Users, func(u svc.User) any {
		id, name, email := foldUser(u)
		return []any{u.ID, u.DisplayName, u.Email, flag(u.Inactive), id, name, email}
	}, `INSERT INTO svc_users
		(id, display_name, email, inactive, folded_id, folded_name, folded_email)
		SELECT value->>0, value->>1, value->>2, CAST(value->>3 AS BIGINT),
		value->>4, value->>5, value->>6 FROM {rows} WHERE true
		ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name,
		email = excluded.email, inactive = excluded.inactive,
		folded_name = excluded.folded_name, folded_email = excluded.folded_email`)
	t.writeChannels(ctx, &err, w.Users)
	put(ctx, t, &err, w.Groups, func(g svc.Group) any {
		return []any{g.ID, g.DisplayName}
	}, `INSERT INTO svc_access_groups (id, display_name)
		SELECT value->>0, value->>1 FROM {rows} WHERE true
		ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name`)
	put(ctx, t, &err, w.Leave, columnsOfMembership, `DELETE FROM svc_group_members
		WHERE (group_id, user_id) IN (SELECT value->>0, value->>1 FROM {rows})`)
	put(ctx, t, &err, w.Join, columnsOfMembership, `INSERT INTO svc_group_members
		(group_id, user_id)
		SELECT value->>0, value->>1 FROM {rows} WHERE true ON CONFLICT DO NOTHING`)
	put(ctx, t, &err, w.Policies, func(p svc.Policy) any {
		return []any{p.ID, p.DisplayName, string(p.Document)}
	}, `INSERT INTO svc_policies (id, display_name, document)
		SELECT value->>0, value->>1, value->>2 FROM {rows} WHERE true
		ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name,
		document = excluded.document`)
	put(ctx, t, &err, w.ServiceAccounts, func(a svc.ServiceAccount) any {
		return []any{a.ID, a.DisplayName, a.OwnerUserID, a.ScopingPolicyID, flag(a.Inactive)}
	}, `INSERT INTO svc_service_accounts
		(id, display_name, owner_user_id, scoping_policy_id, inactive)
		SELECT value->>0, value->>1, value->>2, value->>3, CAST(value->>4 AS BIGINT)
		FROM {rows} WHERE true
		ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name,
		owner_user_id = excluded.owner_user_id,
		scoping_policy_id = excluded.scoping_policy_id, inactive = excluded.inactive`)
	put(ctx, t, &err, w.Attachments, func(a svc.Attachment) any {
		return []any{a.Principal.Type, a.Principal.ID, a.PolicyID, a.Priority}
	}, `INSERT INTO svc_attachments (principal_type, principal_id, policy_id, priority)
		SELECT value->>0, value->>1, value->>2, CAST(value->>3 AS BIGINT) FROM {rows} WHERE true
		ON CONFLICT (principal_type, principal_id, policy_id)
		DO UPDATE SET priority = excluded.priority`)
	put(ctx, t, &err, w.BankPolicies, func(p svc.BankPolicy) any {
		return []any{p.BankID, string(p.Document)}
	}, `INSERT INTO svc_bank_policies (bank_id, document)
		SELECT value->>0, value->>1 FROM {rows} WHERE true
		ON CONFLICT (bank_id) DO UPDATE SET document = excluded.document`)
	put(ctx, t, &err, w.Tests, func(q svc.AccessTest) any {
		return []any{
			q.ID, q.UserID, q.ServiceAccountID, q.Sender, q.Action, q.Bank, q.Channel, q.Topic,
			flag(q.Allowed),
		}
	}, `INSERT INTO svc_access_tests
		(id, user_id, sa_id, sender, action, bank_id, channel, topic, allowed)
		SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6,
		value->>7, CAST(value->>8 AS BIGINT) FROM {rows} WHERE true
		ON CONFLICT (id) DO UPDATE SET allowed = excluded.allowed`)
	return err
}

func (t accessTx) writeChannels(ctx context.Context, err *error, users []svc.User) {
	progress := t.wrote
	t.wrote = nil // write has counted the users
	put(ctx, t, err, users, func(u svc.User) any { return u.ID },
		`DELETE FROM svc_channels WHERE user_id IN (SELECT value FROM {ids})`)
	t.wrote = func(written int64, n int) error {
		if written < int64(n) {
			return errors.New("a channel is another user's: remove it there first")
		}
		if progress != nil {
			return progress(written, n)
		}
		return nil
	}
	var channels []held
	for _, u := range users {
		for _, channel := range u.Channels {
			channels = append(channels, held{channel, u.ID})
		}
	}
	put(ctx, t, err, channels, func(h held) any {
		return []any{h.Provider, h.SenderID, h.user}
	}, `INSERT INTO svc_channels (provider, sender_id, user_id)
		SELECT value->>0, value->>1, value->>2 FROM {rows} WHERE true ON CONFLICT DO NOTHING`)
}

// flag returns the stored form of a bool.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
