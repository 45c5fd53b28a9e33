package wire

import (
	"encoding/json"

	"github.com/extsvc/svc"
)

// Resolution is a decision with its reasons.
type Resolution struct {
	TenantID          string          `json:"tenant_id"`
	PrincipalType     string          `json:"principal_type"`
	Access            Access          `json:"access"`
	BankPolicy        json.RawMessage `json:"bank_policy"`
	Decision          string          `json:"decision"`
	Reason            string          `json:"reason"`
	EffectiveStrategy *string         `json:"effective_strategy"`
	Revision          string          `json:"revision"`
	Trace             []TraceEntry    `json:"trace"`
}

// TraceEntry is the part of one statement in a decision.
type TraceEntry struct {
	PolicyID      string            `json:"policy_id"`
	Via           string            `json:"via"`
	Statement     int               `json:"statement"`
	Effect        string            `json:"effect"`
	Matched       bool              `json:"matched"`
	ActionPattern *string           `json:"action_pattern"`
	BankPattern   *string           `json:"bank_pattern"`
	Code          string            `json:"code"`
	Reason        string            `json:"reason"`
	Sets          Sets              `json:"sets"`
	Lost          map[string]string `json:"lost"`
}

// Reach lists the principals that may do an action on a bank, and why.
type Reach struct {
	Action          string      `json:"action"`
	Bank            string      `json:"bank"`
	Users           []string    `json:"users"`
	ServiceAccounts []string    `json:"service_accounts"`
	Public          PublicReach `json:"public"`
	Statements      []Cited     `json:"statements"`
	Revision        string      `json:"revision"`
}

// PublicReach says whether unmapped senders are allowed.
type PublicReach struct {
	Default   bool                  `json:"default"`
	Overrides []PublicOverrideReach `json:"overrides"`
}

// PublicOverrideReach says whether unmapped senders are allowed where an override applies.
type PublicOverrideReach struct {
	Scope   string `json:"scope"`
	Value   string `json:"value"`
	Allowed bool   `json:"allowed"`
}

// Cited is a statement that matches the request.
type Cited struct {
	PolicyID  string     `json:"policy_id"`
	Statement int        `json:"statement"`
	Effect    svc.Effect `json:"effect"`
}

// Capabilities are all that a principal may do.
type Capabilities struct {
	Capabilities []Capability `json:"capabilities"`
}

// Capability is how requests that its patterns cover are decided.
type Capability struct {
	Action     string `json:"action"`
	Bank       string `json:"bank"`
	Decision   string `json:"decision"`
	Parameters Sets   `json:"parameters"`
}

// Simulation is a query to answer as if the bundle were applied.
type Simulation struct {
	Bundle json.RawMessage `json:"bundle"`
	Query  Query           `json:"query"`
}

// Query asks what a principal may do. The keys have the names of the parameters of
// GET /debug/resolve.
type Query struct {
	Bank             string `json:"bank"`
	Action           string `json:"action"`
	ServiceAccountID string `json:"sa_id"`
	UserID           string `json:"user_id"`
	Sender           string `json:"sender"`
	Channel          string `json:"channel"`
	Topic            string `json:"topic"`
	ScopingPolicyID  string `json:"scoping_policy_id"`
}

// Decide is up to 1,000 queries to answer without reasons.
type Decide struct {
	Queries []DecideQuery `json:"queries"`
}

// DecideQuery asks what one subject may do: nil subjects mean the caller. An empty subject is not
// the caller, and is refused.
type DecideQuery struct {
	UserID  *string `json:"user_id,omitempty"`
	SAID    *string `json:"sa_id,omitempty"`
	Sender  *string `json:"sender,omitempty"`
	Action  string  `json:"action"`
	Bank    string  `json:"bank"`
	Channel string  `json:"channel,omitempty"`
	Topic   string  `json:"topic,omitempty"`
}

// Decisions are the answers to queries, in the order of the queries.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
}

// Decision is the answer to one query.
type Decision struct {
	Allowed           bool    `json:"allowed"`
	Decision          string  `json:"decision"`
	Access            Access  `json:"access"`
	EffectiveStrategy *string `json:"effective_strategy"`
}
