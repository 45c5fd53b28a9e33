package marketplace_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"

	"github.com/extsvc/svc/marketplace"
)

// signer signs catalogues. A letter gives its key.
type signer struct{ key ed25519.PrivateKey }

func newSigner(letter byte) signer {
	return signer{ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(letter), ed25519.SeedSize)))}
}

func (s signer) public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

func (s signer) sign(text string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(s.key, []byte(text)))
}

// series is a catalogue with one version of the template "a".
func series(version string, serial any, more string) string {
	return fmt.Sprintf(`{"serial":%v,%s"templates":[{"id":"a","name":"A","manifest":{"version":%q}}]}`, serial, more, version)
}

// publish puts a signed catalogue on a shelf.
func (s *shelf) publish(by signer, catalog string) {
	s.tagged("/templates.json", catalog)
	s.put("/templates.json.sig", shelved{body: by.sign(catalog) + "\n"})
}

// memory is a SourceMemory that keeps its serial.
type memory struct {
	files  map[string][]byte
	serial int64
	err    error // of AcceptSerial
}

func (m *memory) File(_ context.Context, path string) []byte { return m.files[path] }

func (m *memory) KeepFile(_ context.Context, path string, data []byte) {
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[path] = data
}

func (m *memory) AcceptSerial(_ context.Context, serial int64) (int64, error) {
	m.serial = max(m.serial, serial)
	return m.serial, m.err
}

func TestSignedFiles(t *testing.T) {
	is := is.New(t)
	acme := newSigner('a')
	files := fstest.MapFS{"templates.json": {Data: []byte(series("1", 1, ""))}}
	client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"shelf": files}})
	from := upstream("fs://shelf")
	from.SigningKey = acme.public()
	refuses(t, client, from, "is not signed: templates.json.sig does not exist")
	files["templates.json.sig"] = &fstest.MapFile{Data: []byte(acme.sign(series("1", 1, "")))}
	is.Equal(version(t, client, from), `{"version":"1"}`)
}
