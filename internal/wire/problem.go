package wire

// Problem is the body of every answer of 400 and above (RFC 9457).
type Problem struct {
	Type   string         `json:"type"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Code   string         `json:"code"`
	Errors []ProblemField `json:"errors,omitempty"` // of a 400
	Fields []string       `json:"fields,omitempty"` // of an update that local edits are in the way of
}

// ProblemField says what is wrong with one place of the request: of the body, or one of its parameters.
type ProblemField struct {
	Pointer   *string `json:"pointer,omitempty"` // RFC 6901; "" is the whole body
	Parameter string  `json:"parameter,omitempty"`
	Detail    string  `json:"detail"`
}
