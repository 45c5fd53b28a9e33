package sqlstore

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// Without their names, users and memberships come in texts of many: a driver is slow with rows. $1
// separates them, and is random, so no id contains it. The other parameters are the last id or
// membership of the text before.
const (
	selectBareUsers = `SELECT string_agg(many.id || CAST(many.inactive AS TEXT), $1)
		FROM (SELECT id, inactive FROM svc_users WHERE id > $2 ORDER BY id LIMIT 2048) many`
	selectBareMembers = `SELECT many.group_id, string_agg(many.user_id, $1)
		FROM (SELECT group_id, user_id FROM svc_group_members WHERE (group_id, user_id) > ($2, $3)
			ORDER BY group_id, user_id LIMIT 2048) many
		GROUP BY many.group_id ORDER BY many.group_id`
)

// bareUsers yields all users without their names and channels.
func (s session) bareUsers(ctx context.Context, p *parts) error {
	boundary := rand.Text()[:10]
	for last := ""; ; {
		var text string
		_, err := one(ctx, s, func(row scanner) (struct{}, error) {
			return struct{}{}, row.Scan(orZero[string]{&text})
		}, selectBareUsers, boundary, last)
		if err != nil || text == "" {
			return err
		}
		users := strings.Split(text, boundary)
		slices.SortFunc(users, func(a, b string) int {
			return strings.Compare(a[:len(a)-1], b[:len(b)-1])
		})
		for _, user := range users {
			last = user[:len(user)-1]
			u := svc.User{ID: last, Inactive: user[len(last):] != "0"}
			if err := add(p, &p.Users, u, 1, nil); err != nil {
				return err
			}
		}
	}
}

// bareGroups yields all groups without their names.
func (s session) bareGroups(ctx context.Context, p *parts) error {
	groups, err := all(ctx, s, scanValue[string], `SELECT id FROM svc_access_groups ORDER BY id`)
	if err != nil {
		return err
	}
	begun, last, boundary := 0, svc.Membership{}, rand.Text()[:10]
	begin := func(ready func(id string) bool) (err error) {
		for ; begun < len(groups) && ready(groups[begun]) && err == nil; begun++ {
			err = add(p, &p.Groups, svc.Group{ID: groups[begun], Members: []string{}}, 1, nil)
		}
		return err
	}
	for {
		texts, err := all(ctx, s, scanMembership, selectBareMembers,
			boundary, last.Group, last.User)
		if err != nil {
			return err
		}
		if len(texts) == 0 {
			return begin(func(string) bool { return true })
		}
		for _, text := range texts {
			if err := begin(func(id string) bool { return id <= text.Group }); err != nil {
				return err
			}
			g := svc.Group{ID: text.Group, Members: strings.Split(text.User, boundary)}
			slices.Sort(g.Members)
			last = svc.Membership{Group: g.ID, User: g.Members[len(g.Members)-1]}
			if begun == 0 || groups[begun-1] != g.ID {
				continue // in a transaction of the host the group may be gone, or new
			}
			if err := add(p, &p.Groups, g, len(g.Members), p.mergeGroup); err != nil {
				return err
			}
		}
	}
}
