package wire

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
	PolicyID  string `json:"policy_id"`
	Statement int    `json:"statement"`
	Effect    string `json:"effect"`
}
