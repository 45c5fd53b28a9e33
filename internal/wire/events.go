package wire

// Event is one audit record.
type Event struct {
	Number   int64   `json:"number"`
	ID       string  `json:"id"`
	Time     Time    `json:"time"`
	Actor    Actor   `json:"actor"`
	Action   string  `json:"action"`
	Target   Target  `json:"target"`
	Previous *string `json:"previous"`
	Hash     string  `json:"hash"`
}

// Target is what an event is about.
type Target struct {
	Kind   string    `json:"kind"`
	ID     string    `json:"id"`
	Scope  *string   `json:"scope"`
	Owner  *string   `json:"owner"`
	Holder *Identity `json:"holder"`
}

// Actor is the principal that did something.
type Actor struct {
	Identity
	KeyID *string `json:"key_id,omitempty"` // the issued key that the actor used
}

// Identity is the kind and the id of a principal.
type Identity struct {
	Kind string  `json:"kind"`
	ID   *string `json:"id"`
}
