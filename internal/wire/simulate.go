package wire

import "encoding/json"

// Simulation is a query to answer as if the bundle were applied.
type Simulation struct {
	Bundle json.RawMessage `json:"bundle"`
	Query  Query           `json:"query"`
}

// Query asks what a principal may do. The keys have the names of the parameters of
// GET /debug/resolve.
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
