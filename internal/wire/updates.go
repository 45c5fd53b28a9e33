package wire

// UpdateReport compares all installed templates with what their sources offer now.
type UpdateReport struct {
	Checked   int64            `json:"checked"`
	Templates []TemplateUpdate `json:"templates"`
	Sources   []SourceReport   `json:"sources"`
}

// TemplateUpdate is a template that differs from its source or could not be compared.
type TemplateUpdate struct {
	TemplateID      string  `json:"template_id"`
	HasUpdate       bool    `json:"has_update"`
	CurrentRevision string  `json:"current_revision"`
	LatestRevision  *string `json:"latest_revision"`
	SourceName      string  `json:"source_name"`
	SourceScope     string  `json:"source_scope"`
	Problem         *string `json:"problem"`
}

// SourceReport is the result of asking one source.
type SourceReport struct {
	SourceName  string  `json:"source_name"`
	SourceScope string  `json:"source_scope"`
	Checked     int64   `json:"checked"`
	Problem     *string `json:"problem"`
}

// Rebound lists the templates that a rebind changed.
type Rebound struct {
	TemplateIDs []string `json:"template_ids"`
}

// Append appends the JSON of u.
func (u UpdateReport) Append(b []byte) []byte {
	o := open(b)
	o.number("checked", u.Checked)
	list(&o, "templates", u.Templates)
	list(&o, "sources", u.Sources)
	return o.close()
}

// Append appends the JSON of u.
func (u TemplateUpdate) Append(b []byte) []byte {
	o := open(b)
	o.text("template_id", u.TemplateID)
	o.bool("has_update", u.HasUpdate)
	o.text("current_revision", u.CurrentRevision)
	o.optional("latest_revision", u.LatestRevision)
	o.text("source_name", u.SourceName)
	o.text("source_scope", u.SourceScope)
	o.optional("problem", u.Problem)
	return o.close()
}

// Append appends the JSON of s.
func (s SourceReport) Append(b []byte) []byte {
	o := open(b)
	o.text("source_name", s.SourceName)
	o.text("source_scope", s.SourceScope)
	o.number("checked", s.Checked)
	o.optional("problem", s.Problem)
	return o.close()
}

// Append appends the JSON of r.
func (r Rebound) Append(b []byte) []byte {
	o := open(b)
	o.texts("template_ids", r.TemplateIDs)
	return o.close()
}
