package svc

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/bundlejson"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/limits"
)

// normalize returns the bundle with defaults and compact documents. It checks all that it can check
// without the store. The compiler of c parses the policies. The caller has been authorized: parsing
// costs more than a form, and errors quote the bundle. The lists of b stay as they are. A nil list
// gives a nil list: an absent list and an empty one name no row either way.
func (b Bundle) normalize(c *checker) (Bundle, error) {
	var out Bundle
	for _, k := range kinds {
		k.normalize(c, &b, &out)
	}
	return out, c.err()
}

// normalize checks a policy, whose document the compiler parses as for a decision: what Apply
// accepts, decisions can read.
func (p *Policy) normalize(c *checker, at string) {
	c.namedID(at, p.ID, &p.DisplayName, p.absent)
	if p.Document != nil || !p.absent.has(noDocument) {
		p.Document = c.document(at+"/document", p.Document, c.compiler.Check)
	}
}

// grantedTo refuses a principal that can have no attachment.
func (c *checker) grantedTo(typeField, idField string, to GrantedTo) {
	if to.Type != GrantedToUser && to.Type != GrantedToGroup {
		c.add(typeField, `must be "user" or "group"`)
	}
	c.id(idField, to.ID)
}

// namedID checks an id and a display name, which defaults to the id unless it is absent. A good id
// is a good name.
func (c *checker) namedID(at, id string, name *string, absent absence) {
	c.id(at+"/id", id)
	if *name != "" {
		c.optionalText(at+"/display_name", name, limits.NameLength)
	} else if !absent.has(noName) {
		*name = id
	}
}

// displayName checks the name in a patch. Nil: the patch leaves it.
func (c *checker) displayName(name *string) {
	if name != nil && *name == "" {
		c.add("/display_name", "must not be empty")
	}
	c.optionalText("/display_name", name, limits.NameLength)
}

// changes refuses a patch that changes nothing.
func (c *checker) changes(does bool) {
	if !does {
		c.add("", "must change something: the request has no field")
	}
}

type value[T any] = strictjson.Optional[T]

// The keys that a row may lack, except those of lists, which are nil then. A field that is not zero
// is not absent: the host has set it since.
const (
	noName absence = 1 << iota
	noEmail
	noState // is_active
	noOwner
	noScoping
	noPriority
	noDocument
	noAnswer
)

func (a absence) has(key absence) bool { return a&key != 0 }

// ParseBundle reads the JSON form of a Bundle, strictly (I-JSON, RFC 7493). Unknown, duplicate and
// case-variant keys and wrong types are CodeInvalid; it reports the first error only, with a JSON
// pointer. Every list may be absent. An absent key leaves its field zero, and the row knows it:
// where the row exists, the stored value stays. For a new row, display_name is the id, is_active
// true and priority 0; it needs a document or an owner. null clears email and scoping_policy_id,
// and is an error elsewhere in a row. [Access.Apply] checks what the rows mean. The result shares
// no memory with data.
func ParseBundle(data []byte) (Bundle, error) { return ParseBundleWithin(data, math.MaxInt) }

// ParseBundleWithin is [ParseBundle] for callers that may have no rights: it stops at the first row
// over the limit (CodeInvalid), and takes at most the memory of a bundle of that size. Each channel
// and each member counts as a row.
func ParseBundleWithin(data []byte, rows int) (Bundle, error) {
	var in bundlejson.Bundle
	if err := strictjson.UnmarshalWithin(data, limits.Nesting, rows, &in); err != nil {
		var c checker
		c.refused("", err)
		return Bundle{}, c.err()
	}
	var r rowReader
	b := Bundle{
		Users:           readList(&r, "users", in.Users, userOf),
		Groups:          readList(&r, "groups", in.Groups, groupOf),
		ServiceAccounts: readList(&r, "service_accounts", in.ServiceAccounts, accountOf),
		Policies:        readList(&r, "policies", in.Policies, policyOf),
		Attachments:     readList(&r, "attachments", in.Attachments, attachmentOf),
		BankPolicies:    readList(&r, "bank_policies", in.BankPolicies, bankPolicyOf),
		Tests:           readList(&r, "tests", in.Tests, testOf),
	}
	if r.null != "" {
		return Bundle{}, Invalid(r.null, "must not be null")
	}
	return b, nil
}

// rowReader reads the keys of rows.
type rowReader struct {
	at     string  // the pointer to the row
	absent absence // of the row so far
	null   string  // the pointer to the first key that must not be null; "": none
}

// readList reads the rows of a list until the first error.
func readList[J, R any](r *rowReader, list string, in []J, row func(J, *rowReader) R) []R {
	i := -1
	return lists.Map(in, func(j J) (out R) {
		if i++; r.null == "" {
			r.at, r.absent = "/"+list+"/"+strconv.Itoa(i), 0
			out = row(j, r)
		}
		return out
	})
}

// read returns the value of a key that must not be null; zero: it is absent.
func read[T any](r *rowReader, key string, v value[T], absent absence) T {
	if v.Null && r.null == "" {
		r.null = r.at + "/" + key
	}
	if !v.Set {
		r.absent |= absent
	}
	return v.Value
}

// readOrNull is read for a key that null clears.
func readOrNull(r *rowReader, v value[string], absent absence) *string {
	if v.Null {
		return nil
	}
	if read(r, "", v, absent); !v.Set {
		return nil
	}
	return &v.Value
}

// JSON returns the form of b that [ParseBundle] reads as b, apart from white space in documents. It
// names every key, apart from nil lists and what ParseBundle has found absent. Errors: CodeInvalid,
// as ParseBundle's, when a text is not valid UTF-8 or a document is not JSON.
func (b Bundle) JSON() ([]byte, error) {
	var text bytes.Buffer
	if err := b.WriteJSON(&text); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// WriteJSON writes the form of [Bundle.JSON] in many small parts: give it a buffered writer.
// Errors: those of JSON, and those of to; a part may be written already.
func (b Bundle) WriteJSON(to io.Writer) error {
	w := bundleWriter{to: to, between: "{"}
	for _, k := range kinds {
		list, _ := k.label()
		w.list(list, k.forms(&b))
	}
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

// list writes a list of rows under its name. An absent list is left out, an empty one is not.
func (w *bundleWriter) list(name string, forms iter.Seq[any]) {
	if forms == nil {
		return
	}
	w.text(w.between + `"` + name + `":[`)
	w.between = ","
	i := 0
	for form := range forms {
		if i > 0 {
			w.text(",")
		}
		data, err := strictjson.Marshal(form)
		if at, ok := errors.AsType[*strictjson.Error](err); ok {
			err = Invalid("/"+name+"/"+strconv.Itoa(i)+at.Pointer, at.Detail)
		}
		if w.err = cmp.Or(w.err, err); w.err != nil {
			return
		}
		w.text(string(data))
		i++
	}
	w.text("]")
}

func userOf(u bundlejson.User, r *rowReader) User {
	row := User{
		ID: u.ID, DisplayName: read(r, "display_name", u.DisplayName, noName),
		Inactive: r.inactive(u.IsActive), Email: readOrNull(r, u.Email, noEmail),
		Channels: lists.Map(read(r, "channels", u.Channels, 0),
			func(c bundlejson.Channel) Channel { return Channel(c) }),
	}
	row.absent = r.absent
	return row
}

func (u User) form() any {
	return bundlejson.User{
		ID: u.ID, DisplayName: named(u.DisplayName, u.absent, noName),
		IsActive: active(u.Inactive, u.absent), Email: orNull(u.Email, u.absent, noEmail),
		Channels: listed(lists.Map(u.Channels,
			func(c Channel) bundlejson.Channel { return bundlejson.Channel(c) })),
	}
}

func groupOf(g bundlejson.Group, r *rowReader) Group {
	row := Group{
		ID: g.ID, DisplayName: read(r, "display_name", g.DisplayName, noName),
		Members: read(r, "members", g.Members, 0),
	}
	row.absent = r.absent
	return row
}

func (g Group) form() any {
	return bundlejson.Group{
		ID: g.ID, DisplayName: named(g.DisplayName, g.absent, noName), Members: listed(g.Members),
	}
}

func accountOf(a bundlejson.ServiceAccount, r *rowReader) ServiceAccount {
	row := ServiceAccount{
		ID: a.ID, DisplayName: read(r, "display_name", a.DisplayName, noName),
		OwnerUserID: read(r, "owner_user_id", a.OwnerUserID, noOwner),
		Inactive:    r.inactive(a.IsActive),
	}
	if scoping := readOrNull(r, a.ScopingPolicyID, noScoping); scoping != nil {
		row.ScopingPolicyID = *scoping
	}
	row.absent = r.absent
	return row
}

func (a ServiceAccount) form() any {
	scoping := &a.ScopingPolicyID
	if *scoping == "" {
		scoping = nil
	}
	return bundlejson.ServiceAccount{
		ID: a.ID, DisplayName: named(a.DisplayName, a.absent, noName),
		OwnerUserID:     named(a.OwnerUserID, a.absent, noOwner),
		IsActive:        active(a.Inactive, a.absent),
		ScopingPolicyID: orNull(scoping, a.absent, noScoping),
	}
}

func policyOf(p bundlejson.Policy, r *rowReader) Policy {
	row := Policy{
		ID: p.ID, DisplayName: read(r, "display_name", p.DisplayName, noName),
		Document: r.document(p.Document),
	}
	row.absent = r.absent
	return row
}

func (p Policy) form() any {
	return bundlejson.Policy{
		ID: p.ID, DisplayName: named(p.DisplayName, p.absent, noName),
		Document: documentForm(p.Document, p.absent),
	}
}

func bankPolicyOf(b bundlejson.BankPolicy, r *rowReader) BankPolicy {
	row := BankPolicy{BankID: b.BankID, Document: r.document(b.Document)}
	row.absent = r.absent
	return row
}

func (b BankPolicy) form() any {
	return bundlejson.BankPolicy{BankID: b.BankID, Document: documentForm(b.Document, b.absent)}
}

func testOf(t bundlejson.Test, r *rowReader) AccessTest {
	row := AccessTest{
		UserID: t.UserID, ServiceAccountID: t.ServiceAccountID, Sender: t.Sender,
		Action: t.Action, Bank: t.Bank, Channel: t.Channel, Topic: t.Topic,
		Allowed: read(r, "allowed", t.Allowed, noAnswer),
	}
	row.absent = r.absent
	return row
}

func (t AccessTest) form() any {
	return bundlejson.Test{
		UserID: t.UserID, ServiceAccountID: t.ServiceAccountID, Sender: t.Sender,
		Action: t.Action, Bank: t.Bank, Channel: t.Channel, Topic: t.Topic,
		Allowed: value[bool]{Set: true, Value: t.Allowed},
	}
}

// document returns a document; nil: null, which is refused later, or absent.
func (r *rowReader) document(v value[json.RawMessage]) json.RawMessage {
	v.Null = false
	return read(r, "", v, noDocument)
}

func documentForm(document json.RawMessage, absent absence) value[json.RawMessage] {
	return value[json.RawMessage]{Set: document != nil || !absent.has(noDocument), Value: document}
}

func attachmentOf(a bundlejson.Attachment, r *rowReader) Attachment {
	priority := read(r, "priority", a.Priority, noPriority)
	return Attachment{
		PolicyID: a.PolicyID, Priority: priority, absent: r.absent,
		Principal: GrantedTo{Type: a.PrincipalType, ID: a.PrincipalID},
	}
}

func (a Attachment) form() any {
	return bundlejson.Attachment{
		PolicyID: a.PolicyID, Priority: named(a.Priority, a.absent, noPriority),
		PrincipalType: a.Principal.Type, PrincipalID: a.Principal.ID,
	}
}

func (r *rowReader) inactive(isActive value[bool]) bool {
	return !read(r, "is_active", isActive, noState) && isActive.Set
}

func active(inactive bool, absent absence) value[bool] {
	state := named(inactive, absent, noState)
	state.Value = state.Set && !inactive
	return state
}

// named returns the JSON value of a field; absent: the field is zero, and its key is absent.
func named[T comparable](field T, absent, key absence) value[T] {
	if field == *new(T) && absent.has(key) {
		return value[T]{}
	}
	return value[T]{Set: true, Value: field}
}

// orNull is named for a field whose nil is null.
func orNull(field *string, absent, key absence) value[string] {
	if field != nil {
		return value[string]{Set: true, Value: *field}
	}
	return value[string]{Set: !absent.has(key), Null: !absent.has(key)}
}

// listed returns the JSON value of a list; absent: the list is nil.
func listed[T any](list []T) value[[]T] { return value[[]T]{Set: list != nil, Value: list} }

// names returns the rows that a bundle writes or refers to: all that ChangeAccess has to read. A
// name that is missing here would look like a row that does not exist. The lists that can repeat a
// name are sorted, without duplicates.
func (b Bundle) names() AccessNames {
	n := b.keys()
	n.Groups = nil
	for _, u := range b.Users {
		n.Channels = append(n.Channels, u.Channels...)
	}
	for _, g := range b.Groups {
		if g.Members == nil {
			n.Groups = append(n.Groups, g.ID)
		} else {
			n.MembersOf = append(n.MembersOf, g.ID)
			n.Users = append(n.Users, g.Members...)
		}
	}
	for _, a := range b.ServiceAccounts {
		if a.OwnerUserID != "" {
			n.Users = append(n.Users, a.OwnerUserID)
		}
		if a.ScopingPolicyID != "" {
			n.Policies = append(n.Policies, a.ScopingPolicyID)
		}
	}
	for _, a := range b.Attachments {
		n.Policies = append(n.Policies, a.PolicyID)
		if a.Principal.Type == GrantedToUser {
			n.Users = append(n.Users, a.Principal.ID)
		} else {
			n.Groups = append(n.Groups, a.Principal.ID)
		}
	}
	n.Users = lists.Sorted(n.Users, strings.Compare)
	n.Groups = lists.Sorted(n.Groups, strings.Compare)
	n.Policies = lists.Sorted(n.Policies, strings.Compare)
	return n
}

// Revision identifies the rows of an [Access.Export], in 32 hexadecimal digits.
func (b Bundle) Revision() string {
	b.Policies = slices.DeleteFunc(slices.Clone(b.Policies), Policy.Builtin)
	sum := sha256.New()
	_ = b.WriteJSON(sum) // it takes everything
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// BundleWrite says how [Access.Write] writes a bundle. The zero BundleWrite is as [Access.Apply].
type BundleWrite struct {
	// Prune removes the rows that the bundle does not name, as their Delete would, but for built-in
	// policies. Nil Members of a group and nil Channels of a user stay.
	Prune bool
	// Detach removes these attachments as well. One that does not exist is CodeNotFound, one that
	// the bundle has is CodeInvalid.
	Detach []AttachmentKey
	DryRun bool // makes all checks and writes nothing; see [Access.Preview]
	// Revision is that of the rows which the caller has seen: of an export, or an [AccessDiff].
	// When any have changed since, Write is CodePrecondition. Of several, separated by spaces, one
	// must hold. "": any rows.
	Revision string
}

// names returns the stored rows that a write needs, but for Prune.
func (how BundleWrite) names(bundle Bundle) AccessNames {
	n := bundle.names()
	all := slices.Concat(n.Attachments, how.Detach)
	n.Attachments = slices.DeleteFunc(all, AttachmentKey.impossible)
	return n
}

// removal returns the rows that a write of a bundle over current removes.
func (how BundleWrite) removal(current, bundle Bundle) (remove AccessNames, err error) {
	if how.Prune {
		remove = current.without(bundle).keys()
	}
	if len(how.Detach) == 0 {
		return remove, nil
	}
	stored := lists.Index(current.Attachments, Attachment.key)
	written := lists.Index(bundle.Attachments, Attachment.key)
	for _, key := range how.Detach {
		switch {
		case written[key] != nil:
			return remove, Invalid("detach", "names an attachment that the bundle has")
		case stored[key] == nil:
			return remove, notFound("there is no such attachment")
		case !slices.Contains(remove.Attachments, key):
			remove.Attachments = append(remove.Attachments, key)
		}
	}
	return remove, nil
}

// without returns the rows of b that other does not name, without built-in policies.
func (b Bundle) without(other Bundle) Bundle {
	for _, k := range kinds {
		k.drop(&b, &other)
	}
	b.Policies = slices.DeleteFunc(b.Policies, Policy.Builtin)
	return b
}
