package wire

// Problem is the body of every answer of 400 and above (RFC 9457).
type Problem struct {
	Type   string         `json:"type"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Code   string         `json:"code"`
	Errors []ProblemField `json:"errors,omitempty"` // of a 400
	Fields []string       `json:"fields,omitempty"` // the local edits that conflict with an update
}

// ProblemField says what is wrong with one place of the body or with one parameter.
type ProblemField struct {
	Pointer   *string `json:"pointer,omitempty"` // RFC 6901; "" is the whole body
	Parameter string  `json:"parameter,omitempty"`
	Detail    string  `json:"detail"`
}
