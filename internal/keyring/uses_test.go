package keyring_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/keyring"
)

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
