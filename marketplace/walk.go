package marketplace

import (
	"iter"

	"github.com/extsvc/svc/internal/jcs"
)

// The functions of this file walk over valid JSON without white space. They yield parts of their
// argument, so they split a catalogue of 32 MiB into its entries without a copy or decoding.

// members yields the members of an object in their order. It unescapes the keys.
func members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for rest := object[1:]; rest[0] != '}'; {
			end := valueEnd(rest)
			key, value := jcs.Unquote(rest[:end]), rest[end+1:]
			end = valueEnd(value)
			if !yield(key, value[:end]) {
				return
			}
			rest = afterComma(value[end:])
		}
	}
}

// elements yields the elements of an array, in their order.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := array[1:]; rest[0] != ']'; {
			end := valueEnd(rest)
			if !yield(rest[:end]) {
				return
			}
			rest = afterComma(rest[end:])
		}
	}
}

func afterComma(b []byte) []byte {
	if b[0] == ',' {
		return b[1:]
	}
	return b
}

// valueEnd returns the length of the value at the start of b.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of a number or a word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// stringEnd returns the length of the quoted string at the start of b.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
