package bench_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/extsvc/svc"
)

// BenchmarkDigest compares the revision of a content with the hash that a library of RFC 8785 leads
// to, given the same object as text.
func BenchmarkDigest(b *testing.B) {
	for _, size := range []int{4 << 10, 200 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			content := mixedContent(size, 1)
			object := objectOf(content)
			if err := sameDigest(content); err != nil {
				b.Fatal(err)
			}
			compare(b,
				side{name: "jcs", call: func() error {
					_, err := peerDigest(object)
					return err
				}},
				side{name: "service", call: func() error {
					_, err := content.Revision()
					return err
				}})
		})
	}
}

// TestDigest checks that both give the same digest when doubles hold all numbers.
func TestDigest(t *testing.T) {
	for seed := range uint64(50) {
		if err := sameDigest(mixedContent(3000, seed)); err != nil {
			t.Error(err)
		}
	}
}

func sameDigest(content svc.Content) error {
	revision, err := content.Revision()
	digest, failed := peerDigest(objectOf(content))
	return errors.Join(err, failed, equal(revision, digest))
}

func peerDigest(object []byte) (string, error) {
	canonical, err := jcs.Transform(object)
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

// objectOf returns the object that a revision digests.
func objectOf(c svc.Content) []byte {
	object := map[string]any{
		"name": c.Name, "description": c.Description, "category": c.Category, "integrations": c.Integrations, "tags": c.Tags,
		"manifest": c.Manifest,
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // this program made it
	}
	return text
}

// mixedContent returns a content of about that size with all forms of JSON: keys in another order
// than that of RFC 8785, escapes, several scripts, and numbers that doubles hold, written in
// several ways.
func mixedContent(size int, seed uint64) svc.Content {
	draw := rand.New(rand.NewPCG(8785, seed))
	words := strings.Fields(`plain words as prose has them Zusammenfassung für „alle“ 今日 😀 \"quoted\" two\nlines \u00e9\u20ac a\/b`)
	numbers := []string{"0", "-0", "1e2", "12.50", "-7", "1E-7", "333333333.3333333", "9007199254740992", "1e21", "0.1", "5e-324"}
	var b strings.Builder
	b.WriteString(`{"version":"1","steps":[`)
	for b.Len() < size-200 {
		fmt.Fprintf(&b, `{"text":"`)
		for range 8 {
			b.WriteString(words[draw.IntN(len(words))] + " ")
		}
		fmt.Fprintf(&b, `","retries":%d,"weight":%s,"on":%t,"else":null,"args":["--a",[%s,{"z":{},"\u20ac":1,"a":[]}]]},`,
			draw.IntN(10), numbers[draw.IntN(len(numbers))], draw.IntN(2) == 0, numbers[draw.IntN(len(numbers))])
	}
	content := installed()
	content.Manifest = json.RawMessage(strings.TrimSuffix(b.String(), ",") + `]}`)
	return content
}
