// Package parameter defines the parameters that policies set.
//
// A parameter is a key that a statement with the effect allow, and the public access of a bank, may
// set. Its value tells the host how to carry out an allowed action: the Service only merges and
// returns it.
package parameter

// Definition defines a parameter. Name, Type, Merge and Narrow are required. A combination without
// a sense, such as the greatest of texts, is an error of the function that takes the definition.
type Definition struct {
	// Name is the key: 1 to 64 characters of a–z, 0–9 and _. The keys next to it in documents and
	// answers are reserved: effect, actions, banks, allowed, resolved_user_id, scope and value.
	Name string
	Type Type
	// Levels are the values of a [Level], the least first. Nil for all other types.
	Levels []string
	Merge  Merge
	Narrow Narrow
}

// Type is the type of a parameter's values. In JSON, null is the same as no value.
type Type int

// The types, and the Go values of each. The zero Type is none.
const (
	Integer    Type = iota + 1 // int64, not negative
	Text                       // string, not empty
	TextList                   // []string, of texts that are not empty
	Level                      // string, one of Levels
	ObjectList                 // []json.RawMessage, of JSON objects
)

// Merge is how the values of all matching allows combine. An allow that does not set the parameter
// does not count.
type Merge int

// The merges. The zero Merge is none.
const (
	Greatest Merge = iota + 1 // of integers and levels
	Least                     // of integers and levels
	Union                     // of text lists: sorted, without repeats
	// All joins lists in gathering order. Of equal elements, the first stays. Objects are compared
	// as JSON values.
	All
	// Closest takes the value of one statement: the user's own over a group's, then that with the
	// more specific bank pattern, the higher priority, the greater policy id, the earlier place.
	Closest
)

// Narrow is what a policy that narrows does with the value that it narrows. When only one of both
// sets the parameter, that value counts.
//
// That is for service accounts and their scoping policies. The policy of a narrowed key gives
// nothing: Append and Replace leave what the holder has, and the others change only a value that the
// holder has. Greater and Unite are for values that forbid: there, more is less.
type Narrow int

// The ways to narrow. The zero Narrow is none.
const (
	Lesser    Narrow = iota + 1 // of integers and levels
	Greater                     // of integers and levels
	Intersect                   // of lists: what both have
	Unite                       // of text lists: sorted, without repeats
	// Append adds the elements of the scoping policy's list, each once: behind the others, or
	// sorted with Union.
	Append
	Replace // takes the scoping policy's value
)

// Memory returns the parameters of AI memory. The caller owns the list.
func Memory() []Definition {
	return []Definition{
		{"recall_budget", Level, []string{"low", "mid", "high"}, Greatest, Lesser},
		{"recall_max_tokens", Integer, nil, Greatest, Lesser},
		{"recall_tag_groups", ObjectList, nil, All, Append},
		{"retain_roles", TextList, nil, Union, Intersect},
		{"retain_tags", TextList, nil, Union, Append},
		// Fewer turns: it retains more often.
		{"retain_every_n_turns", Integer, nil, Least, Greater},
		{"retain_strategy", Text, nil, Closest, Replace},
		{"llm_model", Text, nil, Closest, Replace},
		{"llm_provider", Text, nil, Closest, Replace},
		{"exclude_providers", TextList, nil, Union, Unite},
	}
}
