package wire

// Reach is who may do something, and why.
type Reach struct {
	Action          string      `json:"action"`
	Bank            string      `json:"bank"`
	Users           []string    `json:"users"`
	ServiceAccounts []string    `json:"service_accounts"`
	Public          PublicReach `json:"public"`
	Statements      []Cited     `json:"statements"`
	Revision        string      `json:"revision"`
}

// PublicReach is whether unmapped senders are allowed.
type PublicReach struct {
	Default   bool                  `json:"default"`
	Overrides []PublicOverrideReach `json:"overrides"`
}

// PublicOverrideReach is whether unmapped senders are allowed where an override is in force.
type PublicOverrideReach struct {
	Scope   string `json:"scope"`
	Value   string `json:"value"`
	Allowed bool   `json:"allowed"`
}

// Cited is a statement that speaks of a request.
type Cited struct {
	PolicyID  string `json:"policy_id"`
	Statement int    `json:"statement"`
	Effect    string `json:"effect"`
}
