package strictjson

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
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
	if sh.number == reflect.Invalid {
		return nil
	}
	return sh.holds(s.in[start:s.pos])
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
	if bytes.ContainsAny(lit, ".eE") {
		return &Error{Detail: "must be an integer"}
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
