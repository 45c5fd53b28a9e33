package svc

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
)

// User holds the data of a user that decide access. The rows of access belong to the host, which
// writes them with [Access.Apply]. A value from a store shares no memory with it.
//
// The host owns its users. A user without a row has no stored rights but is not blocked; only an
// Inactive row blocks a user.
type User struct {
	// ID is the id by which the host's [Authenticator] knows the user: 1 to [MaxIDLength]
	// characters. It may contain ":" and "@", but no slash, backslash, control or format character.
	// Ids are compared byte by byte.
	ID string
	// DisplayName has at most [MaxNameLength] characters. "": Apply stores the id instead. Names
	// need not be unique, here and in the other rows.
	DisplayName string
	// Email is any text of at most [MaxNameLength] characters. The Service sends nothing to it, and
	// it need not be unique. Nil: none.
	Email *string
	// Inactive denies the user everything, and its service accounts as well. Its keys and sessions
	// are not accepted. Its senders count as unmapped.
	Inactive bool
	// Channels are the senders that are this user. Each belongs to one user alone. In a Bundle, nil
	// leaves them unchanged, and an empty list removes all.
	Channels []Channel
}

// Channel is a sender in a messaging system, such as "telegram" and "12345". It belongs to at most
// one user. A sender is written "provider:id" where it is one text.
type Channel struct {
	Provider string // an id without a colon, which would end it
	SenderID string // 1 to MaxIDLength printable characters; slashes are allowed, "." and ".." not
}

// String returns the written form, "provider:sender_id". It is the ID of the channel's [Target].
func (ch Channel) String() string { return ch.Provider + ":" + ch.SenderID }

// compare orders channels by provider and sender, byte by byte, as stores return them.
func (ch Channel) compare(other Channel) int {
	return cmp.Or(
		strings.Compare(ch.Provider, other.Provider), strings.Compare(ch.SenderID, other.SenderID),
	)
}

// Group is a set of users. Policies can be attached to it. Groups have no groups as members, and
// are no principals: a group cannot act.
type Group struct {
	ID          string // as a user's; a group may have the id of a user
	DisplayName string // "" means the id
	// Members are user ids. Each must be a user with a row. In a Bundle, nil leaves them unchanged,
	// and an empty list removes all.
	Members []string
}

// ServiceAccount acts with the rights of its owner, which a scoping policy can narrow. It has no
// attachments and no channels of its own.
type ServiceAccount struct {
	ID          string
	DisplayName string // "" means the id
	// OwnerUserID is a user with a row. Required. While the owner is Inactive or has no row, the
	// account is denied everything.
	OwnerUserID string
	// ScopingPolicyID is the policy that narrows the account: both the owner's policies and this
	// one must allow. While the policy is missing, the account is denied everything. "": not
	// narrowed.
	ScopingPolicyID string
	Inactive        bool // denies it everything; its keys are not accepted
}

// Policy is an access policy: a JSON document that allows or denies actions on banks. It has no
// effect before it is attached or narrows a service account or a key.
type Policy struct {
	ID          string
	DisplayName string // "" means the id
	// Document has the version "2026-03-24" and a list of statements. Apply refuses one that does
	// not parse, and keeps it without insignificant white space. If a stored document does not
	// parse, its holders are denied everything.
	Document json.RawMessage
}

// Attachment gives a policy to a user or a group. A policy is attached to one principal once: the
// policy and the principal are the key, and Priority is the value.
type Attachment struct {
	PolicyID  string
	Principal GrantedTo
	// Priority decides between values of llm_model, llm_provider and retain_strategy: the greater
	// wins, after the closeness of principal and bank. It changes nothing in what is allowed. It
	// may be negative.
	Priority int64
}

// GrantedTo is a user or a group that a policy is attached to. It has no service accounts: they
// have the policies of their owner.
type GrantedTo struct {
	// Type is [GrantedToUser] or [GrantedToGroup].
	Type string
	ID   string
}

// The types of [GrantedTo].
const (
	GrantedToUser  = "user"
	GrantedToGroup = "group"
)

// BankPolicy says how a bank treats unmapped senders, and which strategies it uses. A bank without
// one is closed to unmapped senders. If its document does not parse, the bank is closed to all
// principals.
type BankPolicy struct {
	BankID   string // 1 to MaxIDLength printable characters; slashes are allowed
	Document json.RawMessage
}

// Bundle is a set of access rows, as [Access.Apply] writes them. Within a list, each key appears
// once. The order of rows has no meaning. For [Diff] and [Lint], a Bundle is the whole state of
// access. The zero Bundle has no rows.
type Bundle struct {
	Users           []User
	Groups          []Group
	ServiceAccounts []ServiceAccount
	Policies        []Policy
	Attachments     []Attachment
	BankPolicies    []BankPolicy
}

// Empty reports whether b has no rows. A nil list and an empty one are the same here: both name no
// row.
func (b Bundle) Empty() bool { return b.size() == 0 }

// size returns the number of rows.
func (b Bundle) size() int {
	return len(b.Users) + len(b.Groups) + len(b.ServiceAccounts) +
		len(b.Policies) + len(b.Attachments) + len(b.BankPolicies)
}

// The most targets that one write reports one by one.
const (
	mostTargets = 1000 // above it, all of them are one TargetAccess
	mostMembers = 100  // of one group; above it, they are one TargetMember without a Holder
)

// AttachmentKey names an attachment. Its three texts together are unique. It is comparable, so it
// can be the key of a map.
type AttachmentKey struct {
	PolicyID  string
	Principal GrantedTo
}

// String returns "policy id/principal type/principal id". It is unique, because ids hold no slash.
// It is the ID of the attachment's [Target] in events and change feeds.
func (k AttachmentKey) String() string {
	return k.PolicyID + "/" + k.Principal.Type + "/" + k.Principal.ID
}

// Compare orders keys by policy, principal type and principal id, in byte order. The result is -1,
// 0 or 1, as in package cmp.
func (k AttachmentKey) Compare(other AttachmentKey) int {
	return cmp.Or(
		strings.Compare(k.PolicyID, other.PolicyID),
		strings.Compare(k.Principal.Type, other.Principal.Type),
		strings.Compare(k.Principal.ID, other.Principal.ID),
	)
}

// key is what makes a row unique in its list. Writing a row with a key that exists replaces the
// row.
func (u User) key() string { return u.ID }

func (g Group) key() string { return g.ID }

func (a ServiceAccount) key() string { return a.ID }

func (p Policy) key() string { return p.ID }

func (b BankPolicy) key() string { return b.BankID }

// key is the identity of a row, as with the five types above. It must be comparable. Priority is no
// part of it: a policy has one priority for each principal.
func (a Attachment) key() AttachmentKey {
	return AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
}

// normalize checks a user and sets its defaults. The loops stop when the checker is full, because a
// bundle may be long. It does not change Channels: the copy shares them with the caller.
func (u *User) normalize(c *checker, at string) {
	c.namedID(at, u.ID, &u.DisplayName)
	c.optionalText(at+"/email", u.Email, MaxNameLength)
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

// normalize checks the form of a group. Whether its members exist shows only in the store's
// transaction.
func (g *Group) normalize(c *checker, at string) {
	c.namedID(at, g.ID, &g.DisplayName)
	for i := 0; i < len(g.Members) && !c.full; i++ {
		c.id(at+"/members/"+strconv.Itoa(i), g.Members[i])
	}
}

// normalize checks the form of a service account. Each account needs an owner, whose rights are its
// own. An account and a user may have one id.
func (a *ServiceAccount) normalize(c *checker, at string) {
	c.namedID(at, a.ID, &a.DisplayName)
	c.id(at+"/owner_user_id", a.OwnerUserID)
	if a.ScopingPolicyID != "" {
		c.id(at+"/scoping_policy_id", a.ScopingPolicyID)
	}
}

// normalize checks a policy, whose document the compiler parses as for a decision: what Apply
// accepts, decisions can read.
func (p *Policy) normalize(c *checker, at string) {
	c.namedID(at, p.ID, &p.DisplayName)
	p.Document = c.document(at+"/document", p.Document, c.compiler.Check)
}

// normalize checks the form of an attachment. Any Priority is good. checkReferences finds out
// whether the policy and the principal exist.
func (a *Attachment) normalize(c *checker, at string) {
	c.id(at+"/policy_id", a.PolicyID)
	if a.Principal.Type != GrantedToUser && a.Principal.Type != GrantedToGroup {
		c.add(at+"/principal_type", `must be "user" or "group"`)
	}
	c.id(at+"/principal_id", a.Principal.ID)
}

// normalize checks a bank policy. A bank belongs to the host: it needs no row, and any printable
// name is good.
func (b *BankPolicy) normalize(c *checker, at string) {
	c.foreign(at+"/bank_id", b.BankID)
	b.Document = c.document(at+"/document", b.Document, func(raw []byte) error {
		_, err := policy.ParseBankDocument(raw)
		return err
	})
}

// namedID checks an id and a display name, which defaults to the id. The default comes first, so
// that the stored name is the one that is checked. An id is shorter than a name may be, so the
// default always passes.
func (c *checker) namedID(at, id string, name *string) {
	c.id(at+"/id", id)
	*name = cmp.Or(*name, id)
	c.text(at+"/display_name", *name, MaxNameLength)
}

// document returns a policy document without white space, checked by parse. What parse refuses has
// its place in the document: the pointer continues at. The result shares no memory with raw. With
// an error it is of no use.
func (c *checker) document(
	at string, raw json.RawMessage, parse func([]byte) error,
) json.RawMessage {
	// A missing document is no empty one: without statements, a policy would silently give nothing.
	if len(raw) == 0 {
		c.add(at, "is required")
		return nil
	}
	compact, err := strictjson.Compact(raw, MaxNesting)
	if err == nil {
		err = parse(compact)
	}
	// The parser's text is for the caller: it says what is wrong and where, and has no secret.
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		c.add(at+wrong.Pointer, wrong.Detail)
	} else if err != nil {
		c.add(at, err.Error())
	}
	return compact
}

// The JSON form of a Bundle. Absent and empty differ for lists, so these types use omitzero: a list
// that is empty and not nil stays in the form.
type (
	bundleJSON struct {
		Users           []userJSON           `json:"users,omitzero"`
		Groups          []groupJSON          `json:"groups,omitzero"`
		ServiceAccounts []serviceAccountJSON `json:"service_accounts,omitzero"`
		Policies        []policyJSON         `json:"policies,omitzero"`
		Attachments     []attachmentJSON     `json:"attachments,omitzero"`
		BankPolicies    []bankPolicyJSON     `json:"bank_policies,omitzero"`
	}
	userJSON struct {
		ID          string        `json:"id"`
		DisplayName string        `json:"display_name,omitempty"`
		Email       *string       `json:"email,omitempty"`
		IsActive    *bool         `json:"is_active,omitempty"`
		Channels    []channelJSON `json:"channels,omitzero"`
	}
	channelJSON struct {
		Provider string `json:"provider"`
		SenderID string `json:"sender_id"`
	}
	groupJSON struct {
		ID          string   `json:"id"`
		DisplayName string   `json:"display_name,omitempty"`
		Members     []string `json:"members,omitzero"`
	}
	serviceAccountJSON struct {
		ID              string  `json:"id"`
		DisplayName     string  `json:"display_name,omitempty"`
		OwnerUserID     string  `json:"owner_user_id"`
		ScopingPolicyID *string `json:"scoping_policy_id,omitempty"`
		IsActive        *bool   `json:"is_active,omitempty"`
	}
	policyJSON struct {
		ID          string          `json:"id"`
		DisplayName string          `json:"display_name,omitempty"`
		Document    json.RawMessage `json:"document"`
	}
	attachmentJSON struct {
		PolicyID      string `json:"policy_id"`
		PrincipalType string `json:"principal_type"`
		PrincipalID   string `json:"principal_id"`
		Priority      int64  `json:"priority"`
	}
	bankPolicyJSON struct {
		BankID   string          `json:"bank_id"`
		Document json.RawMessage `json:"document"`
	}
)

// ParseBundle reads the JSON form of a [Bundle], strictly (I-JSON, RFC 7493). Unknown, duplicate
// and case-variant keys and wrong types are errors (CodeInvalid) whose Field is a JSON pointer (RFC
// 6901). It reports the first error alone. Every list may be absent. An absent is_active means
// active; an absent display_name stays "", which Apply replaces by the id. ParseBundle does not
// check what the rows mean: [Access.Apply] does. The result shares no memory with data.
func ParseBundle(data []byte) (Bundle, error) { return ParseBundleWithin(data, math.MaxInt) }

// ParseBundleWithin is ParseBundle with a limit on rows: it stops at the first row over the limit
// (CodeInvalid). Each channel and each member counts as one. It takes no more memory than a bundle
// of that size needs. Use it for bundles of callers that may have no rights.
func ParseBundleWithin(data []byte, rows int) (Bundle, error) {
	var in bundleJSON
	if err := strictjson.UnmarshalWithin(data, MaxNesting, rows, &in); err != nil {
		if at, ok := errors.AsType[*strictjson.Error](err); ok {
			return Bundle{}, Invalid(at.Pointer, at.Detail)
		}
		return Bundle{}, Invalid("", err.Error())
	}
	return Bundle{
		Users:           convert(in.Users, userJSON.row),
		Groups:          convert(in.Groups, func(g groupJSON) Group { return Group(g) }),
		ServiceAccounts: convert(in.ServiceAccounts, serviceAccountJSON.row),
		Policies:        convert(in.Policies, func(p policyJSON) Policy { return Policy(p) }),
		Attachments:     convert(in.Attachments, attachmentJSON.row),
		BankPolicies: convert(
			in.BankPolicies, func(b bankPolicyJSON) BankPolicy { return BankPolicy(b) },
		),
	}, nil
}

// convert maps a list; nil stays nil, because an absent list is not an empty one: Apply leaves the
// channels and members of an absent one.
func convert[J, R any](list []J, row func(J) R) []R {
	if list == nil {
		return nil
	}
	rows := make([]R, len(list))
	for i, j := range list {
		rows[i] = row(j)
	}
	return rows
}

// JSON returns the form of b that [ParseBundle] reads as b, apart from white space in documents. It
// leaves out what is unset or has its default. Errors: CodeInvalid, as ParseBundle's, when a text
// is not valid UTF-8 or a document is not JSON.
func (b Bundle) JSON() ([]byte, error) {
	data, err := strictjson.Marshal(bundleJSON{
		Users:           convert(b.Users, userForm),
		Groups:          convert(b.Groups, func(g Group) groupJSON { return groupJSON(g) }),
		ServiceAccounts: convert(b.ServiceAccounts, serviceAccountForm),
		Policies:        convert(b.Policies, func(p Policy) policyJSON { return policyJSON(p) }),
		Attachments:     convert(b.Attachments, attachmentForm),
		BankPolicies: convert(
			b.BankPolicies, func(p BankPolicy) bankPolicyJSON { return bankPolicyJSON(p) },
		),
	})
	if at, ok := errors.AsType[*strictjson.Error](err); ok {
		return nil, Invalid(at.Pointer, at.Detail)
	}
	return data, err
}

func (u userJSON) row() User {
	return User{
		ID: u.ID, DisplayName: u.DisplayName, Email: u.Email, Inactive: inactive(u.IsActive),
		Channels: convert(u.Channels, func(c channelJSON) Channel { return Channel(c) }),
	}
}

func userForm(u User) userJSON {
	return userJSON{
		ID: u.ID, DisplayName: u.DisplayName, Email: u.Email, IsActive: active(u.Inactive),
		Channels: convert(u.Channels, func(c Channel) channelJSON { return channelJSON(c) }),
	}
}

func (a serviceAccountJSON) row() ServiceAccount {
	row := ServiceAccount{
		ID: a.ID, DisplayName: a.DisplayName,
		OwnerUserID: a.OwnerUserID, Inactive: inactive(a.IsActive),
	}
	if a.ScopingPolicyID != nil {
		row.ScopingPolicyID = *a.ScopingPolicyID
	}
	return row
}

func serviceAccountForm(a ServiceAccount) serviceAccountJSON {
	form := serviceAccountJSON{
		ID: a.ID, DisplayName: a.DisplayName,
		OwnerUserID: a.OwnerUserID, IsActive: active(a.Inactive),
	}
	if a.ScopingPolicyID != "" {
		form.ScopingPolicyID = &a.ScopingPolicyID
	}
	return form
}

func (a attachmentJSON) row() Attachment {
	return Attachment{
		PolicyID: a.PolicyID, Priority: a.Priority,
		Principal: GrantedTo{Type: a.PrincipalType, ID: a.PrincipalID},
	}
}

func attachmentForm(a Attachment) attachmentJSON {
	return attachmentJSON{
		PolicyID: a.PolicyID, Priority: a.Priority,
		PrincipalType: a.Principal.Type, PrincipalID: a.Principal.ID,
	}
}

// inactive reads is_active, which an active row may leave out.
func inactive(isActive *bool) bool { return isActive != nil && !*isActive }

// active returns the JSON value of is_active: absent for an active row, so that a short form stays
// short.
func active(inactive bool) *bool {
	if !inactive {
		return nil
	}
	return new(bool)
}

// sorted returns a sorted copy without duplicates, never nil. A repeated member is no error.
func sorted[T comparable](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// missing returns the elements of list that are not in other. Both are sorted.
func missing[T any](list, other []T, compare func(a, b T) int) (out []T) {
	for _, x := range list {
		for len(other) > 0 && compare(other[0], x) < 0 {
			other = other[1:]
		}
		if len(other) == 0 || compare(other[0], x) != 0 {
			out = append(out, x)
		}
	}
	return out
}
