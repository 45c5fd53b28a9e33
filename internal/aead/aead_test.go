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
	_, err := one.Open(sealed, []byte("row 2"))
	is.True(errors.Is(err, aead.ErrOpen))
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
