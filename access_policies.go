package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/limits"
)

// ServiceAccounts manages service accounts: those of all users (Service.ServiceAccounts), for which
// the caller needs iam:service_accounts:manage, or the caller's own (Service.MyServiceAccounts),
// for which it needs iam:service_accounts:read or :write. A service account that calls for its own
// half acts for its owner, with its own rights. The rules for callers and lists are those of
// [Users].
type ServiceAccounts struct {
	*accessWriter
	own bool
}

// ServiceAccountQuery asks for a part of the list of service accounts.
type ServiceAccountQuery struct {
	RowQuery
	Owner string // narrows the list to those of a user; "": all. For the own half, it is ""
}

// ServiceAccountPatch is a partial update: a nil field leaves the row's field unchanged. At least
// one is set. Of an own service account, only DisplayName can be set.
type ServiceAccountPatch struct {
	DisplayName     *string    // 1 to [limits.NameLength] characters
	ScopingPolicyID *TextPatch // a nil Value: not narrowed any longer
	Inactive        *bool
}

// PolicyPatch is a partial update: a nil field leaves the row's field unchanged. At least one is
// set.
type PolicyPatch struct {
	DisplayName *string // 1 to [limits.NameLength] characters
	Document    json.RawMessage
}

// AttachmentQuery asks for a part of the list of attachments, by both filters.
type AttachmentQuery struct {
	RowQuery
	PolicyID  string    // "": of all policies
	Principal GrantedTo // zero: to all principals
}

// half returns the rows that the caller of a method may see or change. user is their owner; "": of
// all users. wrong is what is wrong with the request: it comes before the rights.
func (s *ServiceAccounts) half(
	ctx context.Context, by Principal, write bool, wrong error,
) (k *rowKind[ServiceAccount], user string, err error) {
	if !s.own || wrong != nil {
		return &accountRows, "", wrong
	}
	own := accountRows
	own.read, own.write = action.AccountsRead, action.AccountsWrite
	action := own.read
	if write {
		action = own.write
	}
	at, err := s.authorizer.own(ctx, by, action)
	own.sees = func(a ServiceAccount) bool { return a.OwnerUserID == at.owner }
	return &own, at.owner, err
}

// List lists service accounts by id.
func (s *ServiceAccounts) List(
	ctx context.Context, by Principal, q ServiceAccountQuery,
) iter.Seq2[ServiceAccount, error] {
	k, owner, err := s.half(ctx, by, false, nil)
	if err != nil {
		return func(yield func(ServiceAccount, error) bool) { yield(ServiceAccount{}, err) }
	}
	return listRows(ctx, s.accessWriter, rowList[ServiceAccount]{
		by: by, action: k.read, query: q.RowQuery,
		page:  AccessPage{Kind: event.TargetServiceAccount, User: cmp.Or(owner, q.Owner)},
		check: func(c *checker) { c.optionalID("owner_user_id", q.Owner) },
		rows:  func(b Bundle) []ServiceAccount { return b.ServiceAccounts },
		key:   ServiceAccount.key,
	})
}

// Read returns a service account. Errors: CodeNotFound.
func (s *ServiceAccounts) Read(
	ctx context.Context, by Principal, id string,
) (ServiceAccount, error) {
	k, _, err := s.half(ctx, by, false, accountRows.checkID(id))
	if err != nil {
		return ServiceAccount{}, err
	}
	return readRow(ctx, s.accessWriter, k, by, id)
}

// Create adds a service account. In the own half, OwnerUserID is the caller's owner and must be "".
// The caller needs all that the service account may do. Event: [event.AccessWritten]. Errors:
// CodeForbidden, in the own half also when the owner has no row; CodeExists; CodeLimit (the owner
// has [limits.ServiceAccounts]).
func (s *ServiceAccounts) Create(
	ctx context.Context, by Principal, account ServiceAccount,
) (ServiceAccount, error) {
	k, owner, err := s.half(ctx, by, true, account.check(s.own))
	if err != nil {
		return ServiceAccount{}, err
	}
	if s.own {
		account.OwnerUserID = owner
		// Existing policies are no secret to callers who may manage all service accounts.
		if err := s.checkScoping(ctx, by, by.Identity(), account.ScopingPolicyID); err != nil {
			return ServiceAccount{}, err
		}
	}
	return createRow(ctx, s.accessWriter, k, by, account, func(
		current Bundle,
	) (refused, err error) {
		if s.own && userRows.find(current, owner) == nil {
			return nil, forbidden("you have no row as a user, so you own no service accounts")
		}
		owned := 0
		for _, a := range current.ServiceAccounts {
			if a.OwnerUserID == account.OwnerUserID {
				owned++
			}
		}
		if owned >= limits.ServiceAccounts {
			refused = &Error{Code: CodeLimit, Message: fmt.Sprintf("the owner has %d service"+
				" accounts, and more are not allowed: delete one first", owned)}
		}
		return refused, nil
	})
}

// Patch changes some fields of a service account and returns it. The caller needs every
// control-plane right of the account. ifMatch, events and errors are those of [Users.Patch].
func (s *ServiceAccounts) Patch(
	ctx context.Context, by Principal, id string, patch ServiceAccountPatch, ifMatch ...string,
) (ServiceAccount, error) {
	k, _, err := s.half(ctx, by, true, patch.check(id, s.own))
	if err != nil {
		return ServiceAccount{}, err
	}
	return changeRow(ctx, s.accessWriter, k, by, id, ifMatch,
		func(was ServiceAccount) (ServiceAccount, error) { return patch.apply(was), nil })
}

func (p ServiceAccountPatch) check(id string, own bool) error {
	var c checker
	c.lookup("sa_id", id)
	c.displayName(p.DisplayName)
	if p.ScopingPolicyID != nil && p.ScopingPolicyID.Value != nil {
		c.id("/scoping_policy_id", *p.ScopingPolicyID.Value)
	}
	if own && p.ScopingPolicyID != nil {
		c.add("/scoping_policy_id", "cannot be changed by the owner")
	}
	if own && p.Inactive != nil {
		c.add("/is_active", "cannot be changed by the owner")
	}
	c.changes(p != ServiceAccountPatch{})
	return c.err()
}

func (p ServiceAccountPatch) apply(a ServiceAccount) ServiceAccount {
	if p.DisplayName != nil {
		a.DisplayName = *p.DisplayName
	}
	if p.ScopingPolicyID != nil {
		if a.ScopingPolicyID = ""; p.ScopingPolicyID.Value != nil {
			a.ScopingPolicyID = *p.ScopingPolicyID.Value
		}
	}
	if p.Inactive != nil {
		a.Inactive = *p.Inactive
	}
	return a
}

// Delete removes a service account and revokes its keys. The caller needs every control-plane right
// of the account. With ifMatch, the account must have one of these ETags. Events:
// [event.AccessRemoved], and [event.APIKeyRevoked] for each key. Errors: CodeNotFound,
// CodePrecondition.
func (s *ServiceAccounts) Delete(
	ctx context.Context, by Principal, id string, ifMatch ...string,
) error {
	k, _, err := s.half(ctx, by, true, accountRows.checkID(id))
	if err != nil {
		return err
	}
	return deleteRow(ctx, s.accessWriter, k, by, id, ifMatch, AccessNames{}, nil)
}

// List lists policies by id, with the built-in ones. The caller needs iam:policies:read.
func (s *Policies) List(ctx context.Context, by Principal, q RowQuery) iter.Seq2[Policy, error] {
	return listRows(ctx, s.accessWriter, rowList[Policy]{
		by: by, action: action.PoliciesRead, query: q, page: AccessPage{Kind: event.TargetPolicy},
		rows: func(b Bundle) []Policy { return b.Policies }, key: Policy.key, virtual: newBuiltins(),
	})
}

// Read returns a policy. The caller needs iam:policies:read. Errors: CodeNotFound.
func (s *Policies) Read(ctx context.Context, by Principal, id string) (Policy, error) {
	policy, err := readRow(ctx, s.accessWriter, &policyRows, by, id)
	policy.Document = slices.Clone(policy.Document) // a built-in one is shared
	return policy, err
}

// Create adds a policy. It gives nothing to anybody before it is attached or narrows something. The
// caller needs iam:policies:write. Event: [event.AccessWritten]. Errors: CodeExists (also for the
// id of a built-in policy).
func (s *Policies) Create(ctx context.Context, by Principal, policy Policy) (Policy, error) {
	return createRow(ctx, s.accessWriter, &policyRows, by, policy, nil)
}

// Patch changes a policy and returns it. The caller needs iam:policies:write, and what those who
// have the policy newly may do. ifMatch, events and errors are those of [Users.Patch], and
// CodeBuiltin.
func (s *Policies) Patch(
	ctx context.Context, by Principal, id string, patch PolicyPatch, ifMatch ...string,
) (Policy, error) {
	c := checker{compiler: s.compiler.Apart(ctx)}
	c.lookup("policy_id", id)
	c.displayName(patch.DisplayName)
	c.changes(patch.DisplayName != nil || patch.Document != nil)
	if patch.Document != nil {
		patch.Document = c.document("/document", patch.Document, c.compiler.Check)
	}
	if err := c.err(); err != nil {
		return Policy{}, err
	}
	return changeRow(ctx, s.accessWriter, &policyRows, by, id, ifMatch,
		func(was Policy) (is Policy, refused error) {
			if is = was; was.Builtin() {
				return was, builtinPolicy()
			}
			if patch.DisplayName != nil {
				is.DisplayName = *patch.DisplayName
			}
			if patch.Document != nil {
				is.Document = patch.Document
			}
			return is, nil
		})
}

func builtinPolicy() *Error {
	const message = "a built-in policy cannot be changed: make another one"
	return &Error{Code: CodeBuiltin, Message: message}
}

// Delete removes a policy that nothing uses. The caller needs iam:policies:write. With ifMatch, the
// policy must have one of these ETags. Event: [event.AccessRemoved]. Errors: CodeNotFound,
// CodePrecondition, CodeBuiltin, CodeInUse.
func (s *Policies) Delete(ctx context.Context, by Principal, id string, ifMatch ...string) error {
	return deleteRow(ctx, s.accessWriter, &policyRows, by, id, ifMatch,
		AccessNames{UsesOf: []string{id}},
		func(ctx context.Context, tx Store, current Bundle, d *writePlan) error {
			keys, err := countNarrowed(ctx, tx, id, AccessNames{})
			n := current.size() - len(current.Policies) + keys
			if was := policyRows.find(current, id); was.Builtin() {
				d.refused, d.remove = cmp.Or(d.refused, error(builtinPolicy())), AccessNames{}
			} else if n > 0 {
				inUse := policyInUse(id, len(current.Attachments),
					len(current.ServiceAccounts), keys)
				d.refused, d.remove = cmp.Or(d.refused, error(inUse)), AccessNames{}
			}
			return err
		})
}

// Attachments lists attachments by principal type, principal id and policy. The caller needs
// iam:policies:read. An unknown policy or principal has none.
func (s *Policies) Attachments(
	ctx context.Context, by Principal, q AttachmentQuery,
) iter.Seq2[Attachment, error] {
	page := AccessPage{Kind: event.TargetAttachment, Policy: q.PolicyID}
	switch q.Principal.Type {
	case GrantedToUser:
		page.User = q.Principal.ID
	case GrantedToGroup:
		page.Group = q.Principal.ID
	}
	return listRows(ctx, s.accessWriter, rowList[Attachment]{
		by: by, action: action.PoliciesRead, query: q.RowQuery, page: page,
		check: func(c *checker) {
			c.optionalID("policy_id", q.PolicyID)
			if q.Principal != (GrantedTo{}) {
				c.grantedTo("principal_type", "principal_id", q.Principal)
			}
		},
		rows: func(b Bundle) []Attachment { return b.Attachments },
		key:  func(a Attachment) string { return a.key().String() },
	})
}

// Attach attaches a policy to a user or a group, or changes the priority of the attachment. The
// caller needs iam:attachments:write, and what the principal newly may do. Event:
// [event.AccessWritten]. Errors: CodeInvalid (also a policy or a principal that does not exist),
// CodeLastAdministrator.
func (s *Policies) Attach(ctx context.Context, by Principal, attachment Attachment) error {
	bundle := Bundle{Attachments: []Attachment{attachment}}
	const at = "/attachments/0"
	bundle, err := bundle.normalize(&checker{compiler: s.compiler})
	if err != nil {
		return within(at, err)
	}
	return s.accessWriter.edit(ctx, writeRequest{
		by: by, need: []string{action.AttachmentsWrite}, doing: "attach policy", at: at,
		names: new(bundle.names()),
		plan: func(context.Context, Store, Bundle) (writePlan, error) {
			return writePlan{bundle: bundle}, nil
		},
	})
}

// Detach ends an attachment. The caller needs iam:attachments:write, and what the principal newly
// may do: the policy may deny something. Event: [event.AccessRemoved]. Errors: CodeNotFound,
// CodeLastAdministrator.
func (s *Policies) Detach(ctx context.Context, by Principal, key AttachmentKey) error {
	var c checker
	c.lookup("policy_id", key.PolicyID)
	c.grantedTo("principal_type", "principal_id", key.Principal)
	if err := c.err(); err != nil {
		return err
	}
	one := AccessNames{Attachments: []AttachmentKey{key}}
	return s.accessWriter.edit(ctx, writeRequest{
		by: by, need: []string{action.AttachmentsWrite}, doing: "detach policy", names: &one,
		plan: func(_ context.Context, _ Store, current Bundle) (writePlan, error) {
			if current.Empty() {
				return writePlan{}, notFound("there is no such attachment")
			}
			return writePlan{remove: one}, nil
		},
	})
}

// Banks manages the policies of banks, and makes banks where the host can ([TemplateConfig].Banks).
// The rules for callers are those of [Users].
type Banks struct {
	*accessWriter
	maker BankMaker // nil: the host makes no banks
}

// BankMaker makes banks for [Banks.Create].
type BankMaker interface {
	// MakeBank makes a bank from a manifest. For a bank that exists, it returns an [*Error] of
	// CodeExists, or a result that is not Created. The Service calls it concurrently. The caller
	// sees an Error; any other error counts as one of the Store.
	MakeBank(ctx context.Context, by Principal, bank NewBank) (CreatedBank, error)
}

// NewBank is the request to make a bank from a template.
type NewBank struct {
	ID       string          // 1 to [limits.IDLength] printable characters; slashes are allowed
	Name     string          // at most [limits.NameLength] characters; "" means the id
	Template string          // "server/ID" or "personal/ID"
	Manifest json.RawMessage // that of the template; Create sets it
}

// CreatedBank is the outcome of a NewBank.
type CreatedBank struct {
	Created bool // false: the bank exists already
	// ImportResult is a JSON object of at most [limits.Nesting] levels, for the caller. Empty: null.
	ImportResult json.RawMessage
}

// List lists the policies of banks by bank. The caller needs iam:banks:read.
func (s *Banks) List(ctx context.Context, by Principal, q RowQuery) iter.Seq2[BankPolicy, error] {
	return listRows(ctx, s.accessWriter, rowList[BankPolicy]{
		by: by, action: action.BanksRead, query: q, page: AccessPage{Kind: event.TargetBankPolicy},
		rows: func(b Bundle) []BankPolicy { return b.BankPolicies }, key: BankPolicy.key,
	})
}

// Policy returns the policy of a bank. The caller needs iam:banks:read. Errors: CodeNotFound.
func (s *Banks) Policy(ctx context.Context, by Principal, bank string) (BankPolicy, error) {
	return readRow(ctx, s.accessWriter, &bankRows, by, bank)
}

// SetPolicy gives a bank a policy, or replaces the one that it has. The caller needs
// iam:banks:write, and what anybody newly may do. With ifMatch, the bank must have a policy with
// one of these ETags. Event: [event.AccessWritten]. Errors: CodePrecondition.
func (s *Banks) SetPolicy(
	ctx context.Context, by Principal, policy BankPolicy, ifMatch ...string,
) (BankPolicy, error) {
	const at = "/bank_policies/0"
	bundle, err := Bundle{BankPolicies: []BankPolicy{policy}}.normalize(&checker{compiler: s.compiler})
	if err != nil {
		return BankPolicy{}, within(at, err)
	}
	err = s.edit(ctx, writeRequest{
		by: by, need: []string{action.BanksWrite}, doing: "set policy of bank", at: at,
		names: new(bundle.names()),
		plan: func(_ context.Context, _ Store, current Bundle) (writePlan, error) {
			etag := ""
			if was := bankRows.find(current, policy.BankID); was != nil {
				etag = was.ETag()
			}
			return writePlan{
				bundle: bundle, refused: unlessMatches(bankRows.noun, etag, ifMatch),
			}, nil
		},
	})
	if err != nil {
		return BankPolicy{}, err
	}
	return bundle.BankPolicies[0], nil
}

// RemovePolicy removes the policy of a bank, which closes it to unmapped senders. The caller needs
// iam:banks:write. Event: [event.AccessRemoved]. Errors: CodeNotFound, CodePrecondition.
func (s *Banks) RemovePolicy(
	ctx context.Context, by Principal, bank string, ifMatch ...string,
) error {
	return deleteRow(ctx, s.accessWriter, &bankRows, by, bank, ifMatch, AccessNames{}, nil)
}

// Create makes a bank from a template of the server or of the caller, who needs bank:create on that
// bank and template:list on bank "*". Create itself writes nothing and reports no event. Errors:
// CodeNotFound (the host makes no banks, or there is no such template), and those of the host's
// [BankMaker].
func (s *Banks) Create(ctx context.Context, by Principal, bank NewBank) (CreatedBank, error) {
	if s.maker == nil {
		return CreatedBank{}, notFound("this server makes no banks")
	}
	scope, id, cut := strings.Cut(bank.Template, "/")
	var c checker
	c.foreign("/bank_id", bank.ID)
	if !cut || scope != string(ScopeServer) && scope != string(ScopePersonal) {
		c.add("/template", `must be "server/ID" or "personal/ID"`)
	} else {
		c.lookup("/template", id)
	}
	bank.Name = cmp.Or(bank.Name, bank.ID)
	c.text("/name", bank.Name, limits.NameLength)
	if err := c.err(); err != nil {
		return CreatedBank{}, err
	}
	if err := s.mayCreate(ctx, by, bank.ID); err != nil {
		return CreatedBank{}, err
	}
	if s.readOnly {
		return CreatedBank{}, errReadOnly
	}
	key := TemplateKey{Scope: Scope(scope), ID: id}
	if key.Scope == ScopePersonal {
		at, err := s.own(ctx, by, action.TemplateList)
		if err != nil {
			return CreatedBank{}, err
		}
		key.Owner = at.owner
	}
	template, err := s.base.store.Template(ctx, key)
	if noRow(err) {
		return CreatedBank{}, noTemplate()
	} else if err != nil {
		return CreatedBank{}, fault("read template", err)
	}
	bank.Manifest = slices.Clone(template.Manifest)
	made, err := s.maker.MakeBank(ctx, by, bank)
	if err == nil {
		made.ImportResult, err = importResult(made.ImportResult)
	}
	return made, fault("make bank", err)
}

// importResult returns what a [BankMaker] says of a bank that it has made. An answer of HTTP repeats
// it as it is, so it must be valid.
func importResult(result json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 || string(result) == "null" {
		return nil, nil
	}
	compact, err := strictjson.Compact(result, limits.Nesting)
	if err == nil && compact[0] != '{' {
		err = errors.New("it must be a JSON object")
	}
	return compact, fault("check ImportResult", err)
}

// mayCreate refuses a caller who may not make a bank from a template.
func (s *Banks) mayCreate(ctx context.Context, by Principal, bank string) error {
	if err := s.authorize(ctx, by, action.TemplateList); err != nil || by.Kind == KindHost {
		return err
	}
	d, _, err := s.decide(ctx, by.holder(), action.BankCreate, bank, &policy.Context{}, 0)
	if err == nil && !d.Allowed() {
		err = forbidden("you are not allowed " + action.BankCreate + " on this bank")
	}
	return err
}
