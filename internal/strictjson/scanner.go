package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
)

// A scanner reads in once and copies it to out. Every method named after a thing starts at the
// first byte of that thing and ends behind it.
//
// The scanner does not track its place in the document. On an error, each level adds its token to
// path on the way back up.
type scanner struct {
	in, out []byte
	pos     int // the next byte to read
	from    int // in[from:pos] is read but not copied yet

	depth, limit int
	elements     int      // array elements still allowed, outside of opaque values
	keys         [][]byte // of all open objects; the innermost object's are last
	path         []string // pointer tokens, innermost first
	cutting      bool     // keep raw members of the outermost object out of the copy
	cuts         []cut
	broken       bool // in is not JSON, so path points at nothing
}

// kind is the kind of a JSON value. It is a set, so that a type can accept several.
type kind uint8

const (
	object kind = 1 << iota
	array
	text
	number
	boolean
	null
	anyKind = object | array | text | number | boolean | null
)

// kinds maps the first byte of a value to its kind; 0: no value begins with this byte.
var kinds = [256]kind{
	'{': object, '[': array, '"': text, 't': boolean, 'f': boolean, 'n': null, '-': number,
	'0': number, '1': number, '2': number, '3': number, '4': number,
	'5': number, '6': number, '7': number, '8': number, '9': number,
}

func (s *scanner) value(sl *slot) *Error {
	k := kinds[s.peek()]
	if k&sl.accepts == 0 {
		return s.mismatch(k, sl)
	}
	if sl.probe != nil {
		return s.probed(sl)
	}
	return s.raw(k, sl)
}

func (s *scanner) raw(k kind, sl *slot) *Error {
	switch k {
	case object:
		return s.object(sl.shape)
	case array:
		return s.array(sl.shape)
	case text:
		_, err := s.text()
		return err
	case number:
		return s.number(sl.shape)
	default:
		return s.word()
	}
}

func (s *scanner) object(sh *shape) *Error {
	if s.depth++; s.depth > s.limit {
		return s.tooDeep()
	}
	s.pos++
	s.space()
	if s.peek() == '}' {
		return s.close()
	}
	seen := keySet{first: len(s.keys)}
	for {
		if err := s.member(sh, &seen); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case '}':
			s.keys = s.keys[:seen.first]
			return s.close()
		default:
			return s.unexpected()
		}
	}
}

func (s *scanner) member(sh *shape, seen *keySet) *Error {
	mark := 0
	if sh.fields != nil {
		mark = s.flush()
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	sl := sh.member(key)
	if sl == nil {
		return s.below(key, &Error{Detail: sh.unknown()})
	}
	if len(s.keys) == maxKeys {
		return &Error{Detail: fmt.Sprintf("has more than %d keys", maxKeys)}
	}
	if !s.unique(seen, key) {
		return s.below(key, &Error{Detail: "is a duplicate key"})
	}
	s.space()
	if s.peek() != ':' {
		return s.unexpected()
	}
	s.pos++
	s.space()
	if s.peek() == 'n' && sh.fields != nil && !sl.seesNull {
		return s.absent(mark)
	}
	if sl.raw && s.cutting && s.depth == 1 && s.peek() != 'n' {
		err = s.cut(mark, sl)
	} else {
		err = s.value(sl)
	}
	if err != nil {
		return s.below(key, err)
	}
	return nil
}

// absent reads null for a member that began at out[mark].
func (s *scanner) absent(mark int) *Error {
	if err := s.word(); err != nil {
		return err
	}
	s.omit(mark)
	return nil
}

// cut reads the value of a member that began at out[mark] and keeps it out of the copy.
func (s *scanner) cut(mark int, sl *slot) *Error {
	begin := s.flush()
	if err := s.value(sl); err != nil {
		return err
	}
	s.flush()
	value := s.out[begin:len(s.out):len(s.out)]
	if 2*len(value) < cap(s.out) {
		value = bytes.Clone(value)
	} else { // the value fills most of out: it keeps that memory, and the copy gets new memory
		s.out = append(make([]byte, 0, mark+len(s.in)-s.pos), s.out[:mark]...)
	}
	s.cuts = append(s.cuts, cut{sl.field, value})
	s.omit(mark)
	return nil
}

// omit removes the member that began at out[mark] from the copy, with one comma next to it.
func (s *scanner) omit(mark int) {
	s.out, s.from = s.out[:mark], s.pos
	s.space()
	switch last := len(s.out) - 1; {
	case s.peek() == ',':
		s.from = s.pos + 1
	case s.out[last] == ',':
		s.out = s.out[:last]
	}
}

func (s *scanner) array(sh *shape) *Error {
	if s.depth++; s.depth > s.limit {
		return s.tooDeep()
	}
	s.pos++
	s.space()
	if s.peek() == ']' {
		return s.close()
	}
	for i := 0; ; i++ {
		if err := s.element(sh); err != nil {
			s.path = append(s.path, strconv.Itoa(i))
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case ']':
			return s.close()
		default:
			return s.unexpected()
		}
	}
}

func (s *scanner) element(sh *shape) *Error {
	if sh.elem.shape != sh { // the array is not opaque
		if s.elements--; s.elements < 0 {
			return &Error{Detail: "is one element too many"}
		}
	}
	return s.value(sh.elem)
}

func (s *scanner) close() *Error {
	s.pos++
	s.depth--
	return nil
}

// word reads true, false or null.
func (s *scanner) word() *Error {
	w := "null"
	switch s.in[s.pos] {
	case 't':
		w = "true"
	case 'f':
		w = "false"
	}
	if !bytes.HasPrefix(s.in[s.pos:], []byte(w)) {
		return s.unexpected()
	}
	s.pos += len(w)
	return nil
}

// peek returns the next byte. At the end it returns 0, which is in no JSON text.
func (s *scanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

// space skips white space. It is inlined for the common case: none.
func (s *scanner) space() {
	if s.pos < len(s.in) && s.in[s.pos] <= ' ' {
		s.skip()
	}
}

// skip is apart from space, which would otherwise be too large to inline.
//
//go:noinline
func (s *scanner) skip() {
	s.flush()
	for s.pos < len(s.in) && isSpace(s.in[s.pos]) {
		s.pos++
	}
	s.from = s.pos
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// flush copies the bytes read so far and returns where the copy ends.
func (s *scanner) flush() int {
	s.out = append(s.out, s.in[s.from:s.pos]...)
	s.from = s.pos
	return len(s.out)
}

// below moves err one level up: it happened under key.
func (s *scanner) below(key []byte, err *Error) *Error {
	s.path = append(s.path, string(key))
	return err
}

func (s *scanner) tooDeep() *Error {
	return &Error{Detail: fmt.Sprintf("must not be nested deeper than %d levels", max(s.limit, 0))}
}

func (s *scanner) unexpected() *Error {
	if s.pos >= len(s.in) {
		return s.invalid("it ends too early")
	}
	c := s.in[s.pos]
	if c >= 0x80 {
		return s.invalid("unexpected byte 0x%x at offset %d", c, s.pos)
	}
	return s.invalid("unexpected %q at offset %d", rune(c), s.pos)
}

func (s *scanner) invalid(format string, args ...any) *Error {
	s.broken = true
	return &Error{Detail: "must be valid JSON: " + fmt.Sprintf(format, args...)}
}
