package wire

import "time"

// Event is one audit record.
type Event struct {
	Number   int64     `json:"number"`
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Actor    Actor     `json:"actor"`
	Action   string    `json:"action"`
	Target   Target    `json:"target"`
	Previous *string   `json:"previous"`
	Hash     string    `json:"hash"`
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

// Append appends the JSON of e.
func (e Event) Append(b []byte) []byte {
	o := open(b)
	o.number("number", e.Number)
	o.text("id", e.ID)
	o.time("time", e.Time)
	o.key("actor")
	o.b = e.Actor.Append(o.b)
	o.text("action", e.Action)
	o.key("target")
	o.b = e.Target.Append(o.b)
	o.optional("previous", e.Previous)
	o.text("hash", e.Hash)
	return o.close()
}

// Append appends the JSON of t.
func (t Target) Append(b []byte) []byte {
	o := open(b)
	o.text("kind", t.Kind)
	o.text("id", t.ID)
	o.optional("scope", t.Scope)
	o.optional("owner", t.Owner)
	o.key("holder")
	if t.Holder != nil {
		o.b = t.Holder.Append(o.b)
	} else {
		o.b = append(o.b, "null"...)
	}
	return o.close()
}

// Append appends the JSON of a.
func (a Actor) Append(b []byte) []byte {
	o := open(b)
	o.text("kind", a.Kind)
	o.optional("id", a.ID)
	if a.KeyID != nil {
		o.text("key_id", *a.KeyID)
	}
	return o.close()
}

// Append appends the JSON of i.
func (i Identity) Append(b []byte) []byte {
	o := open(b)
	o.text("kind", i.Kind)
	o.optional("id", i.ID)
	return o.close()
}
