package keyring_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/keyring"
)

func TestUsesOfOneKey(t *testing.T) {
	is := is.New(t)
	var uses keyring.Uses[string]
	early, late, hash := time.Unix(60, 0), time.Unix(120, 0), "new"
	is.True(!uses.Moves("a"))
	uses.Add(keyring.Use[string]{ID: "a", At: late})
	uses.Add(keyring.Use[string]{ID: "a", At: early, New: &hash})
	is.True(uses.Moves("a"))
	uses.Add(keyring.Use[string]{ID: "a", At: early})
	is.Equal(uses.Take(), []keyring.Use[string]{{ID: "a", At: late, New: &hash}})
	is.Equal(uses.Take(), nil)
	is.True(!uses.Moves("a"))
}

func TestUsesAreBounded(t *testing.T) {
	is := is.New(t)
	var uses keyring.Uses[string]
	for i := range keyring.MostUses + 100 {
		uses.Add(keyring.Use[string]{ID: strconv.Itoa(i)})
	}
	uses.Add(keyring.Use[string]{ID: "0", At: time.Unix(1, 0)}) // one of those that wait
	is.True(!uses.Moves("0"))
	is.True(uses.Moves("another"))
	is.Equal(len(uses.Take()), keyring.MostUses)
}
