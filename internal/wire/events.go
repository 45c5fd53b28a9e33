package wire

import (
	"encoding/json"
	"time"
)

// Event is one audit record.
type Event struct {
	Number   int64           `json:"number"`
	ID       string          `json:"id"`
	Time     time.Time       `json:"time"`
	Actor    Actor           `json:"actor"`
	Action   string          `json:"action"`
	Target   Target          `json:"target"`
	Tenant   *string         `json:"tenant,omitempty"` // only of a tenant
	Was      json.RawMessage `json:"was"`
	Is       json.RawMessage `json:"is"`
	Previous *string         `json:"previous"`
	Salts    Salts           `json:"salts"`
	Hash     string          `json:"hash"`
}

// Append appends the JSON of e.
func (e Event) Append(b []byte) []byte {
	o := open(b)
	o.number("number", e.Number)
	o.text("id", e.ID)
	o.time("time", e.Time)
	o.object("actor", e.Actor.fields)
	o.text("action", e.Action)
	o.object("target", e.Target.fields)
	if e.Tenant != nil {
		o.text("tenant", *e.Tenant)
	}
	o.optionalRaw("was", e.Was)
	o.optionalRaw("is", e.Is)
	o.optional("previous", e.Previous)
	o.object("salts", e.Salts.fields)
	o.text("hash", e.Hash)
	return o.close()
}

// Salts has the salts of the texts of an event, or the digests of those that are
// erased. "": no text.
type Salts struct {
	Actor  string `json:"actor,omitempty"`
	Target string `json:"target,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Holder string `json:"holder,omitempty"`
	Was    string `json:"was,omitempty"`
	Is     string `json:"is,omitempty"`
}

func (s Salts) fields(o *object) {
	for _, salt := range [...][2]string{
		{"actor", s.Actor}, {"target", s.Target}, {"owner", s.Owner}, {"holder", s.Holder},
		{"was", s.Was}, {"is", s.Is},
	} {
		if salt[1] != "" {
			o.text(salt[0], salt[1])
		}
	}
}

// Target is what an event is about.
type Target struct {
	Kind   string    `json:"kind"`
	ID     string    `json:"id"`
	Scope  *string   `json:"scope"`
	Owner  *string   `json:"owner"`
	Holder *Identity `json:"holder"`
}

func (t Target) fields(o *object) {
	o.text("kind", t.Kind)
	o.text("id", t.ID)
	o.optional("scope", t.Scope)
	o.optional("owner", t.Owner)
	if t.Holder == nil {
		o.optionalRaw("holder", nil)
		return
	}
	o.object("holder", t.Holder.fields)
}

// Actor is the principal that did something.
type Actor struct {
	Identity
	KeyID *string `json:"key_id,omitempty"` // the issued key that the actor used
}

func (a Actor) fields(o *object) {
	a.Identity.fields(o)
	if a.KeyID != nil {
		o.text("key_id", *a.KeyID)
	}
}

// Identity is the kind and the id of a principal.
type Identity struct {
	Kind string  `json:"kind"`
	ID   *string `json:"id"`
}

func (i Identity) fields(o *object) {
	o.text("kind", i.Kind)
	o.optional("id", i.ID)
}
