package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
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
	return s.mutate(ctx, "change access", func(ctx context.Context, tx session, m *mutation) error {
		t := accessTx{session: tx, dialect: s.dialect}
		write, err := t.plan(ctx, named, change)
		if err != nil {
			return err
		}
		if done := 0; write.Progress != nil {
			t.wrote = func(_ int64, n int) error { done += n; write.Progress(done); return nil }
		}
		if write.Size() > manyRows {
			ctx = withoutHurry(ctx)
			if replan := s.dialect.Replan; replan != "" {
				if err := tx.later(ctx, nil, replan); err != nil {
					return err
				}
			}
		}
		gone, unbound, err := t.remove(ctx, write.Remove)
		if err != nil {
			return err
		}
		if write.Gone != nil {
			write.Gone(slices.Clone(gone))
		}
		m.Targets, m.Renamed = slices.Concat(write.Targets, gone, unbound), write.Renamed
		return t.write(ctx, write)
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
// for rows j, those of its parameter, whose columns are value->>0, value->>1 and so on. {ids}
// stands for rows j of one text each, which is value: that costs SQLite half as much.
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
		if err := run(t.dialect.elements(query, n), string(buffer), n); err != nil {
			return err
		}
		buffer, n = buffer[:1], 0
	}
	return nil
}

// elements returns a statement of batches for n rows. PostgreSQL expects 100 rows of a function,
// and may read a large table from its start rather than look up so many. A limit says that they are
// few.
func (d Dialect) elements(query string, n int) string {
	rows, texts := "json_each($1)", "json_each($1)" // jsonb_each is faster, and needs SQLite 3.51
	if d.Elements != "" {
		rows, texts = d.Elements+"($1)", d.Elements+"_text($1)"
		for _, most := range []int{1, 8} { // each is its own prepared statement
			if n <= most {
				few := " LIMIT " + strconv.Itoa(most) + ")"
				rows, texts = "(SELECT value FROM "+rows+few, "(SELECT value FROM "+texts+few
				break
			}
		}
	}
	return strings.NewReplacer("{rows}", rows+" j", "{ids}", texts+" j").Replace(query)
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
// answers.
func (t accessTx) ask(
	ctx context.Context, named svc.AccessNames,
) (rows func() svc.Bundle, err error) {
	var b svc.Bundle
	var members []svc.Membership
	t.users(ctx, &err, &b.Users, named)
	t.groups(ctx, &err, &b.Groups, &members, named)
	for _, k := range kinds[2:] {
		k.pick(ctx, t, &err, &named, &b)
	}
	t.referring(ctx, &err, &b, named)
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

var (
	ofOwner     = serviceAccounts.by(`owner_user_id`)
	scopedBy    = serviceAccounts.by(`scoping_policy_id`)
	toPrincipal = attachments.by(`principal_type, principal_id`)
	ofPolicy    = attachments.by(`policy_id`)
)

// referring asks for the service accounts and attachments that named names by what they refer to.
func (t accessTx) referring(
	ctx context.Context, err *error, b *svc.Bundle, named svc.AccessNames,
) {
	accounts, to := &b.ServiceAccounts, &b.Attachments
	pick(ctx, t, err, accounts, serviceAccounts.scan, named.AccountsOf, itself, ofOwner)
	pick(ctx, t, err, accounts, serviceAccounts.scan, named.UsesOf, itself, scopedBy)
	pick(ctx, t, err, to, attachments.scan, named.AttachmentsTo, func(to svc.GrantedTo) any {
		return []any{to.Type, to.ID}
	}, toPrincipal)
	pick(ctx, t, err, to, attachments.scan, named.UsesOf, itself, ofPolicy)
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
	pick(ctx, t, err, list, scanUserChannel, named.Users, itself, columns+`{ids}
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
	pick(ctx, t, err, list, scanUserChannel, other, columnsOfChannel, columns+`{rows}
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
	const ofMembers = `SELECT m.group_id, m.user_id FROM `
	ids := slices.Concat(named.Groups, named.MembersOf)
	for _, m := range named.Members {
		ids = append(ids, m.Group)
	}
	pick(ctx, t, err, list, groups.scan, ids, itself, groups.find)
	pick(ctx, t, err, list, groups.scan, named.GroupsOf, itself, groups.from+`{ids}
		CROSS JOIN svc_group_members m CROSS JOIN svc_access_groups r
		WHERE m.user_id = j.value AND r.id = m.group_id`)
	pick(ctx, t, err, members, scanMembership, named.GroupsOf, itself, ofMembers+`{ids}
		CROSS JOIN svc_group_members m WHERE m.user_id = j.value`)
	pick(ctx, t, err, members, scanMembership, named.MembersOf, itself, ofMembers+`{ids}
		CROSS JOIN svc_group_members m WHERE m.group_id = j.value`)
	some := slices.DeleteFunc(slices.Clone(named.Members), func(m svc.Membership) bool {
		return slices.Contains(named.MembersOf, m.Group)
	})
	pick(ctx, t, err, members, scanMembership, some, columnsOfMembership, ofMembers+`{rows}
		CROSS JOIN svc_group_members m
		WHERE m.group_id = j.value->>0 AND m.user_id = j.value->>1`)
}

// withMembers adds members to their groups, which have none yet.
func withMembers(groups []svc.Group, members []svc.Membership) []svc.Group {
	place := make(map[string]int, len(groups))
	for i, g := range groups {
		place[g.ID], groups[i].Members = i, []string{}
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

func itself[C any](cells C) any { return cells }

func columnsOfMembership(m svc.Membership) any { return []any{m.Group, m.User} }

func scanMembership(row scanner) (m svc.Membership, err error) {
	err = row.Scan(&m.Group, &m.User)
	return m, err
}

// put runs a statement that writes rows, or lets the driver run it with the next one. When err is
// already set, it does nothing.
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
		return t.later(ctx, check, query, parameter)
	})
}

// write upserts rows. All users give up their channels before any user takes one.
func (t accessTx) write(ctx context.Context, w svc.AccessWrite) (err error) {
	for _, k := range kinds {
		k.put(ctx, t, &err, &w.Bundle)
	}
	t.writeChannels(ctx, &err, w.Users)
	put(ctx, t, &err, w.Leave, columnsOfMembership, `DELETE FROM svc_group_members
		WHERE (group_id, user_id) IN (SELECT value->>0, value->>1 FROM {rows})`)
	put(ctx, t, &err, w.Join, columnsOfMembership, `INSERT INTO svc_group_members
		(group_id, user_id)
		SELECT value->>0, value->>1 FROM {rows} WHERE true ON CONFLICT DO NOTHING`)
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
	var channels []any
	for _, u := range users {
		for _, channel := range u.Channels {
			channels = append(channels, []any{channel.Provider, channel.SenderID, u.ID})
		}
	}
	put(ctx, t, err, channels, itself[any], `INSERT INTO svc_channels (provider, sender_id, user_id)
		SELECT value->>0, value->>1, value->>2 FROM {rows} WHERE true ON CONFLICT DO NOTHING`)
}

// flag returns the stored form of a bool.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
