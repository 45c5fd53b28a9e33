package wire

// AccessDiff is what a bundle would change in what principals may do.
type AccessDiff struct {
	Principals []PrincipalsDiff `json:"principals"`
	Public     []PublicDiff     `json:"public"`
	Strategies []StrategyDiff   `json:"strategies"`
	Omitted    int              `json:"omitted,omitempty"` // absent: the lists are complete
	Turned     []AccessTest     `json:"turned,omitempty"`
}

// PrincipalsDiff is the difference for principals that have equal policies.
type PrincipalsDiff struct {
	Principals  []Identity   `json:"principals"`
	Differences []Difference `json:"differences"`
}

// Difference is how the answer to the requests that its patterns cover changes.
type Difference struct {
	Action string `json:"action"`
	Bank   string `json:"bank"`
	Change string `json:"change"`
	Before Sets   `json:"before"`
	After  Sets   `json:"after"`
}

// PublicDiff is the difference for unmapped senders on a bank.
type PublicDiff struct {
	Bank        string       `json:"bank"`
	Context     Context      `json:"context"`
	Differences []Difference `json:"differences"`
}

// Context is where a request comes from. A text that is not set is empty.
type Context struct {
	Provider string `json:"provider"`
	Channel  string `json:"channel"`
	Topic    string `json:"topic"`
}

// StrategyDiff is a change of a bank's own strategy.
type StrategyDiff struct {
	Bank    string  `json:"bank"`
	Context Context `json:"context"`
	Before  *string `json:"before"`
	After   *string `json:"after"`
}

// AccessTest is a question with the answer that is expected.
type AccessTest struct {
	UserID           string `json:"user_id,omitempty"`
	ServiceAccountID string `json:"sa_id,omitempty"`
	Sender           string `json:"sender,omitempty"`
	Action           string `json:"action"`
	Bank             string `json:"bank"`
	Channel          string `json:"channel,omitempty"`
	Topic            string `json:"topic,omitempty"`
	Allowed          bool   `json:"allowed"`
}
