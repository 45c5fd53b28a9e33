package keyring_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/token"
)

var prefixes = []keyring.Prefix{
	{Field: "UserPrefix", Kind: "user", Text: "u_"},
	{Field: "AccountPrefix", Kind: "account", Text: "a_"},
}

func ring(t *testing.T, peppers ...keyring.Pepper) *keyring.Ring {
	t.Helper()
	r, err := keyring.New(keyring.Config{Prefixes: prefixes, Peppers: peppers})
	is.New(t).NoErr(err)
	return r
}

func imports(t *testing.T) *keyring.Ring {
	t.Helper()
	r, err := keyring.New(keyring.Config{Prefixes: prefixes, Imports: []keyring.Import{
		{Prefix: "sk-"}, {Prefix: strings.Repeat("x", 32)},
		{Prefix: "old:", Hash: func(key string) []byte { return []byte(key) }},
	}})
	is.New(t).NoErr(err)
	return r
}

func TestNewNamesTheField(t *testing.T) {
	for want, prefixes := range map[string][]string{ // of users, of accounts, of other systems
		"UserPrefix: \"\" must be 1 to 16": {"", "a_"},
		"UserPrefix: \"a\"":                {"a", "a_"},
		"AccountPrefix: \"A_\"":            {"u_", "A_"},
		"AccountPrefix: \"seventeen":       {"u_", "seventeen_letters_"},
		"AccountPrefix: \"u_a_\" and":      {"u_", "u_a_"},
		"AccountPrefix: \"u_\" and":        {"u_a_", "u_"},
		"Imports[0].Prefix must be 1 to":   {"u_", "a_", ""},
		"Imports[1].Prefix must be":        {"u_", "a_", "sk-", "b b"},
		"Imports[0].Prefix must be":        {"u_", "a_", strings.Repeat("x", 33)},
		"Imports[0].Prefix: \"u\" and":     {"u_", "a_", "u"},
		"Imports[0].Prefix: \"a_b\" and":   {"u_", "a_", "a_b"},
		"Imports[1].Prefix: \"sk\" and":    {"u_", "a_", "sk-", "sk"},
		"Imports[2].Prefix: \"sk-\" and":   {"u_", "a_", "sk-", "other", "sk-"},
	} {
		config := keyring.Config{Prefixes: []keyring.Prefix{
			{Field: "UserPrefix", Kind: "user", Text: prefixes[0]},
			{Field: "AccountPrefix", Kind: "account", Text: prefixes[1]},
		}}
		for _, prefix := range prefixes[2:] {
			config.Imports = append(config.Imports, keyring.Import{Prefix: prefix})
		}
		if _, err := keyring.New(config); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

func TestClaim(t *testing.T) {
	is, r := is.New(t), imports(t)
	tags, err := r.Tags(t.Context(), values{}, true)
	is.NoErr(err)
	for _, kind := range []string{"user", "account"} {
		key := r.Draw(kind, tags)
		c, ours := r.Claim(key.String())
		is.True(ours)
		is.Equal(c, keyring.Claim{Token: key, Kind: kind, Good: true})
		c, ours = r.Claim(key.String() + "x") // mistyped, and still nobody else's
		is.True(ours && !c.Good)
	}
	for bearer, good := range map[string]bool{
		"sk-": true, "sk-1": true, "sk-" + strings.Repeat("1", 509): true,
		"sk-" + strings.Repeat("1", 510): false,
		"old:" + strings.Repeat("1", 11): false, "old:" + strings.Repeat("1", 12): true,
		"old:" + strings.Repeat("1", 60): true, "old:" + strings.Repeat("1", 61): false,
	} {
		c, ours := r.Claim(bearer)
		is.Equal([]any{ours, c.Good, c.Kind}, []any{true, good, ""})
	}
	for _, bearer := range []string{"", "u", "sk", "SK-1", "eyJhbGciOi"} {
		_, ours := r.Claim(bearer)
		is.True(!ours)
	}
	for prefix, wrong := range map[string][4]string{"sk-": {"hash", "hash", "", "hash"}, "old:": {"hash", "", "", "hash"}, "u_": {"prefix", "prefix", "prefix", "prefix"}} {
		for i, bytes := range []int{15, 64, 32, 65} {
			field, _ := r.CheckImport(prefix, make([]byte, bytes))
			is.Equal(field, wrong[i])
		}
	}
}

// A claim matches a row with its holder's kind, its hash and its pepper.
func TestMatches(t *testing.T) {
	is := is.New(t)
	r := imports(t)
	key := token.Imported("sk-", []byte("sixteen bytes, at least"))
	hash := r.Hash("user", key)
	is.True(key.ID != token.Imported("sk-", []byte("some other sixteen bytes")).ID)
	issued := keyring.Claim{Token: key, Kind: "user", Good: true}
	imported := keyring.Claim{Token: key, Good: true} // the row has the kind
	for _, c := range []keyring.Claim{issued, imported} {
		is.True(r.Matches(c, "user", hash, 0))
		is.True(!r.Matches(c, "user", hash, keyring.NoPepper))
		is.True(!r.Matches(c, "account", hash, 0))
		is.True(!r.Matches(c, "user", r.Hash("account", key), 0))
		is.True(!r.Matches(c, "user", [32]byte{}, 0))
		for _, part := range []*string{&c.ID, &c.Secret} {
			whole := *part
			*part = "x" + whole[1:]
			is.True(!r.Matches(c, "user", hash, 0))
			*part = whole
		}
	}
}

func TestMask(t *testing.T) {
	is := is.New(t)
	r := imports(t)
	long, short := strings.Repeat("1", 16), strings.Repeat("1", 15)
	for text, want := range map[string]string{
		"":                                   "",
		"sk-" + long + "\x7f":                "sk-***\x7f",
		"sk-" + short:                        "sk-" + short,
		"sk- " + long:                        "sk- " + long,
		"no sk-" + long + " old:" + long:     "no sk-*** old:***",
		`{"a":"sk-` + long + `"}`:            `{"a":"sk-***"}`,
		"sk-sk-" + long:                      "sk-***",
		"u_" + long:                          "u_" + long,
		"u_" + strings.Repeat("1", 60):       "u_" + long + "***",
		"u_" + long + long + short[2:] + "!": "u_" + long + long + short[2:] + "!", // an id and 29
		"_" + long + long + short[1:]:        "_" + long + "***",
		"u_" + long + long + long + "!":      "u_" + long + "***!",
	} {
		is.Equal(r.Mask(text), want)
	}
}

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
