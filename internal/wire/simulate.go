package wire

import "encoding/json"

// Simulation asks what a query would be answered if a bundle were applied.
type Simulation struct {
	Bundle json.RawMessage `json:"bundle"`
	Query  Query           `json:"query"`
}

// Query asks what somebody may do; its names are those of the query of a GET.
type Query struct {
	Bank            string `json:"bank"`
	Action          string `json:"action"`
	SAID            string `json:"sa_id"`
	UserID          string `json:"user_id"`
	Sender          string `json:"sender"`
	Channel         string `json:"channel"`
	Topic           string `json:"topic"`
	ScopingPolicyID string `json:"scoping_policy_id"`
}
