package merge3

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
)

// deepest is the deepest nesting that read accepts. It bounds the recursion here.
const deepest = 1000

// none is the class of an absent value.
const none = 0

// value is a part of a text, or none.
type value struct {
	class    int32 // equal for equal values of the three texts, and for no others
	from, to int32 // its offsets in the text
	object   *[]member
}

// member is a member of an object. Members are sorted by key.
type member struct {
	key string
	value
}

// versions are three texts without insignificant white space.
type versions [3]string

// text returns a value as its version writes it.
func (v versions) text(values trio, version int) string {
	return v[version][values[version].from:values[version].to]
}

// raw is text. It returns nil for an absent value.
func (v versions) raw(values trio, version int) json.RawMessage {
	if values[version].class == none {
		return nil
	}
	return json.RawMessage(v.text(values, version))
}

// read parses three texts.
func read(
	ctx context.Context,
	base, ours, theirs json.RawMessage,
) (v versions, root trio, err error) {
	r := reader{ctx: ctx, classes: map[string]int32{}}
	for i, text := range []json.RawMessage{base, ours, theirs} {
		if text == nil {
			continue
		}
		compact, err := strictjson.Compact(text, deepest)
		if err != nil {
			return v, root, err
		}
		v[i] = string(compact)
		r.in, r.pos = v[i], 0
		if root[i] = r.value(); r.err != nil {
			return v, root, r.err
		}
	}
	return v, root, nil
}

// A reader parses in, which must be valid and free of white space, and gives each value a class
// number. The class of a container follows from the classes in it, so no two values are ever
// compared.
type reader struct {
	ctx     context.Context
	in      string
	pos     int
	classes map[string]int32
	count   int      // of values read
	err     error    // the error of ctx, after it has ended
	members []member // of all open objects; the innermost object's are last
	items   []int32  // the element classes of all open arrays; the innermost array's are last
	scratch []byte
}

// A reader checks its context after every pause values.
const pause = 1 << 12

// value reads a value. When it sets r.err, it has stopped within the value.
func (r *reader) value() (v value) {
	if r.count++; r.count%pause == 0 {
		if r.err = r.ctx.Err(); r.err != nil {
			return value{}
		}
	}
	from := r.pos
	switch r.in[r.pos] {
	case '{':
		v = r.object()
	case '[':
		v.class = r.array()
	default:
		v.class = r.scalar()
	}
	v.from, v.to = int32(from), int32(r.pos)
	return v
}

// class returns the class number of the key in scratch.
func (r *reader) class() int32 {
	class, known := r.classes[string(r.scratch)]
	if !known {
		class = int32(len(r.classes) + 1)
		r.classes[string(r.scratch)] = class
	}
	return class
}

func (r *reader) object() value {
	first := len(r.members)
	for r.pos++; r.in[r.pos] != '}'; {
		key := jcs.Unquote(r.word())
		r.pos++
		r.members = append(r.members, member{key, r.value()})
		if r.err != nil {
			return value{}
		}
		if r.in[r.pos] == ',' {
			r.pos++
		}
	}
	r.pos++
	object := slices.Clone(r.members[first:])
	r.members = r.members[:first]
	slices.SortFunc(object, func(a, b member) int { return strings.Compare(a.key, b.key) })
	r.scratch = append(r.scratch[:0], '{')
	for _, m := range object {
		r.scratch = append(binary.AppendUvarint(r.scratch, uint64(len(m.key))), m.key...)
		r.scratch = binary.AppendUvarint(r.scratch, uint64(m.class))
	}
	return value{class: r.class(), object: &object}
}

func (r *reader) array() int32 {
	first := len(r.items)
	for r.pos++; r.in[r.pos] != ']'; {
		r.items = append(r.items, r.value().class)
		if r.err != nil {
			return none
		}
		if r.in[r.pos] == ',' {
			r.pos++
		}
	}
	r.pos++
	r.scratch = append(r.scratch[:0], '[')
	for _, class := range r.items[first:] {
		r.scratch = binary.AppendUvarint(r.scratch, uint64(class))
	}
	r.items = r.items[:first]
	return r.class()
}

func (r *reader) scalar() int32 {
	switch word := r.word(); {
	case word[0] == '"' && strings.Contains(word, `\`):
		r.scratch = jcs.AppendString(r.scratch[:0], jcs.Unquote(word))
	case word[0] == '-' || '0' <= word[0] && word[0] <= '9':
		r.scratch = jcs.AppendNumber(r.scratch[:0], []byte(word))
	default:
		r.scratch = append(r.scratch[:0], word...)
	}
	return r.class()
}

// word reads a string, a number, true, false or null.
func (r *reader) word() string {
	start := r.pos
	if r.in[r.pos] == '"' {
		for r.pos++; r.in[r.pos] != '"'; r.pos++ {
			if r.in[r.pos] == '\\' {
				r.pos++
			}
		}
		r.pos++
		return r.in[start:r.pos]
	}
	for r.pos < len(r.in) && r.in[r.pos] != ',' && r.in[r.pos] != ']' && r.in[r.pos] != '}' {
		r.pos++
	}
	return r.in[start:r.pos]
}
