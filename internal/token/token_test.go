package token_test

import (
	"hash/crc32"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/token"
)

func tag(drawn string) uint32 { return uint32(len(drawn)) * 0x9e3779b1 }

func TestToken(t *testing.T) {
	is := is.New(t)
	made := token.New("svcu_", tag)
	key := made.String()
	is.True(regexp.MustCompile(`^svcu_[0-9A-Za-z]{54}$`).MatchString(key))

	parsed, ok := token.Parse(key, "svcu_")
	is.True(ok)
	is.Equal(parsed, made)
	is.True(parsed.Tagged(tag))
	is.True(!parsed.Tagged(func(string) uint32 { return 1 }))
	is.True(key != token.New("svcu_", tag).String())
}

// The last six characters are the standard CRC-32 in base62.
func TestChecksum(t *testing.T) {
	is := is.New(t)
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for range 100 {
		key := token.New("svcu_", tag).String()
		sum := uint32(0)
		for _, c := range key[len(key)-6:] {
			sum = sum*62 + uint32(strings.IndexRune(alphabet, c))
		}
		is.Equal(sum, crc32.ChecksumIEEE([]byte(key[:len(key)-6])))
	}
}

func TestWhole(t *testing.T) {
	key := token.New("svcu_", tag).String()
	for text, want := range map[string]bool{
		key: true, token.New("_", tag).String(): true, token.New("my_app_", tag).String(): true,
		"": false, "_": false, key[4:]: false, key[5:]: false, key[1:]: false, "x" + key: false, key + "0": false, key[:len(key)-1]: false, swap(key): false,
		token.New("svcu", tag).String(): false, token.New("", tag).String(): false,
	} {
		if token.Whole(text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	key := token.New("svcu_", tag).String()
	for name, bad := range map[string]string{
		"nothing":          "",
		"the prefix alone": "svcu_",
		"another prefix":   "svcs_" + key[5:],
		"one short":        key[:len(key)-1],
		"one more":         key + "0",
		"a space":          key + " ",
		"no base62":        key[:20] + "-" + key[21:],
		"two swapped":      swap(key),
	} {
		if _, ok := token.Parse(bad, "svcu_"); ok {
			t.Errorf("%s: %q parses", name, bad)
		}
	}
}

// swap exchanges the first two neighbours that differ.
func swap(key string) string {
	for i := 6; ; i++ {
		if key[i] != key[i-1] {
			return key[:i-1] + string(key[i]) + string(key[i-1]) + key[i+1:]
		}
	}
}

// TestUniform draws 320,000 characters: each of the 62 must appear about equally often.
func TestUniform(t *testing.T) {
	var all strings.Builder
	for range 10_000 {
		all.WriteString(token.New("", tag).Secret)
	}
	for _, c := range "0Az9Z" {
		n := strings.Count(all.String(), string(c))
		if mean := 10_000 * token.SecretLength / 62; n < mean*9/10 || n > mean*11/10 {
			t.Errorf("%c comes up %d times, the mean is %d", c, n, mean)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(token.New("svcu_", tag).String())
	f.Add("svcu_")
	f.Fuzz(func(t *testing.T, key string) {
		if parsed, ok := token.Parse(key, "svcu_"); ok && parsed.String() != key {
			t.Errorf("%q parses as %q", key, parsed.String())
		}
	})
}
