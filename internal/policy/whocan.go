package policy

// PublicReach says whether unmapped senders are allowed. The most specific override that matches
// their context decides (topic over channel over provider). Without one, the default decides.
type PublicReach struct {
	Default   bool
	Overrides []PublicOverrideReach // in the order of the bank's policy; never nil
}

// PublicOverrideReach says whether unmapped senders are allowed where an override is in force.
type PublicOverrideReach struct {
	Scope   Scope
	Value   string
	Allowed bool
}

// Reach returns where unmapped senders are allowed an action.
func (b *Bank) Reach(action string) PublicReach {
	r := PublicReach{Overrides: []PublicOverrideReach{}}
	if b == nil || b.document == nil || b.document.PublicAccess == nil {
		return r
	}
	for _, o := range b.document.PublicAccess.Overrides {
		in := Context{}.with(o.context())
		allowed := b.public(action, &in).outcome == Allow
		r.Overrides = append(r.Overrides, PublicOverrideReach{o.Scope, o.Value, allowed})
	}
	r.Default = b.public(action, &Context{}).outcome == Allow
	return r
}
