package strictjson

import (
	"unicode/utf16"
	"unicode/utf8"
)

// plain holds the bytes that need no escape in a string.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// text reads a string and reports whether it has escapes.
func (s *scanner) text() (escaped bool, err *Error) {
	s.pos++
	for {
		in, i := s.in, s.pos // in registers: this loop reads most bytes
		for i < len(in) && plain[in[i]] {
			i++
		}
		s.pos = i
		switch c := s.peek(); {
		case c == '"':
			s.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			err = s.escape()
		case c >= utf8.RuneSelf:
			err = s.rune()
		case s.pos < len(s.in):
			err = s.invalid("control character %q at offset %d must be escaped", rune(c), s.pos)
		default:
			err = s.unexpected()
		}
		if err != nil {
			return escaped, err
		}
	}
}

func (s *scanner) rune() *Error {
	r, n := utf8.DecodeRune(s.in[s.pos:])
	if r == utf8.RuneError && n == 1 {
		return &Error{Detail: "must be valid UTF-8"}
	}
	s.pos += n
	return nil
}

func (s *scanner) escape() *Error {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		return s.unicode()
	}
	return s.unexpected()
}

// unicode reads the rest of a \u escape, or of both halves of a surrogate pair.
func (s *scanner) unicode() *Error {
	r, ok := hex4(s.in[s.pos+1:])
	if !ok {
		return s.invalid("\\u without four hexadecimal digits at offset %d", s.pos-1)
	}
	s.pos += 5
	if !utf16.IsSurrogate(r) {
		return nil
	}
	if !utf8.ValidRune(pair(r, s.in[s.pos:])) {
		return &Error{Detail: "must not have half a surrogate pair"}
	}
	s.pos += 6
	return nil
}

// pair returns the code point of the high half r and the low half that rest begins with, or -1.
func pair(r rune, rest []byte) rune {
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return -1
	}
	low, ok := hex4(rest[2:])
	if p := utf16.DecodeRune(r, low); ok && p != utf8.RuneError {
		return p
	}
	return -1
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// short maps the letter of a two-character escape to its character.
var short = [256]byte{
	'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', '"': '"', '\\': '\\', '/': '/',
}

// unescape returns the text of b, the inside of a string that text accepted.
func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		if b[i+1] != 'u' {
			out = append(out, short[b[i+1]])
			i += 2
			continue
		}
		r, _ := hex4(b[i+2:])
		i += 6
		if utf16.IsSurrogate(r) {
			r = pair(r, b[i:])
			i += 6
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}
