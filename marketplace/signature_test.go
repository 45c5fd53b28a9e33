package marketplace_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
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
	s.put("/templates.json.sig", by.sign(catalog)+"\n", nil)
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

func TestSigned(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	acme := newSigner('a')
	from.SigningKey = acme.public()
	s.publish(acme, series("1", 7, `"expires":"2999-01-02T03:04:05Z",`))
	is.Equal(version(t, client, from), `{"version":"1"}`)
	catalog := must(client.Catalog(t.Context(), from, time.Minute))
	is.Equal(catalog.Serial, int64(7))
	is.Equal(catalog.Expires, time.Date(2999, 1, 2, 3, 4, 5, 0, time.UTC))
	is.Equal(version(t, client, from), `{"version":"1"}`)
	is.Equal(len(s.requests()), 3) // the catalogue, its signature, and a 304: what has not changed is signed still

	s.publish(acme, series("2", 7, ""))
	is.Equal(version(t, client, from), `{"version":"2"}`)
	is.Equal(len(s.requests()), 2)

	from.SigningKey = nil // the serial of an unsigned catalogue does not count
	catalog = must(client.Catalog(t.Context(), from, 0))
	is.Equal(catalog.Serial, int64(0))
}

// The client refuses a bad signature, serial or expiry, and the last good copy stays.
func TestBadlySigned(t *testing.T) {
	acme, mallory := newSigner('a'), newSigner('m')
	good := series("2", 2, "")
	for name, c := range map[string]struct {
		catalog, signature string
		says               string
	}{
		"unsigned":              {good, "", "is not signed: templates.json.sig answered 404"},
		"by another key":        {good, mallory.sign(good), "is not signed with the source's key"},
		"another text":          {good, acme.sign(series("1", 2, "")), "is not signed with the source's key"},
		"a byte more":           {good + " ", acme.sign(good), "is not signed with the source's key"},
		"not base64":            {good, "%" + acme.sign(good)[1:], "must be 64 bytes in base64"},
		"too short":             {good, acme.sign(good)[:84], "must be 64 bytes in base64"},
		"empty":                 {good, "\n", "must be 64 bytes in base64"},
		"a web page":            {good, "<html>", "templates.json.sig is a web page"},
		"too long":              {good, strings.Repeat("A", 5000), "templates.json.sig is larger than 4096 bytes"},
		"no serial":             {oneEntry, acme.sign(oneEntry), "must have a serial"},
		"serial 0":              signed(acme, series("2", 0, ""), "must have a serial"),
		"a fraction":            signed(acme, series("2", 2.5, ""), "must have a serial"),
		"a serial as text":      signed(acme, series("2", `"2"`, ""), "must have a serial"),
		"too great":             signed(acme, series("2", "9007199254740993", ""), "must have a serial"),
		"an older one":          signed(acme, series("0", 1, ""), "has serial 1, but serial 2 was accepted before"),
		"expired":               signed(acme, series("2", 3, `"expires":"2026-11-20T00:00:00Z",`), "has expired, on 2026-11-20T00:00:00Z"),
		"an expiry that is not": signed(acme, series("2", 3, `"expires":"soon",`), "expires must be a time"),
		"a manifest that nobody signed": signed(acme, `{"serial":3,"templates":[{"id":"a","name":"A","manifest_file":"m.json"}]}`,
			"it must have a manifest_digest"),
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s, client, from := newShelf(t, marketplace.Config{})
			client.SetNow(func() time.Time { return time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) })
			from.SigningKey, from.Memory = acme.public(), &memory{serial: 2}
			s.publish(acme, series("1", 2, ""))
			is.Equal(version(t, client, from), `{"version":"1"}`)
			s.tagged("/templates.json", c.catalog)
			s.put("/templates.json.sig", c.signature, nil)
			if c.signature == "" {
				delete(s.files, "/templates.json.sig")
			}
			for range 2 {
				refuses(t, client, from, c.says)
			}
			if strings.Contains(name, "manifest that") {
				return // the catalogue itself is good
			}
			catalog := must(client.Catalog(t.Context(), from, 0))
			is.True(catalog.Failure != nil)
			is.Equal(string(catalog.Entries[0].Content.Manifest), `{"version":"1"}`)
		})
	}
}

func signed(by signer, catalog, says string) struct{ catalog, signature, says string } {
	return struct{ catalog, signature, says string }{catalog, by.sign(catalog), says}
}

// A copy expires at its own expiry, also when the server says that it has not changed.
func TestCopyExpires(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	client.SetNow(func() time.Time { return now })
	acme := newSigner('a')
	from.SigningKey = acme.public()
	s.publish(acme, series("1", 1, `"expires":"2026-11-22T00:00:00+01:00",`))
	is.Equal(version(t, client, from), `{"version":"1"}`)
	now = now.Add(23 * time.Hour)
	is.Equal(version(t, client, from), `{"version":"1"}`)
	now = now.Add(time.Second)
	refuses(t, client, from, "has expired, on 2026-11-21T23:00:00Z")
}

// The accepted serial outlives a client, in the row of the source or in the memory.
func TestSerialOutlivesTheClient(t *testing.T) {
	is := is.New(t)
	acme := newSigner('a')
	s, first, from := newShelf(t, marketplace.Config{})
	from.SigningKey, from.Memory = acme.public(), &memory{}
	s.publish(acme, series("2", 2, ""))
	is.Equal(version(t, first, from), `{"version":"2"}`)
	s.publish(acme, series("1", 1, ""))
	second := newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}})
	refuses(t, second, from, "has serial 1, but serial 2 was accepted before")
	from.Memory, from.Serial = nil, 2
	refuses(t, second, from, "has serial 1, but serial 2 was accepted before")

	from.Memory = &memory{err: errors.New("down")}
	s.publish(acme, series("3", 3, ""))
	_, err := second.Template(t.Context(), from, "a")
	wantError(t, err, svc.CodeUnavailable, "has a serial that cannot be checked now")
}

// A signed source that is removed while it answers is the problem of that source alone.
func TestSignedSourceIsRemoved(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	acme := newSigner('a')
	s, client, from := newShelf(t, marketplace.Config{})
	s.publish(acme, series("1", 1, ""))
	service, err := svc.New(svc.Config{Store: memstore.New(), Sources: svc.SourceConfig{Marketplace: client}})
	is.NoErr(err)
	defer service.Close()
	for name, key := range map[string]ed25519.PublicKey{"signed": acme.public(), "other": nil} {
		_, err := service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: from.URL, Alias: &name, SigningKey: key})
		is.NoErr(err)
		_, err = service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "a", SourceName: name, AliasID: &name})
		is.NoErr(err)
	}
	s.publish(acme, series("2", 2, ""))
	s.beforeEach(func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sig") {
			_ = service.Sources.Remove(context.Background(), svc.Host, "signed")
		}
	})
	report, err := service.Templates.CheckUpdates(ctx, svc.Host, nil)
	is.NoErr(err)
	is.Equal(len(report.Templates), 1)
	is.Equal(report.Templates[0].ID, "other")
	is.Equal(report.Sources[1].Problem, `source "signed": its catalogue was asked for before the source was removed`)
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
