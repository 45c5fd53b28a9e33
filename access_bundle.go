package svc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
)

// normalize returns the bundle with defaults and compact documents. It checks all that it can check
// without the store. The compiler parses the policies. The caller has been authorized: parsing
// costs more than a form, and errors quote the bundle.
func (b Bundle) normalize(compiler *policy.Compiler) (Bundle, error) {
	return b.normalizeWith(&checker{compiler: compiler})
}

// normalizeWith is normalize for a checker that the caller has set up: Lint wants all errors, and
// the rows in spite of them. The lists of b stay as they are. A nil list gives a nil list: an
// absent list and an empty one name no row either way.
func (b Bundle) normalizeWith(c *checker) (Bundle, error) {
	out := Bundle{
		Users:  normalized(c, "/users", b.Users, (*User).normalize, User.key),
		Groups: normalized(c, "/groups", b.Groups, (*Group).normalize, Group.key),
		ServiceAccounts: normalized(c, "/service_accounts", b.ServiceAccounts,
			(*ServiceAccount).normalize, ServiceAccount.key),
		Policies: normalized(c, "/policies", b.Policies, (*Policy).normalize, Policy.key),
		Attachments: normalized(c, "/attachments", b.Attachments,
			(*Attachment).normalize, Attachment.key),
		BankPolicies: normalized(c, "/bank_policies", b.BankPolicies,
			(*BankPolicy).normalize, BankPolicy.key),
	}
	return out, c.err()
}

// normalized normalizes a copy of each row, and refuses two rows with one key. at is the pointer to
// the list. When the checker is full, it returns nil: the bundle is refused anyway.
func normalized[R any, K comparable](
	c *checker, at string, rows []R, normalize func(*R, *checker, string), key func(R) K,
) []R {
	out := slices.Clone(rows)
	seen := make(map[K]bool, len(rows))
	for i := range out {
		if c.full {
			return nil
		}
		pointer := at + "/" + strconv.Itoa(i)
		normalize(&out[i], c, pointer)
		if k := key(out[i]); seen[k] {
			c.add(pointer, "is in the bundle twice")
		} else {
			seen[k] = true
		}
	}
	return out
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

// normalize checks the form of an attachment. checkReferences finds out
// whether the policy and the principal exist.
func (a *Attachment) normalize(c *checker, at string) {
	c.id(at+"/policy_id", a.PolicyID)
	c.grantedTo(at+"/principal_type", at+"/principal_id", a.Principal)
	if a.Priority != int64(int32(a.Priority)) {
		c.add(at+"/priority", "must fit into 32 bits")
	}
}

// grantedTo refuses a principal that can have no attachment.
func (c *checker) grantedTo(typeField, idField string, to GrantedTo) {
	if to.Type != GrantedToUser && to.Type != GrantedToGroup {
		c.add(typeField, `must be "user" or "group"`)
	}
	c.id(idField, to.ID)
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

// namedID checks an id and a display name, which defaults to the id. A good id is a good name.
func (c *checker) namedID(at, id string, name *string) {
	c.id(at+"/id", id)
	if *name == "" {
		*name = id
	} else {
		c.text(at+"/display_name", *name, MaxNameLength)
	}
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
	var text bytes.Buffer
	if err := b.WriteJSON(&text); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// WriteJSON writes the form of [Bundle.JSON] row by row, in many small parts: give it a buffered
// writer. Errors: those of JSON, and those of to; a part of the form may be written already.
func (b Bundle) WriteJSON(to io.Writer) error {
	w := bundleWriter{to: to, between: "{"}
	writeList(&w, "users", b.Users, userForm)
	writeList(&w, "groups", b.Groups, func(g Group) groupJSON { return groupJSON(g) })
	writeList(&w, "service_accounts", b.ServiceAccounts, serviceAccountForm)
	writeList(&w, "policies", b.Policies, func(p Policy) policyJSON { return policyJSON(p) })
	writeList(&w, "attachments", b.Attachments, attachmentForm)
	writeList(&w, "bank_policies", b.BankPolicies,
		func(p BankPolicy) bankPolicyJSON { return bankPolicyJSON(p) })
	if w.between == "{" {
		w.text("{")
	}
	w.text("}")
	return w.err
}

// bundleWriter writes a bundle as JSON until the first error.
type bundleWriter struct {
	to      io.Writer
	between string // comes before the next list
	err     error
}

func (w *bundleWriter) text(text string) {
	if w.err == nil {
		_, w.err = io.WriteString(w.to, text)
	}
}

// writeList writes a list of rows under its name. An absent list is left out, an empty one is not.
func writeList[R, J any](w *bundleWriter, name string, rows []R, form func(R) J) {
	if rows == nil {
		return
	}
	w.text(w.between + `"` + name + `":[`)
	w.between = ","
	for i, row := range rows {
		if i > 0 {
			w.text(",")
		}
		data, err := strictjson.Marshal(form(row))
		if at, ok := errors.AsType[*strictjson.Error](err); ok {
			err = Invalid("/"+name+"/"+strconv.Itoa(i)+at.Pointer, at.Detail)
		}
		if w.err = cmp.Or(w.err, err); w.err != nil {
			return
		}
		w.text(string(data))
	}
	w.text("]")
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
