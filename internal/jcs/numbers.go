package jcs

import (
	"bytes"
	"strconv"
)

// longest is the most digits that the shortest text of a double has.
const longest = 17

// decimal is an exact value, 0.digits × 10^exp. digits neither begins nor ends with 0, so equal
// values have equal fields. Zero has no digits.
type decimal struct {
	digits   []byte
	exp      int64
	negative bool
}

// AppendNumber appends lit as ECMAScript writes the double nearest to it, if that text has exactly
// the value of lit. Otherwise it appends lit unchanged.
func AppendNumber(dst, lit []byte) []byte {
	if isShort(lit) {
		return append(dst, lit...)
	}
	d := parse(lit)
	if len(d.digits) == 0 {
		return append(dst, '0') // of -0 as well, as in ECMAScript
	}
	if !d.survives() {
		return append(dst, lit...)
	}
	return d.append(dst)
}

// isShort reports whether lit is an integer so short that a double holds it and ECMAScript writes
// it the same way. Most numbers are.
func isShort(lit []byte) bool {
	if len(lit) > 15 || string(lit) == "-0" {
		return false
	}
	for _, c := range lit {
		if c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// parse splits a JSON number into sign, digits and exponent. It computes with lengths and exponents
// only, so 1e1000000000 costs as little as 1.
func parse(lit []byte) decimal {
	var d decimal
	if lit[0] == '-' {
		d.negative = true
		lit = lit[1:]
	}
	if i := bytes.IndexAny(lit, "eE"); i >= 0 {
		d.exp = exponent(lit[i+1:])
		lit = lit[:i]
	}
	whole, fraction, _ := bytes.Cut(lit, []byte("."))
	d.exp += int64(len(whole))
	digits := whole
	if len(fraction) > 0 {
		digits = append(whole[:len(whole):len(whole)], fraction...)
	}
	d.digits = bytes.TrimLeft(digits, "0")
	d.exp -= int64(len(digits) - len(d.digits))
	d.digits = bytes.TrimRight(d.digits, "0")
	return d
}

// exponent parses an optional sign and digits. It stops counting far below overflow, at values
// beyond any double and any literal that fits into memory.
func exponent(text []byte) (e int64) {
	const enough = 1e17
	sign := int64(1)
	for _, c := range text {
		switch {
		case c == '-':
			sign = -1
		case c != '+' && e < enough:
			e = e*10 + int64(c-'0')
		}
	}
	return sign * e
}

// survives reports whether the nearest double keeps the value of d: its shortest text must have the
// same value.
func (d decimal) survives() bool {
	if len(d.digits) > longest {
		return false
	}
	text := append([]byte("0."), d.digits...)
	text = append(text, 'e')
	f, err := strconv.ParseFloat(string(strconv.AppendInt(text, d.exp, 10)), 64)
	if err != nil {
		return false
	}
	near := parse(strconv.AppendFloat(nil, f, 'e', -1, 64))
	return near.exp == d.exp && bytes.Equal(near.digits, d.digits)
}

// append writes d as Number::toString of ECMA-262 (6.1.6.1.20) does; d.exp is its n, and the number
// of digits is its k.
func (d decimal) append(dst []byte) []byte {
	if d.negative {
		dst = append(dst, '-')
	}
	n, k := int(d.exp), len(d.digits)
	switch {
	case k <= n && n <= 21:
		return append(append(dst, d.digits...), zeros[:n-k]...)
	case 0 < n && n <= 21:
		dst = append(dst, d.digits[:n]...)
		dst = append(dst, '.')
		return append(dst, d.digits[n:]...)
	case -6 < n && n <= 0:
		dst = append(append(dst, "0."...), zeros[:-n]...)
		return append(dst, d.digits...)
	}
	dst = append(dst, d.digits[0])
	if k > 1 {
		dst = append(dst, '.')
		dst = append(dst, d.digits[1:]...)
	}
	dst = append(dst, 'e')
	if n > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(n-1), 10)
}

// zeros are as many as a number without an exponent has in a row at most.
const zeros = "00000000000000000000"
