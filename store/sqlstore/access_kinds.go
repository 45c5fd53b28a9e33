package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// kind is one kind of rows of access: a table, and a list of [svc.Bundle].
type kind[K comparable, R any] struct {
	target  event.TargetKind
	table   string
	columns string // without the key
	list    func(*svc.Bundle) *[]R
	named   func(*svc.AccessNames) []K
	fields  func(*R) []any // of key and columns
	// These may be zero.
	key     string                         // the columns of the key; "": id
	cell    func(K) any                    // the key, for batches; nil: it is one text
	written string                         // columns that are never read
	values  func(R) []any                  // of written
	extent  func(R) int                    // the number of channels or members
	paged   func(*listing, svc.AccessPage) // a list that is not only in the order of the key

	from, all, find, upsert, drop string // statements, and the begin of one
}

// The kinds of rows.
var (
	users = withStatements(kind[string, svc.User]{
		target: event.TargetUser, table: `svc_users`, columns: `display_name, email, inactive`,
		list:   func(b *svc.Bundle) *[]svc.User { return &b.Users },
		named:  func(n *svc.AccessNames) []string { return n.Users },
		fields: columnsOfUser, written: `folded_id, folded_name, folded_email`,
		values: func(u svc.User) []any {
			id, name, email := foldUser(u)
			return []any{id, name, email}
		},
		extent: func(u svc.User) int { return len(u.Channels) },
	})
	groups = withStatements(kind[string, svc.Group]{
		target: event.TargetGroup, table: `svc_access_groups`, columns: `display_name`,
		list:   func(b *svc.Bundle) *[]svc.Group { return &b.Groups },
		named:  func(n *svc.AccessNames) []string { return n.Groups },
		fields: func(g *svc.Group) []any { return []any{&g.ID, &g.DisplayName} },
		extent: func(g svc.Group) int { return len(g.Members) }, paged: pageOfGroups,
	})
	serviceAccounts = withStatements(kind[string, svc.ServiceAccount]{
		target: event.TargetServiceAccount, table: `svc_service_accounts`,
		columns: `display_name, owner_user_id, scoping_policy_id, inactive`,
		list:    func(b *svc.Bundle) *[]svc.ServiceAccount { return &b.ServiceAccounts },
		named:   func(n *svc.AccessNames) []string { return n.ServiceAccounts },
		fields:  columnsOfServiceAccount, paged: pageOfServiceAccounts,
	})
	policies = withStatements(kind[string, svc.Policy]{
		target: event.TargetPolicy, table: `svc_policies`, columns: `display_name, document`,
		list:  func(b *svc.Bundle) *[]svc.Policy { return &b.Policies },
		named: func(n *svc.AccessNames) []string { return n.Policies },
		fields: func(p *svc.Policy) []any {
			return []any{&p.ID, &p.DisplayName, (*[]byte)(&p.Document)}
		},
	})
	attachments = withStatements(kind[svc.AttachmentKey, svc.Attachment]{
		target: event.TargetAttachment, table: `svc_attachments`, columns: `priority`,
		key:   `principal_type, principal_id, policy_id`,
		list:  func(b *svc.Bundle) *[]svc.Attachment { return &b.Attachments },
		named: func(n *svc.AccessNames) []svc.AttachmentKey { return n.Attachments },
		fields: func(a *svc.Attachment) []any {
			return []any{&a.Principal.Type, &a.Principal.ID, &a.PolicyID, &a.Priority}
		},
		cell: func(k svc.AttachmentKey) any {
			return []any{k.Principal.Type, k.Principal.ID, k.PolicyID}
		},
		paged: pageOfAttachments,
	})
	bankPolicies = withStatements(kind[string, svc.BankPolicy]{
		target: event.TargetBankPolicy, table: `svc_bank_policies`, columns: `document`,
		key: `bank_id`, list: func(b *svc.Bundle) *[]svc.BankPolicy { return &b.BankPolicies },
		named: func(n *svc.AccessNames) []string { return n.BankPolicies },
		fields: func(p *svc.BankPolicy) []any {
			return []any{&p.BankID, (*[]byte)(&p.Document)}
		},
	})
	tests = withStatements(kind[string, svc.AccessTest]{
		target: event.TargetTest, table: `svc_access_tests`,
		columns: `user_id, sa_id, sender, action, bank_id, channel, topic, allowed`,
		list:    func(b *svc.Bundle) *[]svc.AccessTest { return &b.Tests },
		named:   func(n *svc.AccessNames) []string { return n.Tests },
		fields: func(t *svc.AccessTest) []any {
			return []any{&t.ID, &t.UserID, &t.ServiceAccountID, &t.Sender, &t.Action, &t.Bank,
				&t.Channel, &t.Topic, orZero[bool]{&t.Allowed}}
		},
	})
)

// kinds are all kinds of rows, in the order of the fields of [svc.Bundle]. A row comes before the
// rows that refer to it. Those of the first two are read with their channels and members.
var kinds = []anyKind{users, groups, serviceAccounts, policies, attachments, bankPolicies, tests}

// withStatements returns a kind with its statements. In them, r is a row, and j an element of the
// parameter. WHERE true tells SQLite that no join follows.
func withStatements[K comparable, R any](k kind[K, R]) *kind[K, R] {
	k.key = cmp.Or(k.key, `id`)
	if k.cell == nil {
		k.cell = itself[K]
	}
	columns := k.key + `, ` + k.columns
	k.from = `SELECT r.` + strings.ReplaceAll(columns, `, `, `, r.`) + ` FROM `
	k.all = k.from + k.table + ` r`
	k.find = k.by(k.key)
	if k.written != "" {
		columns += `, ` + k.written
	}
	var values, changes []string
	for i, column := range strings.Split(columns, `, `) {
		value := `value->>` + strconv.Itoa(i)
		if slices.Contains(numbers, column) {
			value = `CAST(` + value + ` AS BIGINT)`
		}
		values = append(values, value)
		changes = append(changes, column+` = excluded.`+column)
	}
	n := strings.Count(k.key, `,`) + 1
	k.upsert = `INSERT INTO ` + k.table + ` (` + columns + `)
		SELECT ` + strings.Join(values, `, `) + ` FROM {rows} WHERE true
		ON CONFLICT (` + k.key + `) DO UPDATE SET ` + strings.Join(changes[n:], `, `)
	k.drop = `DELETE FROM ` + k.table + ` WHERE ` + k.key + ` IN (SELECT value FROM {ids})`
	if n > 1 {
		k.drop = `DELETE FROM ` + k.table + ` WHERE (` + k.key + `) IN
			(SELECT ` + strings.Join(values[:n], `, `) + ` FROM {rows})`
	}
	return &k
}

// numbers are the columns that are not text.
var numbers = []string{`inactive`, `priority`, `allowed`}

// by returns a statement for the rows whose columns have the values of an element. CROSS JOIN keeps
// SQLite from scanning the table: it looks up each one.
func (k *kind[K, R]) by(columns string) string {
	names := strings.Split(columns, `, `)
	if len(names) == 1 {
		return k.from + `{ids} CROSS JOIN ` + k.table + ` r WHERE r.` + columns + ` = j.value`
	}
	for i, column := range names {
		names[i] = `r.` + column + ` = j.value->>` + strconv.Itoa(i)
	}
	return k.from + `{rows} CROSS JOIN ` + k.table + ` r WHERE ` + strings.Join(names, ` AND `)
}

// anyKind is a kind whose types are its own. When the error is already set, its methods do nothing.
type anyKind interface {
	is(event.TargetKind) bool
	// readAll and readPage add rows to p that they read, and addTo those of b.
	readAll(ctx context.Context, s session, err *error, p *parts)
	readPage(ctx context.Context, s session, err *error, p *parts, page svc.AccessPage)
	addTo(p *parts, err *error, b *svc.Bundle)
	// pick asks for the named rows, which are in b after answers.
	pick(ctx context.Context, t accessTx, err *error, named *svc.AccessNames, b *svc.Bundle)
	put(ctx context.Context, t accessTx, err *error, b *svc.Bundle)
	remove(ctx context.Context, t accessTx, err *error, named *svc.AccessNames)
}

func (k *kind[K, R]) is(target event.TargetKind) bool { return k.target == target }

func (k *kind[K, R]) readAll(ctx context.Context, s session, err *error, p *parts) {
	read(ctx, s, err, p, k.list(&p.Bundle), k.scan, nil, k.all+` ORDER BY `+k.key)
}

func (k *kind[K, R]) readPage(
	ctx context.Context, s session, err *error, p *parts, page svc.AccessPage,
) {
	l := list(k.all)
	if k.paged != nil {
		k.paged(l, page)
	} else {
		l.behind(k.key, page)
	}
	read(ctx, s, err, p, k.list(&p.Bundle), k.scan, nil, l.query, l.parameters...)
}

func (k *kind[K, R]) addTo(p *parts, err *error, b *svc.Bundle) {
	for _, row := range *k.list(b) {
		weight := 1
		if k.extent != nil {
			weight += k.extent(row)
		}
		if *err == nil {
			*err = add(p, k.list(&p.Bundle), row, weight, nil)
		}
	}
}

func (k *kind[K, R]) pick(
	ctx context.Context, t accessTx, err *error, named *svc.AccessNames, b *svc.Bundle,
) {
	pick(ctx, t, err, k.list(b), k.scan, k.named(named), k.cell, k.find)
}

func (k *kind[K, R]) put(ctx context.Context, t accessTx, err *error, b *svc.Bundle) {
	put(ctx, t, err, *k.list(b), k.cells, k.upsert)
}

func (k *kind[K, R]) remove(ctx context.Context, t accessTx, err *error, named *svc.AccessNames) {
	put(ctx, t, err, k.named(named), k.cell, k.drop)
}

// scan reads a row.
func (k *kind[K, R]) scan(from scanner) (row R, err error) {
	err = from.Scan(k.fields(&row)...)
	return row, err
}

// cells returns what a row has in all columns, for batches.
func (k *kind[K, R]) cells(row R) any {
	cells := k.fields(&row)
	for i, field := range cells {
		switch field := field.(type) {
		case *[]byte:
			cells[i] = string(*field)
		case orZero[string]:
			cells[i] = *field.to
		case orZero[bool]:
			cells[i] = flag(*field.to)
		}
	}
	if k.values != nil {
		cells = append(cells, k.values(row)...)
	}
	return cells
}
