// Package action has the actions that svc asks for: the strings that policies allow or deny.
package action

// The control-plane actions. A caller needs them on bank "*": from a stored policy with that bank,
// or as one of the Actions of its svc.Principal. svc.Host needs none.
const (
	// UsersRead: list users, their channels and keys, and ask what any principal may do.
	UsersRead = "iam:users:read"
	// UsersWrite: change users, and issue, change and revoke the keys of others, within the
	// caller's own rights.
	UsersWrite = "iam:users:write"
	// KeysIntrospect: ask whether a token is an accepted key, and whose. It is for gateways.
	KeysIntrospect = "iam:keys:introspect"
	// PoliciesRead: list policies and attachments, and narrow a key by any policy, also by one that
	// the caller does not have.
	PoliciesRead = "iam:policies:read"
	// GroupsRead: list groups and their members. GroupsWrite: change them.
	GroupsRead  = "iam:groups:read"
	GroupsWrite = "iam:groups:write"
	// PoliciesWrite: create, change and delete policies.
	PoliciesWrite = "iam:policies:write"
	// AttachmentsWrite: attach and detach policies. To list them takes PoliciesRead.
	AttachmentsWrite = "iam:attachments:write"
	// AccountsManage: read and change the service accounts of all users, and their keys.
	AccountsManage = "iam:service_accounts:manage"
	// AccountsRead and AccountsWrite: list and change the caller's own service
	// accounts.
	AccountsRead  = "iam:service_accounts:read"
	AccountsWrite = "iam:service_accounts:write"
	// AccountKeysWrite: issue, change and revoke keys of the caller's own service accounts.
	AccountKeysWrite = "iam:service_account_keys:write"
	// BanksRead and BanksWrite: read and change the policies of banks.
	BanksRead  = "iam:banks:read"
	BanksWrite = "iam:banks:write"
	// BanksGrant: give others rights on banks that the caller does not have.
	BanksGrant = "iam:banks:grant"
	// TemplateAdmin: list, read and change the server's templates and sources.
	TemplateAdmin = "template:admin"
	// TemplateList: list, read and compare the caller's own templates.
	TemplateList = "template:list"
	// TemplateCreate: create the caller's own templates by hand.
	TemplateCreate = "template:create"
	// TemplateManage: patch, delete and roll back the caller's own templates.
	TemplateManage = "template:manage"
	// TemplateInstall: install and update the caller's own templates.
	TemplateInstall = "template:install"
	// TemplateSource: list, register, browse, re-bind and remove the caller's own sources.
	TemplateSource = "template:source"
	// AuditRead: read and verify the kept events.
	AuditRead = "iam:audit:read"
)

// Recall is the default action of a svc.Question. As a pattern in a policy it also covers
// "bank:memories:list" and "bank:memories:get".
const Recall = "bank:recall"

// BankCreate: make a bank. It is asked on that bank.
const BankCreate = "bank:create"

// All returns every action that a Service asks for by itself, sorted. [Recall] and the
// actions that it covers are the host's to ask for.
func All() []string {
	return []string{
		BankCreate, AttachmentsWrite, AuditRead, BanksGrant,
		BanksRead, BanksWrite, GroupsRead, GroupsWrite,
		KeysIntrospect, PoliciesRead, PoliciesWrite, AccountKeysWrite,
		AccountsManage, AccountsRead, AccountsWrite, UsersRead,
		UsersWrite,
		TemplateAdmin, TemplateCreate, TemplateInstall, TemplateList,
		TemplateManage, TemplateSource,
	}
}
