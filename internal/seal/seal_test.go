package seal_test

import (
	"bytes"
	"testing"

	"github.com/extsvc/svc/internal/seal"
	"github.com/matryer/is"
)

func TestSeal(t *testing.T) {
	is := is.New(t)
	sealer, err := seal.New(bytes.Repeat([]byte{1}, seal.KeySize))
	is.NoErr(err)
	other, err := seal.New(bytes.Repeat([]byte{2}, seal.KeySize))
	is.NoErr(err)

	sealed := sealer.Seal([]byte("secret"), []byte("row 1"))
	is.True(!bytes.Contains(sealed, []byte("secret")))
	is.True(!bytes.Equal(sealed, sealer.Seal([]byte("secret"), []byte("row 1")))) // a nonce each

	opened, err := sealer.Open(sealed, []byte("row 1"))
	is.NoErr(err)
	is.Equal(string(opened), "secret")

	for name, open := range map[string]func() ([]byte, error){
		"another row": func() ([]byte, error) { return sealer.Open(sealed, []byte("row 2")) },
		"another key": func() ([]byte, error) { return other.Open(sealed, []byte("row 1")) },
		"too short":   func() ([]byte, error) { return sealer.Open(sealed[:8], []byte("row 1")) },
		"a flipped bit": func() ([]byte, error) {
			return sealer.Open(append(bytes.Clone(sealed[:len(sealed)-1]), sealed[len(sealed)-1]^1), []byte("row 1"))
		},
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s opens it", name)
		}
	}
}

func TestKeySize(t *testing.T) {
	if _, err := seal.New(make([]byte, 31)); err == nil {
		t.Error("a key of 31 bytes is accepted")
	}
}
