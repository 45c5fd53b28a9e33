package strictjson

import (
	"bytes"
	"hash/maphash"
)

// few is the number of keys to compare one by one. Most objects have fewer. Above it, an index
// keeps the cost of each key constant.
const few = 16

// maxKeys limits the keys of all objects that are open at the same time. Each takes some hundred
// bytes.
const maxKeys = 1 << 18

// keySet is the keys of one open object: scanner.keys from first on.
type keySet struct {
	first int
	seed  maphash.Seed   // new each time, so that nobody can prepare collisions
	index map[uint64]int // hash to position; nil up to few keys
}

// key reads the key of a member and returns it unescaped. The result may share memory with in.
func (s *scanner) key() ([]byte, *Error) {
	if s.peek() != '"' {
		return nil, s.unexpected()
	}
	start := s.pos + 1
	escaped, err := s.text()
	if err != nil {
		return nil, err
	}
	key := s.in[start : s.pos-1]
	if escaped {
		key = unescape(key)
	}
	return key, nil
}

// unique adds key to the set and reports whether it was not there before.
func (s *scanner) unique(set *keySet, key []byte) bool {
	open := s.keys[set.first:]
	s.keys = append(s.keys, key)
	if len(open) < few {
		return !has(open, key)
	}
	if set.index == nil {
		set.build(open)
	}
	h := maphash.Bytes(set.seed, key)
	i, taken := set.index[h]
	if !taken {
		set.index[h] = len(open)
		return true
	}
	// Two different keys almost never have the same hash. When they do, compare with all keys.
	return !bytes.Equal(open[i], key) && !has(open, key)
}

func (set *keySet) build(keys [][]byte) {
	set.seed = maphash.MakeSeed()
	set.index = make(map[uint64]int, 4*few)
	for i, k := range keys {
		set.index[maphash.Bytes(set.seed, k)] = i
	}
}

func has(keys [][]byte, key []byte) bool {
	for _, k := range keys {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}
