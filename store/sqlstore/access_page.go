package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/text"
)

// chunk ends the query.
func (l *listing) chunk(order string, page svc.AccessPage) {
	l.query += ` ORDER BY ` + order + ` LIMIT (` + l.add(page.Limit) + ` + 0)`
	l.skip(page.Skip)
}

// behind ends the query of a list in the order of a column, which is its key.
func (l *listing) behind(column string, page svc.AccessPage) {
	l.after(column, page.After)
	l.chunk(column, page)
}

// page yields one chunk of a list. Each filter has an index in the order of the list.
func (s session) page(ctx context.Context, p *parts, page svc.AccessPage) (err error) {
	at := slices.IndexFunc(kinds, func(k anyKind) bool { return k.is(page.Kind) })
	switch {
	case page.Kind == event.TargetChannel:
		err = s.channelsOf(ctx, p, page)
	case page.Kind == event.TargetMember:
		err = s.membersOf(ctx, p, page)
	case page.Kind == event.TargetUser && page.Text != "":
		var found svc.Bundle
		if found.Users, err = s.usersByText(ctx, page); err == nil {
			err = p.addRows(found)
		}
	case at >= 0:
		kinds[at].readPage(ctx, s, &err, p, page)
	default:
		err = fmt.Errorf("there are no lists of kind %q: ask for another", page.Kind)
	}
	if err == nil {
		err = p.flush()
	}
	return err
}

// pageOfGroups lists groups. CROSS JOIN keeps the order of the memberships in SQLite.
func pageOfGroups(l *listing, page svc.AccessPage) {
	if page.User == "" {
		l.behind(`r.id`, page)
		return
	}
	l.query = `SELECT r.id, r.display_name FROM svc_group_members m CROSS JOIN svc_access_groups r`
	l.equal(`m.user_id`, page.User)
	l.after(`m.group_id`, page.After)
	l.where(`r.id = m.group_id`)
	l.chunk(`m.group_id`, page)
}

func pageOfServiceAccounts(l *listing, page svc.AccessPage) {
	l.equal(`r.owner_user_id`, page.User)
	l.equal(`r.scoping_policy_id`, page.Policy)
	l.behind(`r.id`, page)
}

func pageOfAttachments(l *listing, page svc.AccessPage) {
	after := svc.Target{ID: page.After}.Attachment()
	principal := func(kind, id string) {
		if id != "" {
			l.equal(`principal_type`, kind)
			l.equal(`principal_id`, id)
		}
	}
	principal(svc.GrantedToUser, page.User)
	principal(svc.GrantedToGroup, page.Group)
	l.equal(`policy_id`, page.Policy)
	switch to := after.Principal; {
	case page.User+page.Group != "":
		l.after(`policy_id`, after.PolicyID)
	case page.Policy != "":
		l.after(`principal_type, principal_id`, to.Type, to.ID)
	default:
		l.after(`principal_type, principal_id, policy_id`, to.Type, to.ID, after.PolicyID)
	}
	l.chunk(`principal_type, principal_id, policy_id`, page)
}

func (s session) channelsOf(ctx context.Context, p *parts, page svc.AccessPage) (err error) {
	l := list(`SELECT provider, sender_id FROM svc_channels`)
	after := svc.Target{ID: page.After}.Channel()
	l.where(`user_id = ` + l.add(page.User))
	l.after(`provider, sender_id`, after.Provider, after.SenderID)
	l.chunk(`provider, sender_id`, page)
	read(ctx, s, &err, p, &p.Users, func(row scanner) (svc.User, error) {
		var channel svc.Channel
		err := row.Scan(&channel.Provider, &channel.SenderID)
		return svc.User{ID: page.User, Channels: []svc.Channel{channel}}, err
	}, func(into *svc.User, row svc.User) bool {
		return p.size <= partSize && mergeUser(into, row)
	}, l.query, l.parameters...)
	return err
}

func (s session) membersOf(ctx context.Context, p *parts, page svc.AccessPage) (err error) {
	l := list(`SELECT user_id FROM svc_group_members`)
	l.where(`group_id = ` + l.add(page.Group))
	l.after(`user_id`, page.After)
	l.chunk(`user_id`, page)
	read(ctx, s, &err, p, &p.Groups, func(row scanner) (svc.Group, error) {
		member, err := scanValue[string](row)
		return svc.Group{ID: page.Group, Members: []string{member}}, err
	}, p.mergeGroup, l.query, l.parameters...)
	return err
}

const (
	// glanced is how many users usersByText reads for a text that many of them may have.
	glanced = 1000
	// foundBy is the number of characters of a text that the indexes of users hold. It is also in
	// the migration.
	foundBy = 32
)

// usersByText reads a chunk of the users that a text finds. When many users have the text, the next
// users by id fill the chunk. Otherwise the indexes find all that have it, few enough to sort.
func (s session) usersByText(ctx context.Context, page svc.AccessPage) ([]svc.User, error) {
	text := text.Fold(page.Text)
	l := nearUsers(text, page)
	near, err := all(ctx, s, users.scan, l.query, l.parameters...)
	if err != nil || len(near) == page.Limit {
		return near, err
	}
	l = foundUsers(text, page)
	return all(ctx, s, users.scan, l.query, l.parameters...)
}

// foldUser returns the texts by which a user is found. The id is nil when it is folded already.
func foldUser(u svc.User) (id *string, name string, email *string) {
	if folded := text.Fold(u.ID); folded != u.ID {
		id = &folded
	}
	if u.Email != nil {
		folded := text.Fold(*u.Email)
		email = &folded
	}
	return id, text.Fold(u.DisplayName), email
}

// has says that a folded column begins with a text of that length. The two are names of parameters.
func has(column, length, text string) string {
	return `substr(` + column + `, 1, ` + length + ` + 0) = ` + text
}

// nearUsers lists those of the next users by id that have the text.
func nearUsers(text string, page svc.AccessPage) *listing {
	l := list(`SELECT id, display_name, email, inactive FROM (SELECT * FROM svc_users`)
	l.after(`id`, page.After)
	l.chunk(`id`, svc.AccessPage{Limit: glanced + page.Skip + page.Limit})
	l.query, l.and = l.query+`) near`, ` WHERE `
	length, value := l.add(utf8.RuneCountInString(text)), l.add(text)
	l.where(`(` + has(`COALESCE(folded_id, id)`, length, value) + ` OR ` +
		has(`folded_name`, length, value) + ` OR ` + has(`folded_email`, length, value) + `)`)
	l.chunk(`id`, page)
	return l
}

// foundUsers lists the users that the indexes find by the begin of a text. Each index gives its
// first users only. The primary key has them in order, if their ids have no upper case. The others
// sort by an expression: databases would take ORDER BY u.id as a reason to read all users by id.
func foundUsers(text string, page svc.AccessPage) *listing {
	l, runes := list(`SELECT `+userColumns+` FROM (`), []rune(text)
	begin := string(runes[:min(foundBy, len(runes))])
	least, most := l.add(begin), l.add(begin+strings.Repeat(string(utf8.MaxRune), foundBy))
	after, rest := l.add(page.After), func(string) string { return `` }
	if len(begin) < len(text) {
		length, value := l.add(len(runes)), l.add(text)
		rest = func(column string) string { return ` AND ` + has(column, length, value) }
	}
	enough := l.add(page.Skip + page.Limit)
	find := func(by, condition, order string) string {
		return `SELECT * FROM (SELECT u.id FROM svc_users u WHERE ` + condition +
			` ORDER BY ` + order + ` LIMIT (` + enough + ` + 0)) by_` + by
	}
	fold := func(by, column, indexed string) string {
		first := `substr(u.` + column + `, 1, ` + strconv.Itoa(foundBy) + `)`
		return find(by, indexed+first+` >= `+least+` AND `+first+` <= `+most+
			` AND u.id > `+after+rest(column), `u.id || ''`) + ` UNION `
	}
	from := ` >= ` + least
	if page.After >= begin {
		from = ` > ` + after
	}
	l.query += fold(`name`, `folded_name`, ``) +
		fold(`email`, `folded_email`, `u.folded_email IS NOT NULL AND `) +
		fold(`other_case`, `folded_id`, `u.folded_id IS NOT NULL AND `) +
		find(`id`, `u.id`+from+` AND u.id <= `+most+rest(`id`), `u.id`)
	l.chunk(`1`, page)
	l.query += `) found CROSS JOIN svc_users u WHERE u.id = found.id ORDER BY u.id`
	return l
}
