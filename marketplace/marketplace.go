// Package marketplace fetches templates from sources. A [Client] is the [svc.Marketplace] of a
// host. A source is on a web server, in a repository on GitHub or GitLab, or in a file system of
// the host.
//
// A source is a directory. Its catalogue is the file templates.json in that directory:
//
//	{ "templates": [ { "id": "chat", "name": "Chat", "description": "…", "category": "…",
//	                   "integrations": ["…"], "tags": ["…"],
//	                   "manifest": {…}  or  "manifest_file": "manifests/chat.json" } ] }
//
// An entry needs an id, a name, and either a manifest or a manifest_file. A null member counts as
// absent. The Client ignores other keys. It reads JSON strictly (I-JSON, RFC 7493): no duplicate
// keys, no bad UTF-8. It refuses a whole file that is not strict JSON. A bad entry becomes an
// [svc.CatalogProblem]; the other entries stay usable.
//
// The Client trusts no source. It checks each address after the name is resolved and before it
// dials. It follows redirects itself, limits everything it reads, and refuses a manifest_file that
// leaves the directory of the source.
//
// The Client caches the last good answers of web sources, parsed, in at most [Config].Cache bytes.
// [Client.Template] asks the source each time whether they are still good (If-None-Match or
// If-Modified-Since, RFC 9110), so the source does not send unchanged files again. Only
// [Client.Catalog] can return a cached catalogue without asking, and then none older than its
// caller wants. A cached manifest needs no request while it has the manifest_digest of its entry.
//
// Concurrent calls share one request for a file. A cached copy belongs to one registration of a
// source, with one address, one token and one signing key. The Client reads file systems each time,
// without a cache.
package marketplace

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// Config configures a [Client]. The zero value works: it allows https at public addresses only.
type Config struct {
	// AllowOrigins lists origins that skip the checks, such as "http://127.0.0.1:9999" or
	// "https://git.corp.example". The Client reaches such an origin over plain http, at a port of
	// another protocol (the Fetch standard's list of bad ports: 22, 25, 6667 …), and at any address
	// its name leads to. An entry covers exactly its scheme, host and port, also in redirects.
	AllowOrigins []string
	// AllowCIDRs lists addresses that the Client may dial although they are not public. They still
	// need https and a port that is not on the Fetch standard's list of bad ports.
	AllowCIDRs []netip.Prefix
	// AllowPersonal makes AllowOrigins and AllowCIDRs hold for the sources of users as well. False:
	// they hold for the sources of the server only, and users reach public addresses over https.
	// With it, each user with action.TemplateSource can make this process request any path
	// there.
	AllowPersonal bool
	// Files holds file systems by name. Their addresses are fs://NAME and fs://NAME/dir. A name
	// consists of letters, digits and "-_.". The Client reads a file system concurrently.
	// Each user with action.TemplateSource can read the catalogues in it, in any directory.
	// [os.DirFS] follows symbolic links out of its directory; [os.Root.FS] does not.
	Files map[string]fs.FS
	// RootCAs may sign the certificates of servers. Nil: the roots of the system.
	RootCAs *x509.CertPool
	// UserAgent is the User-Agent header of requests, in printable ASCII. "": "extsvc-svc".
	UserAgent string
	// Cache limits the cached catalogues and manifests, in bytes of memory. The least recently used
	// copy goes first. A copy larger than half of Cache is not cached. 0: 64 MiB. Negative: the
	// Client caches nothing.
	Cache int
	// Reading limits the answers of sources that are being read and parsed at the same time, in
	// bytes after decompression. To parse an answer takes up to eight times as much memory, and up
	// to 30 MiB where it has many entries; two of the server's sources are parsed at the same time,
	// and one of the users'. Answers of up to 512 KiB do not count, or of 256 KiB if they come
	// without a length. Larger ones wait in turn, for at most half of Limits.Timeout: the sources
	// of users share half of Reading, one answer of a user at a time. A reader that is slow while
	// others wait ends with [svc.CodeSourceTimeout]. While an answer larger than Reading is read,
	// no other is. 0: 64 MiB.
	Reading int
	// Limits bound the work that a source can cause in this process.
	Limits Limits
}

// Limits bound the work that a source can cause in a [Client]. A zero field has its default. New
// refuses a negative field except Redirects. Sizes are in bytes after decompression. JSON nests at
// most [limits.Nesting] levels, counted within each manifest.
type Limits struct {
	// Catalog is the size of a catalogue. 0: 32 MiB.
	Catalog int
	// Entries is the number of entries in a catalogue. 0: 100,000.
	Entries int
	// Manifest is the size of a manifest, fetched or inline. 0: limits.Manifest.
	Manifest int
	// Redirects is how many redirects the Client follows for one file. 0: 5. Negative: none.
	Redirects int
	// HeaderTimeout runs from a request to the headers of its answer and includes the connecting.
	// 0: 10 s.
	HeaderTimeout time.Duration
	// Timeout is for one call of a Client, with all its requests and redirects. 0: 30 s.
	Timeout time.Duration
}

// Client fetches templates from sources. Use [New]. It is safe for concurrent use.
type Client struct {
	files         map[string]fs.FS
	origins       map[origin]bool // allowed by the host
	allowPersonal bool
	guard         guard
	userAgent     string
	limits        Limits
	copies        *copies
	flights       *flights
	reading       *reading
	parsing       parsing
	now           func() time.Time

	guarded *http.Transport // dials only the addresses that guard admits
	allowed *http.Transport // dials any address; only for requests to the allowed origins
	public  *http.Transport // dials only public addresses; for sources that are not trusted
}

var (
	_ svc.Marketplace   = (*Client)(nil)
	_ svc.SourceChecker = (*Client)(nil)
)

// New returns a Client with that configuration. An error names the wrong field. New contacts no
// server and reads no file.
func New(config Config) (*Client, error) {
	c := &Client{
		files:         make(map[string]fs.FS, len(config.Files)),
		origins:       make(map[origin]bool, len(config.AllowOrigins)),
		userAgent:     config.UserAgent,
		allowPersonal: config.AllowPersonal,
	}
	for i, text := range config.AllowOrigins {
		o, problem := parseOrigin(text)
		if problem != "" {
			return nil, fmt.Errorf("marketplace: Config.AllowOrigins[%d] %s", i, problem)
		}
		c.origins[o] = true
	}
	for i, prefix := range config.AllowCIDRs {
		if !prefix.IsValid() || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("marketplace: Config.AllowCIDRs[%d]"+
				" is not a valid IPv4 or IPv6 prefix", i)
		}
	}
	c.guard.allow = slices.Clone(config.AllowCIDRs)
	for name, files := range config.Files {
		badName := strings.ContainsFunc(name, func(r rune) bool { return r != '.' && notInName(r) })
		if name == "" || files == nil || badName {
			return nil, fmt.Errorf("marketplace: Config.Files[%q] must have"+
				" a name of letters, digits and -_. and a file system", name)
		}
		c.files[name] = files
	}
	if c.userAgent == "" {
		c.userAgent = "extsvc-svc"
	} else if strings.ContainsFunc(c.userAgent, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("marketplace: Config.UserAgent must be printable ASCII")
	}
	var err error
	if c.limits, err = config.Limits.orDefaults(); err != nil {
		return nil, err
	}
	if config.Reading < 0 {
		return nil, errors.New("marketplace: Config.Reading must not be negative")
	}
	c.now = time.Now
	c.reading = newReading(config.Reading, c.limits.Timeout/2)
	c.parsing = newParsing()
	c.copies = newCopies(config.Cache)
	c.flights = &flights{timeout: c.limits.Timeout, all: map[flightKey]*sharedFetch{}}
	c.guarded = c.transport(config.RootCAs, c.guard.control)
	c.allowed = c.transport(config.RootCAs, nil)
	c.public = c.transport(config.RootCAs, c.guard.controlPublic)
	return c, nil
}

func (l Limits) orDefaults() (Limits, error) {
	switch {
	case l.Catalog < 0:
		return l, errors.New("marketplace: Config.Limits.Catalog must not be negative")
	case l.Entries < 0:
		return l, errors.New("marketplace: Config.Limits.Entries must not be negative")
	case l.Manifest < 0:
		return l, errors.New("marketplace: Config.Limits.Manifest must not be negative")
	case l.HeaderTimeout < 0:
		return l, errors.New("marketplace: Config.Limits.HeaderTimeout must not be negative")
	case l.Timeout < 0:
		return l, errors.New("marketplace: Config.Limits.Timeout must not be negative")
	}
	return Limits{
		Catalog:       cmp.Or(l.Catalog, 32<<20),
		Entries:       cmp.Or(l.Entries, 100_000),
		Manifest:      cmp.Or(l.Manifest, limits.Manifest),
		Redirects:     cmp.Or(l.Redirects, 5),
		HeaderTimeout: cmp.Or(l.HeaderTimeout, 10*time.Second),
		Timeout:       cmp.Or(l.Timeout, 30*time.Second),
	}, nil
}

// CheckURL implements [svc.Marketplace]. It is CheckSource for a source of the server.
func (c *Client) CheckURL(url string) error {
	return c.CheckSource(svc.SourceKey{Scope: svc.ScopeServer}, url)
}

// CheckSource implements [svc.SourceChecker]. It refuses a malformed or forbidden address, and
// resolves no name. The text of the error continues a sentence that begins with the address.
func (c *Client) CheckSource(source svc.SourceKey, url string) error {
	_, problem := c.place(url, c.trusts(source))
	if problem == "" {
		problem = notDirectory(url)
	}
	if problem != "" {
		return errors.New(problem)
	}
	return nil
}

// Template implements [svc.Marketplace]. It asks the source for the catalogue, and for the
// manifest_file if the entry has one. Concurrent calls share the request for a file. The content
// belongs to the caller; its lists are not nil.
//
// An error is an [*svc.Error]. CodeNotFound: the catalogue has no entry with that id.
// CodeSourceFailed: the source is unreachable or forbidden, its answer is bad, or the entry is bad.
// CodeSourceTimeout: the source took too long. CodeUnavailable: the store cannot check the serial
// of a signed catalogue. When the caller cancels ctx, the error is no Error and wraps
// [context.Canceled].
func (c *Client) Template(
	ctx context.Context, from svc.Upstream, id string,
) (svc.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	at, err := c.locate(from)
	if err != nil {
		return svc.Content{}, err
	}
	file, err := c.file(ctx, at, keyOf(from, ""))
	if err != nil {
		return svc.Content{}, badCatalog(at, err)
	}
	entry, err := entryOf(file.catalog, from, id)
	if err != nil || entry.ManifestFile == "" {
		return own(entry.Content), err
	}
	entry.Content.Manifest, err = c.manifest(ctx, at, entry)
	return own(entry.Content), err
}

// Manifest implements [svc.Marketplace]. Errors are those of [Client.Template] without
// CodeNotFound.
func (c *Client) Manifest(
	ctx context.Context, from svc.Upstream, entry svc.CatalogEntry,
) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	at, err := c.locate(from)
	if err != nil {
		return nil, err
	}
	if entry.ManifestFile == "" {
		return slices.Clone(entry.Content.Manifest), nil
	}
	if _, problem := relativePath(entry.ManifestFile); problem != "" {
		return nil, badManifest(at, entry, newFault(problem, nil))
	}
	manifest, err := c.manifest(ctx, at, entry)
	return slices.Clone(manifest), err
}

// manifest returns the manifest in the manifest_file of an entry. It returns the cached copy if
// that has the manifest_digest of the entry. Otherwise it asks the source.
func (c *Client) manifest(
	ctx context.Context, at place, entry svc.CatalogEntry,
) (json.RawMessage, error) {
	key := keyOf(at.from, entry.ManifestFile)
	if entry.ManifestDigest != "" {
		if file := c.knownCopy(ctx, at, key); file != nil && file.digest == entry.ManifestDigest {
			return file.manifest, nil
		}
	}
	file, err := c.file(ctx, at, key)
	if err == nil && entry.ManifestDigest != "" && file.digest != entry.ManifestDigest {
		err = newFault("does not match the manifest_digest of the catalogue", nil)
	}
	if err != nil {
		return nil, badManifest(at, entry, err)
	}
	return file.manifest, nil
}

// Catalog implements [svc.Marketplace]. It returns a cached catalogue of at most maxAge, or asks
// the source; a maxAge of 0 always asks. If the source fails, Catalog returns the cached catalogue
// of any age, with the error in its Failure. Without a cached catalogue, and when the caller
// cancels ctx, it returns the error.
//
// An entry with a manifest_file has its manifest if the source gave or confirmed the file within
// maxAge, or if the cached file has the entry's manifest_digest. Errors are those of
// [Client.Template] without CodeNotFound.
func (c *Client) Catalog(
	ctx context.Context, from svc.Upstream, maxAge time.Duration,
) (svc.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	at, err := c.locate(from)
	if err != nil {
		return svc.Catalog{}, err
	}
	key, since := keyOf(from, ""), c.now().Add(-maxAge)
	file := c.copies.get(key)
	var failure error
	if file == nil || maxAge <= 0 || file.asked.Before(since) {
		asked, err := c.file(ctx, at, key)
		if err == nil {
			file = asked
		} else if failure = badCatalog(at, err); file == nil {
			file = c.copies.get(key) // c.file may have recalled a copy from the store
		}
	}
	if file == nil || errors.Is(failure, context.Canceled) {
		return svc.Catalog{}, failure
	}
	catalog := file.catalog
	catalog.FetchedAt, catalog.Failure = file.asked.Round(0), failure
	catalog.Entries = c.withManifests(key, file, since)
	return catalog, nil
}

// withManifests returns the entries of a catalogue with the cached manifests of their files. A
// cached manifest must match the manifest_digest, or else be fetched or confirmed since that time.
func (c *Client) withManifests(
	key fileKey, catalog *fileCopy, since time.Time,
) []svc.CatalogEntry {
	entries, shared := catalog.catalog.Entries, true
	for _, i := range catalog.files {
		entry := entries[i]
		key.manifest = entry.ManifestFile
		file := c.copies.get(key)
		if file == nil || entry.ManifestDigest != file.digest &&
			(entry.ManifestDigest != "" || file.asked.Before(since)) {
			continue
		}
		if shared {
			entries, shared = slices.Clone(entries), false
		}
		entries[i].Content.Manifest = file.manifest
	}
	return entries
}

// own returns a copy of a content that shares no memory with the cache.
func own(content svc.Content) svc.Content {
	for _, text := range []**string{&content.Description, &content.Category} {
		if *text != nil {
			*text = new(**text)
		}
	}
	content.Integrations = slices.Clone(content.Integrations)
	content.Tags = slices.Clone(content.Tags)
	content.Manifest = slices.Clone(content.Manifest)
	return content
}

// CacheStats returns the present size of the cache and its counters.
func (c *Client) CacheStats() CacheStats { return c.copies.look() }

// CloseIdleConnections closes the connections that wait for further requests. The Client stays
// usable.
func (c *Client) CloseIdleConnections() {
	c.guarded.CloseIdleConnections()
	c.allowed.CloseIdleConnections()
	c.public.CloseIdleConnections()
}
