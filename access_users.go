package svc

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/answers"
	"github.com/extsvc/svc/limits"
)

// Users manages the rows of users, and the senders that are mapped to them. A host that owns its
// users needs only [Users.Delete], when a user leaves.
//
// Each method judges the caller by the rows that hold in the transaction of its write. Nobody gives
// anybody a right that the caller lacks, and nobody takes a control-plane right that the caller
// lacks: see docs/explanation/decision.md. [Host] may do everything. With ifMatch, a method acts on
// a row with one of these ETags only.
//
// Lists are read in chunks, not in one snapshot, and are sorted byte by byte. The error, if any, is
// the last thing yielded.
type Users struct{ *accessWriter }

// Groups manages groups and their members. The rules for callers and lists are those of [Users].
type Groups struct{ *accessWriter }

// UserQuery asks for a part of the list of users.
type UserQuery struct {
	RowQuery
	// Text narrows the list to users whose id, display name or email begins with it, in any case of
	// letters. At most [limits.NameLength] characters. "": all users.
	Text string
}

// UserPatch is a partial update: a nil field leaves the row's field unchanged. At least one is set.
type UserPatch struct {
	DisplayName *string    // 1 to [limits.NameLength] characters
	Email       *TextPatch // at most [limits.NameLength] characters; a nil Value: none
	Inactive    *bool
}

// GroupQuery asks for a part of the list of groups.
type GroupQuery struct {
	RowQuery
	Member string // narrows the list to the groups of a user; "": all groups
}

// GroupPatch is a partial update. DisplayName is required: 1 to [limits.NameLength] characters.
type GroupPatch struct{ DisplayName *string }

// List lists users by id, without their channels. The caller needs iam:users:read.
func (s *Users) List(ctx context.Context, by Principal, q UserQuery) iter.Seq2[User, error] {
	return listRows(ctx, s.accessWriter, rowList[User]{
		by: by, action: action.UsersRead, query: q.RowQuery,
		page:  AccessPage{Kind: event.TargetUser, Text: q.Text},
		check: func(c *checker) { c.text("q", q.Text, limits.NameLength) },
		rows:  func(b Bundle) []User { return b.Users }, key: User.key,
	})
}

// Read returns a user with its channels. The caller needs iam:users:read. Errors: CodeNotFound.
func (s *Users) Read(ctx context.Context, by Principal, id string) (User, error) {
	return readRow(ctx, s.accessWriter, &userRows, by, id)
}

// Create adds a user with its channels. The caller needs iam:users:write, and what the senders
// newly may do. Event: [event.AccessWritten]. Errors: CodeExists (the id, or a channel of another
// user).
func (s *Users) Create(ctx context.Context, by Principal, user User) (User, error) {
	user.Channels = append([]Channel{}, user.Channels...)
	kind := userRows
	if user.Inactive { // it may have had rights without a row
		kind.add = Locks{}
	}
	return createRow(ctx, s.accessWriter, &kind, by, user, func(
		current Bundle,
	) (refused, err error) {
		if i := heldChannel(current, user.Channels); i >= 0 {
			refused = taken("/channels/"+strconv.Itoa(i), "the channel belongs to another user already")
		}
		return refused, nil
	})
}

// heldChannel returns the index of the first channel that a user has; -1: none.
func heldChannel(current Bundle, channels []Channel) int {
	return slices.IndexFunc(channels, func(ch Channel) bool {
		return slices.ContainsFunc(current.Users, func(u User) bool {
			return slices.Contains(u.Channels, ch)
		})
	})
}

// Patch changes some fields of a user and returns the user. The caller needs iam:users:write, and
// every control-plane right of the user. To activate a user gives it all its rights. A patch that
// changes nothing writes nothing. Event: [event.AccessWritten]. Errors: CodeNotFound,
// CodePrecondition, CodeLastAdministrator.
func (s *Users) Patch(
	ctx context.Context, by Principal, id string, patch UserPatch, ifMatch ...string,
) (User, error) {
	if err := patch.check(id); err != nil {
		return User{}, err
	}
	return changeRow(ctx, s.accessWriter, &userRows, by, id, ifMatch, func(was User) (User, error) {
		return patch.apply(was), nil
	})
}

func (p UserPatch) check(id string) error {
	var c checker
	c.lookup("user_id", id)
	c.displayName(p.DisplayName)
	if p.Email != nil {
		c.optionalText("/email", p.Email.Value, limits.NameLength)
	}
	c.changes(p != UserPatch{})
	return c.err()
}

func (p UserPatch) apply(u User) User {
	if p.DisplayName != nil {
		u.DisplayName = *p.DisplayName
	}
	if p.Email != nil {
		u.Email = p.Email.Value
	}
	if p.Inactive != nil {
		u.Inactive = *p.Inactive
	}
	return u
}

// Delete removes a user and all that is the user's, with or without a row, in one transaction:
// channels, memberships, attachments to it, service accounts, personal sources and templates. Its
// keys and those of its service accounts are revoked. A row that is made under the id later
// inherits nothing. Server templates that came from its personal sources stay. Records keep the
// rows of the user: [Audit.Forget] and [Service.ForgetUser] erase them.
//
// The caller needs iam:users:write, and every control-plane right of the user and of its service
// accounts. Events: one for each row, key, source and template that goes. Errors: CodeNotFound
// (nothing is left of the user), CodePrecondition, CodeLastAdministrator.
func (s *Users) Delete(ctx context.Context, by Principal, id string, ifMatch ...string) error {
	return s.delete(ctx, by, id, "", ifMatch)
}

// delete is Delete. forget is the user whose texts the records erase; "": nobody.
func (s *Users) delete(
	ctx context.Context, by Principal, id, forget string, ifMatch []string,
) error {
	if err := userRows.checkID(id); err != nil {
		return err
	}
	return s.edit(ctx, writeRequest{
		by: by, need: []string{userRows.write}, doing: "delete " + userRows.noun, forget: forget,
		names: &AccessNames{
			Users: []string{id}, GroupsOf: []string{id}, AccountsOf: []string{id},
			AttachmentsTo: []GrantedTo{{GrantedToUser, id}},
		},
		plan: func(ctx context.Context, tx Store, current Bundle) (d writePlan, err error) {
			d.remove = current.keys()
			d.remove.Users = []string{id} // its keys and templates may be left without a row
			d.remove.Groups = nil         // the user is a member of them
			var etag string
			if was := userRows.find(current, id); was != nil {
				etag = was.ETag()
			}
			d.refused = unlessMatches(userRows.noun, etag, ifMatch)
			left, err := anythingLeft(ctx, tx, id, current)
			if err == nil && !left {
				left, err = s.answersLeft(ctx, tx, id)
			}
			if err == nil && !left {
				err = userRows.missing()
			}
			return d, err
		},
	})
}

// anythingLeft reports whether a user has a row, keys, or anything else.
func anythingLeft(ctx context.Context, tx Store, id string, current Bundle) (bool, error) {
	if !current.Empty() {
		return true, nil
	}
	keys, err := tx.APIKeys(ctx, APIKeyPage{
		Holder: Identity{KindUser, id}, KeyQuery: KeyQuery{Limit: 1},
	})
	if err != nil || len(keys) > 0 {
		return true, err
	}
	sources, err := tx.Sources(ctx, SourcePage{Scope: ScopePersonal, Owner: id, Limit: 1})
	if err != nil || len(sources) > 0 {
		return true, err
	}
	templates, err := tx.Templates(ctx, TemplatePage{
		Scope: ScopePersonal, Owner: id, TemplateQuery: TemplateQuery{Limit: 1},
	})
	return len(templates) > 0, err
}

// Channels lists the senders that are mapped to a user, by provider and sender. The caller needs
// iam:users:read. Errors: CodeNotFound.
func (s *Users) Channels(
	ctx context.Context, by Principal, id string, q RowQuery,
) iter.Seq2[Channel, error] {
	return listRows(ctx, s.accessWriter, rowList[Channel]{
		by: by, action: action.UsersRead, query: q, page: AccessPage{Kind: event.TargetChannel, User: id},
		check:  func(c *checker) { c.lookup("user_id", id) },
		parent: AccessNames{Users: []string{id}}, missing: userRows.missing, key: Channel.String,
		rows: func(b Bundle) (all []Channel) {
			for _, u := range b.Users {
				all = append(all, u.Channels...)
			}
			return all
		},
	})
}

// AddChannel maps a sender to a user. The caller needs iam:users:write, every control-plane right
// of the user, and what the sender newly may do. Event: [event.AccessWritten] of the user. Errors:
// CodeNotFound, CodeExists (the sender is mapped, to whichever user).
func (s *Users) AddChannel(ctx context.Context, by Principal, id string, channel Channel) error {
	var c checker
	c.lookup("user_id", id)
	channel.check(&c, "")
	if err := c.err(); err != nil {
		return err
	}
	return s.editChannels(ctx, by, id, channel, func(u *User, current Bundle) (refused, err error) {
		if heldChannel(current, []Channel{channel}) >= 0 {
			refused = taken("/sender_id", "the channel is mapped to a user already")
		}
		if !slices.Contains(u.Channels, channel) {
			u.Channels = append(u.Channels, channel)
		}
		return refused, nil
	})
}

// RemoveChannel ends the mapping of a sender to a user, by the rules of [Users.AddChannel]. Errors:
// CodeNotFound (the user, or the sender is not mapped to it).
func (s *Users) RemoveChannel(ctx context.Context, by Principal, id string, channel Channel) error {
	var c checker
	c.lookup("user_id", id)
	c.lookupForeign("provider", channel.Provider)
	c.lookupForeign("sender_id", channel.SenderID)
	if err := c.err(); err != nil {
		return err
	}
	return s.editChannels(ctx, by, id, channel, func(u *User, _ Bundle) (refused, err error) {
		at := slices.Index(u.Channels, channel)
		if at < 0 {
			return nil, notFound("there is no such channel of this user")
		}
		u.Channels = slices.Delete(slices.Clone(u.Channels), at, at+1)
		return nil, nil
	})
}

// editChannels changes the channels of a user.
func (s *Users) editChannels(
	ctx context.Context, by Principal, id string, channel Channel,
	set func(u *User, current Bundle) (refused, err error),
) error {
	return s.edit(ctx, writeRequest{
		by: by, need: []string{action.UsersWrite}, doing: "change channels",
		names: &AccessNames{Users: []string{id}, Channels: []Channel{channel}},
		plan: func(_ context.Context, _ Store, current Bundle) (writePlan, error) {
			was := userRows.find(current, id)
			if was == nil {
				return writePlan{}, userRows.missing()
			}
			user := *was
			refused, err := set(&user, current)
			return writePlan{bundle: Bundle{Users: []User{user}}, refused: refused}, err
		},
	})
}

// Me returns the row of the caller, a user, with its channels, also to a narrowed caller. A caller
// without a row gets its id as ID and DisplayName. Errors: CodeForbidden (not a user).
func (s *Users) Me(ctx context.Context, by Principal) (User, error) {
	if by.Kind != KindUser {
		return User{}, forbidden("only a user has a row of its own")
	}
	if err := checkID("principal", by.ID); err != nil {
		return User{}, err
	}
	rows, _, err := s.named(ctx, &AccessNames{Users: []string{by.ID}})
	if err != nil {
		return User{}, err
	}
	if user := userRows.find(rows, by.ID); user != nil {
		return *user, nil
	}
	return User{ID: by.ID, DisplayName: by.ID, Channels: []Channel{}}, nil
}

// List lists groups by id, without their members. The caller needs iam:groups:read.
func (s *Groups) List(ctx context.Context, by Principal, q GroupQuery) iter.Seq2[Group, error] {
	return listRows(ctx, s.accessWriter, rowList[Group]{
		by: by, action: action.GroupsRead, query: q.RowQuery,
		page:  AccessPage{Kind: event.TargetGroup, User: q.Member},
		check: func(c *checker) { c.optionalID("user_id", q.Member) },
		rows:  func(b Bundle) []Group { return b.Groups }, key: Group.key,
	})
}

// Read returns a group without its members: Members is nil. The caller needs iam:groups:read.
// Errors: CodeNotFound.
func (s *Groups) Read(ctx context.Context, by Principal, id string) (Group, error) {
	group, err := readRow(ctx, s.accessWriter, &groupRows, by, id)
	group.Members = nil
	return group, err
}

// Create adds a group with its members. The caller needs iam:groups:write, and what the members
// newly may do. Event: [event.AccessWritten]. Errors: CodeExists.
func (s *Groups) Create(ctx context.Context, by Principal, group Group) (Group, error) {
	group.Members = append([]string{}, group.Members...)
	return createRow(ctx, s.accessWriter, &groupRows, by, group, nil)
}

// Patch changes the name of a group and returns the group without its members. The caller needs
// iam:groups:write. ifMatch, events and errors are those of [Users.Patch].
func (s *Groups) Patch(
	ctx context.Context, by Principal, id string, patch GroupPatch, ifMatch ...string,
) (Group, error) {
	var c checker
	c.lookup("group_id", id)
	c.displayName(patch.DisplayName)
	c.changes(patch != GroupPatch{})
	if err := c.err(); err != nil {
		return Group{}, err
	}
	return changeRow(ctx, s.accessWriter, &groupRows, by, id, ifMatch, func(
		was Group,
	) (Group, error) {
		return Group{ID: was.ID, DisplayName: *patch.DisplayName}, nil
	})
}

// Delete removes a group, its memberships and the attachments to it. The caller needs
// iam:groups:write, and what the members newly may do: they lose the denies of the group. Events:
// one for each row that goes. Errors: CodeNotFound, CodePrecondition, CodeLastAdministrator.
func (s *Groups) Delete(ctx context.Context, by Principal, id string, ifMatch ...string) error {
	names := AccessNames{
		MembersOf: []string{id}, AttachmentsTo: []GrantedTo{{GrantedToGroup, id}},
	}
	return deleteRow(ctx, s.accessWriter, &groupRows, by, id, ifMatch, names, nil)
}

// Members lists the user ids of a group's members. The caller needs iam:groups:read. Errors:
// CodeNotFound.
func (s *Groups) Members(
	ctx context.Context, by Principal, id string, q RowQuery,
) iter.Seq2[string, error] {
	return listRows(ctx, s.accessWriter, rowList[string]{
		by: by, action: action.GroupsRead, query: q, page: AccessPage{Kind: event.TargetMember, Group: id},
		check:  func(c *checker) { c.lookup("group_id", id) },
		parent: AccessNames{Groups: []string{id}}, missing: groupRows.missing,
		key: func(user string) string { return user },
		rows: func(b Bundle) (all []string) {
			for _, g := range b.Groups {
				all = append(all, g.Members...)
			}
			return all
		},
	})
}

// AddMembers makes users members of a group, at a cost that does not grow with the group. A user
// who is a member already stays one. The caller needs iam:groups:write, and what the users newly
// may do. Event: [event.AccessWritten] of the group. Errors: CodeInvalid, with pointers such as
// "/members/1"; CodeNotFound (the group).
func (s *Groups) AddMembers(
	ctx context.Context, by Principal, group string, users ...string,
) error {
	return s.changeMembers(ctx, by, group, users, func(g *Group) error {
		g.Members = users
		return nil
	})
}

// RemoveMembers removes members from a group, as [Groups.AddMembers] adds them. Errors: those of
// AddMembers; CodeNotFound with its pointer for a user who is no member.
func (s *Groups) RemoveMembers(
	ctx context.Context, by Principal, group string, users ...string,
) error {
	return s.changeMembers(ctx, by, group, users, func(g *Group) error {
		var c checker
		for i, user := range users {
			if !slices.Contains(g.Members, user) {
				at := "/members/" + strconv.Itoa(i)
				c.check(&Error{Code: CodeNotFound, Field: at, Message: "the user is no member of the group"})
			}
		}
		g.Members = []string{}
		return c.err()
	})
}

// changeMembers changes some members of a group. set gets the group, whose Members are those of
// users who are members now. It leaves those who are members afterwards.
func (s *Groups) changeMembers(
	ctx context.Context, by Principal, group string, users []string, set func(g *Group) error,
) error {
	var c checker
	c.lookup("group_id", group)
	names := AccessNames{Groups: []string{group}, Users: users}
	for i, user := range users {
		c.lookup("/members/"+strconv.Itoa(i), user)
		names.Members = append(names.Members, Membership{Group: group, User: user})
	}
	if err := c.err(); err != nil {
		return err
	}
	return s.edit(ctx, writeRequest{
		by: by, need: []string{action.GroupsWrite}, doing: "change members", at: "/groups/0",
		names: &names,
		plan: func(_ context.Context, _ Store, current Bundle) (writePlan, error) {
			was := groupRows.find(current, group)
			if was == nil {
				return writePlan{}, groupRows.missing()
			}
			changed := *was
			err := set(&changed)
			return writePlan{bundle: Bundle{Groups: []Group{changed}}}, err
		},
	})
}

// normalize checks a user and sets its defaults. The loops stop when the checker is full, because a
// bundle may be long. It does not change Channels: the copy shares them with the caller.
func (u *User) normalize(c *checker, at string) {
	c.namedID(at, u.ID, &u.DisplayName, u.absent)
	c.optionalText(at+"/email", u.Email, limits.NameLength)
	for i := 0; i < len(u.Channels) && !c.full; i++ {
		u.Channels[i].check(c, at+"/channels/"+strconv.Itoa(i))
	}
}

// check refuses a channel whose written form would be ambiguous, or whose sender cannot stand in a
// path. A sender may have colons and slashes: another system names it.
func (ch Channel) check(c *checker, at string) {
	c.id(at+"/provider", ch.Provider)
	if strings.Contains(ch.Provider, ":") {
		c.add(at+"/provider", "must hold no colon: a colon ends the provider of a sender")
	}
	if ch.SenderID == "." || ch.SenderID == ".." {
		c.add(at+"/sender_id", `must not be "." or ".."`)
	} else {
		c.foreign(at+"/sender_id", ch.SenderID)
	}
}

// answersLeft reports whether answers to a user's requests are kept.
func (s *accessWriter) answersLeft(ctx context.Context, tx Store, id string) (bool, error) {
	kept := rolesOf(tx).answers
	if kept == nil {
		return false, nil
	}
	caller := answers.Caller(s.caller(Identity{KindUser, id}))
	n, err := kept.CountAnswers(ctx, caller, s.now(), 1)
	return n > 0, err
}
