package aead_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/aead"
)

// sealer returns a Sealer whose keys repeat one byte each.
func sealer(t *testing.T, first byte, old ...byte) *aead.Sealer {
	t.Helper()
	s, err := aead.New(bytes.Repeat([]byte{first}, aead.KeySize))
	for _, b := range old {
		if err == nil {
			s, err = s.WithOld(bytes.Repeat([]byte{b}, aead.KeySize))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSeal(t *testing.T) {
	is := is.New(t)
	one := sealer(t, 1)
	sealed := one.Seal([]byte("secret"), []byte("row 1"))
	is.True(!bytes.Contains(sealed, []byte("secret")))
	is.True(!bytes.Equal(sealed, one.Seal([]byte("secret"), []byte("row 1")))) // each has its own nonce

	for _, s := range []*aead.Sealer{one, sealer(t, 2, 1), sealer(t, 2, 3, 1)} {
		opened, err := s.Open(sealed, []byte("row 1"))
		is.NoErr(err)
		is.Equal(string(opened), "secret")
	}
}

func TestWhatDoesNotOpen(t *testing.T) {
	one := sealer(t, 1)
	sealed := one.Seal([]byte("secret"), []byte("row 1"))
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		sealer  *aead.Sealer
		sealed  []byte
		binding string
	}{
		"another row":                   {one, sealed, "row 2"},
		"another row, under an old key": {sealer(t, 2, 1), sealed, "row 2"},
		"another key":                   {sealer(t, 2), sealed, "row 1"},
		"other keys":                    {sealer(t, 2, 3), sealed, "row 1"},
		"no key":                        {nil, sealed, "row 1"},
		"too short":                     {one, sealed[:8], "row 1"},
		"a nonce alone":                 {one, sealed[:24], "row 1"},
		"nothing":                       {one, nil, "row 1"},
		"a flipped bit":                 {one, flipped, "row 1"},
	} {
		opened, openErr := c.sealer.Open(c.sealed, []byte(c.binding))
		again, resealErr := c.sealer.Reseal(c.sealed, []byte(c.binding))
		if !errors.Is(openErr, aead.ErrOpen) || !errors.Is(resealErr, aead.ErrOpen) || opened != nil || again != nil {
			t.Errorf("%s: got %q, %v and %q, %v", name, opened, openErr, again, resealErr)
		}
	}
}

func TestReseal(t *testing.T) {
	is := is.New(t)
	row, both := []byte("row 1"), sealer(t, 2, 1)
	again, err := both.Reseal(sealer(t, 1).Seal([]byte("secret"), row), row)
	is.NoErr(err)
	opened, err := sealer(t, 2).Open(again, row) // without the old key
	is.NoErr(err)
	is.Equal(string(opened), "secret")

	again, err = both.Reseal(again, row)
	is.NoErr(err)
	is.Equal(again, nil) // the first key had sealed it
}

func TestOldKeysAreNotShared(t *testing.T) {
	is := is.New(t)
	three := sealer(t, 1, 2, 3)
	four, err := three.WithOld(bytes.Repeat([]byte{4}, aead.KeySize))
	is.NoErr(err)
	_, err = three.WithOld(bytes.Repeat([]byte{5}, aead.KeySize))
	is.NoErr(err)
	_, err = four.Open(sealer(t, 4).Seal([]byte("secret"), nil), nil)
	is.NoErr(err)
	for _, unknown := range []byte{4, 5} {
		_, err = three.Open(sealer(t, unknown).Seal([]byte("secret"), nil), nil)
		is.True(errors.Is(err, aead.ErrOpen))
	}
}

func TestKeys(t *testing.T) {
	one := sealer(t, 1, 2)
	for name, key := range map[string][]byte{
		"of 31 bytes": make([]byte, 31), "of 33 bytes": make([]byte, 33), "of none": nil,
		"that is the first": bytes.Repeat([]byte{1}, aead.KeySize), "that is an old one": bytes.Repeat([]byte{2}, aead.KeySize),
	} {
		if _, err := one.WithOld(key); err == nil {
			t.Errorf("an old key %s is accepted", name)
		}
	}
	var none *aead.Sealer
	if one.Keys() != 2 || none.Keys() != 0 {
		t.Errorf("%d keys, and %d without any", one.Keys(), none.Keys())
	}
	if _, err := aead.New(make([]byte, 31)); err == nil {
		t.Error("a key of 31 bytes is accepted")
	}
}
