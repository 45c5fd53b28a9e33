package strictjson

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// number reads a number and checks that its Go kind can hold it.
func (s *scanner) number(sh *shape) *Error {
	start := s.pos
	if s.in[s.pos] == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.unexpected()
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.unexpected()
		}
	}
	if s.peek()|0x20 == 'e' && !s.exponent() {
		return s.unexpected()
	}
	switch lit := s.in[start:s.pos]; {
	case sh.number == reflect.Invalid:
		return nil
	case sh.number != reflect.Float64 && bytes.ContainsAny(lit, ".eE"):
		return s.integer(sh, start)
	default:
		return sh.holds(lit)
	}
}

// integer replaces the number from start on by its value in digits only, as encoding/json needs
// it: a number with a fraction or an exponent may be an integer (RFC 8259, section 6).
func (s *scanner) integer(sh *shape, start int) *Error {
	digits, whole := inDigits(s.in[start:s.pos])
	if !whole {
		return &Error{Detail: "must be an integer"}
	}
	if err := sh.holds(digits); err != nil {
		return err
	}
	s.out = append(append(s.out, s.in[s.from:start]...), digits...)
	s.from = s.pos
	return nil
}

// mostDigits is more digits than any integer of 64 bits has.
const mostDigits = 30

// inDigits returns the value of a JSON number without fraction and exponent. whole reports whether
// the value is an integer. A value with more than mostDigits digits may be returned as another one
// with as many: the cost follows the length of lit, and not its value.
func inDigits(lit []byte) (digits []byte, whole bool) {
	mantissa, power, _ := bytes.Cut(bytes.ToLower(lit), []byte("e"))
	mantissa, negative := bytes.CutPrefix(mantissa, []byte("-"))
	before, behind, _ := bytes.Cut(mantissa, []byte("."))
	digits = bytes.TrimLeft(slices.Concat(before, behind), "0")
	point := len(digits) - len(behind) // in digits
	digits = bytes.TrimRight(digits, "0")
	if len(digits) == 0 {
		return []byte("0"), true
	}
	const most = 1 << 30                       // no number is as long
	exponent, _ := strconv.Atoi(string(power)) // out of range: the nearest int
	if point += max(-most, min(exponent, most)); point < len(digits) {
		return nil, false
	}
	if negative {
		digits = append([]byte("-"), digits...)
		point++
	}
	zeros := max(0, min(point, mostDigits)-len(digits))
	return append(digits, bytes.Repeat([]byte("0"), zeros)...), true
}

func (s *scanner) exponent() bool {
	s.pos++
	if c := s.peek(); c == '+' || c == '-' {
		s.pos++
	}
	return s.digits()
}

// digits reads digits and reports whether there was at least one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.in) && '0' <= s.in[s.pos] && s.in[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// holds returns an error when a Go number of the shape's kind cannot hold lit.
func (sh *shape) holds(lit []byte) *Error {
	if sh.number == reflect.Float64 {
		if _, err := strconv.ParseFloat(string(lit), sh.bits); err != nil {
			detail := fmt.Sprintf("must fit a floating-point number of %d bits", sh.bits)
			return &Error{Detail: detail}
		}
		return nil
	}
	return sh.ranged(string(lit))
}

func (sh *shape) ranged(lit string) *Error {
	if sh.number == reflect.Uint64 {
		if _, err := strconv.ParseUint(lit, 10, sh.bits); err != nil {
			most := uint64(math.MaxUint64) >> (64 - sh.bits)
			return &Error{Detail: fmt.Sprintf("must be an integer from 0 to %d", most)}
		}
		return nil
	}
	if _, err := strconv.ParseInt(lit, 10, sh.bits); err != nil {
		most := int64(math.MaxInt64) >> (64 - sh.bits)
		return &Error{Detail: fmt.Sprintf("must be an integer from %d to %d", -most-1, most)}
	}
	return nil
}
