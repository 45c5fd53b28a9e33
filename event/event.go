// Package event has the actions and the kinds of targets of a svc.Event.
package event

// Action says what happened to an svc.Event's target.
type Action string

// The actions of events. Every kind of mutation has one, but svc.Sources.Reseal and
// svc.Audit.Forget have none. A call that changes nothing, and the repeated answer to an idempotency
// key, report no event.
//
// SourceFailing and SourceRecovered say what a process has learned about a source, and
// change nothing in the store. Each process reports them for itself, and none of them is kept as a
// record. Calls in a transaction of the host do not report them.
const (
	SourceRegistered Action = "source.registered"
	SourceRemoved    Action = "source.removed"
	SourcePatched    Action = "source.patched" // another description or token
	// SourceFailing: the source cannot be reached, or its answer is bad, for the first time.
	// It comes once more after a restart, or when the process knows of more than 8,192 failing
	// sources.
	SourceFailing Action = "source.failing"
	// SourceRecovered: the source answers again.
	SourceRecovered    Action = "source.recovered"
	TemplateCreated    Action = "template.created"
	TemplateInstalled  Action = "template.installed"
	TemplatePatched    Action = "template.patched"
	TemplateUpdated    Action = "template.updated"
	TemplateRolledBack Action = "template.rolled_back"
	// TemplateDiverged: the template was the same as in its source and is now edited locally.
	// It comes together with patched, rolled_back or updated.
	TemplateDiverged Action = "template.diverged"
	// TemplateRebound: updates of the template now come from its source's present address.
	TemplateRebound Action = "template.rebound"
	TemplateDeleted Action = "template.deleted"
	// APIKeyIssued: a new key, from svc.Keys.Issue or as the successor of svc.Keys.Rotate.
	APIKeyIssued   Action = "api_key.issued"
	APIKeyImported Action = "api_key.imported"
	// APIKeyChanged: svc.Keys.Patch changed the key, or a rotation has set its end.
	APIKeyChanged Action = "api_key.changed"
	// APIKeyRevoked: the key has ended for good, also by a rotation without an overlap. Each
	// key of svc.Keys.RevokeAll has its own event. A key that expires has none.
	APIKeyRevoked Action = "api_key.revoked"
	// AccessWritten: a row of access is new or has changed. Each row has its own event.
	AccessWritten Action = "access.written"
	// AccessRemoved: a row of access went. Each row has its own event.
	AccessRemoved Action = "access.removed"
)

// TargetKind is the kind of a svc.Target.
type TargetKind string

// The kinds of targets. The kinds from TargetUser on are rows of access: svc.Access.Apply writes
// them.
const (
	TargetSource         TargetKind = "source"
	TargetTemplate       TargetKind = "template"
	TargetAPIKey         TargetKind = "api_key"
	TargetUser           TargetKind = "user"
	TargetGroup          TargetKind = "group"
	TargetServiceAccount TargetKind = "service_account"
	TargetPolicy         TargetKind = "policy"
	TargetAttachment     TargetKind = "attachment"
	TargetBankPolicy     TargetKind = "bank_policy"
	TargetTest           TargetKind = "test"
)

// The kinds of targets that only svc.StoreChanges has. No event is about them.
const (
	// TargetMember: the user Holder joined or left the group ID. With a zero Holder, any number of
	// users did.
	TargetMember TargetKind = "member"
	// TargetChannel: the channel came to a user, left one or moved between users. ID is
	// svc.Channel.String.
	TargetChannel TargetKind = "channel"
	// TargetAccess: any row of access may have changed. It has no ID.
	TargetAccess TargetKind = "access"
	// TargetTenant: the tenant of that name came, went or has another state (svc.TenantStore).
	TargetTenant TargetKind = "tenant"
)
