// Package marketplace fetches templates from sources: web servers, repositories on GitHub and GitLab, and file systems
// that the host gives. A [Client] is the [svc.Marketplace] of a host.
//
// A source is a directory, and its catalogue is the file templates.json in it:
//
//	{ "templates": [ { "id": "chat", "name": "Chat", "description": "…", "category": "…",
//	                   "integrations": ["…"], "tags": ["…"],
//	                   "manifest": {…}  or  "manifest_file": "manifests/chat.json" } ] }
//
// Only id, name and one of manifest and manifest_file are needed; null is absent; other keys are ignored. JSON is read
// strictly (I-JSON, RFC 7493: no duplicate keys, no bad UTF-8). A file that breaks these rules is refused as a whole; an
// entry that does is an [svc.CatalogProblem], and does not stop the others.
//
// Nothing that a source says is trusted: every address that is dialled is checked after the name was resolved,
// redirects are followed by hand, everything that is read has a limit, and a manifest_file cannot leave its directory.
//
// The last good answers of the web are kept in memory, parsed, at most [Config].Cache bytes of them. [Client.Template]
// asks the source each time whether they still hold (If-None-Match or If-Modified-Since, RFC 9110), so that what has not
// changed is not sent again; only [Client.Catalog] may be content with a copy, no older than its caller wants. Calls at
// the same time share one request for a file. A copy belongs to one registration of a source, its address and its token.
// File systems are read each time.
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
)

// Config is what a [Client] is built from. The zero value works: it reaches https at public addresses.
type Config struct {
	// AllowOrigins are origins ("http://127.0.0.1:9999", "https://git.corp.example") that may be reached although
	// they are plain http, at a port of another protocol (the Fetch standard's list of bad ports: 22, 25, 6667 …), or
	// wherever their name leads: exactly that scheme, host and port, in redirects too.
	AllowOrigins []string
	// AllowCIDRs are addresses that may be dialled although they are not public. They allow no plain http, and no port of
	// another protocol.
	AllowCIDRs []netip.Prefix
	// Files are sources in file systems, addressed as fs://NAME or fs://NAME/dir. Names are of letters, digits
	// and "-_.". A file system is read concurrently. [os.DirFS] follows symbolic links out of its directory;
	// [os.Root.FS] does not.
	Files map[string]fs.FS
	// RootCAs are who may sign a server's certificate. Nil: those of the system.
	RootCAs *x509.CertPool
	// UserAgent is sent to servers. "": "extsvc-svc".
	UserAgent string
	// Cache is how many bytes of catalogues and manifests are kept, as they lie in memory; those that were used least
	// lately go first, and none is kept that takes more than half. 0: 64 MiB. Negative: nothing is kept.
	Cache int
	// Limits bound what a source can make this process do.
	Limits Limits
}

// Limits bound what a source can make a [Client] do. Zero fields have the default that stands beside them. Sizes are in
// bytes, after decompression. JSON may be nested [svc.MaxNesting] levels deep, counted within each manifest.
type Limits struct {
	Catalog       int           // of a catalogue: 32 MiB
	Entries       int           // in a catalogue: 100,000
	Manifest      int           // of a manifest, fetched or inline: svc.MaxManifest
	Redirects     int           // followed for one file: 5; negative: none
	HeaderTimeout time.Duration // from a request to the headers of its answer, connecting included: 10 s
	Timeout       time.Duration // for one call of a Client, all its requests and redirects included: 30 s
}

// Client fetches templates from sources. Use [New]. It is safe for concurrent use.
type Client struct {
	files     map[string]fs.FS
	origins   map[origin]bool // allowed by the host
	guard     guard
	userAgent string
	limits    Limits
	copies    *copies
	flights   *flights
	now       func() time.Time

	guarded *http.Transport // dials what guard admits
	allowed *http.Transport // dials anything: for requests to origins only
}

var _ svc.Marketplace = (*Client)(nil)

// New returns a Client over config, or an error that names the field that is wrong. It contacts nobody.
func New(config Config) (*Client, error) {
	c := &Client{
		files:     make(map[string]fs.FS, len(config.Files)),
		origins:   make(map[origin]bool, len(config.AllowOrigins)),
		userAgent: config.UserAgent,
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
			return nil, fmt.Errorf("marketplace: Config.AllowCIDRs[%d] is not a valid IPv4 or IPv6 prefix", i)
		}
	}
	c.guard.allow = slices.Clone(config.AllowCIDRs)
	for name, files := range config.Files {
		if name == "" || files == nil || strings.ContainsFunc(name, func(r rune) bool { return r != '.' && notInName(r) }) {
			return nil, fmt.Errorf("marketplace: Config.Files[%q] must have a name of letters, digits and -_. and a file system", name)
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
	c.now = time.Now
	c.copies = newCopies(config.Cache)
	c.flights = &flights{timeout: c.limits.Timeout, all: map[flightKey]*flight{}}
	c.guarded = c.transport(config.RootCAs, c.guard.control)
	c.allowed = c.transport(config.RootCAs, nil)
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
		Manifest:      cmp.Or(l.Manifest, svc.MaxManifest),
		Redirects:     cmp.Or(l.Redirects, 5),
		HeaderTimeout: cmp.Or(l.HeaderTimeout, 10*time.Second),
		Timeout:       cmp.Or(l.Timeout, 30*time.Second),
	}, nil
}

// CheckURL implements [svc.Marketplace]: it refuses an address that can be seen to be malformed or forbidden, without
// resolving its name. What the error says continues a sentence that begins with the address.
func (c *Client) CheckURL(url string) error {
	if _, problem := c.place(url); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// Template implements [svc.Marketplace]: it asks the source, now, for its catalogue, and for the file of the manifest
// when the catalogue names one. A request for the same file that is under way already is shared. The content is the
// caller's own, its lists not nil.
//
// Errors are [*svc.Error] with CodeNotFound (the catalogue has no entry with that id), CodeSourceFailed (the source is
// unreachable, forbidden or answers badly, or the entry is bad) or CodeSourceTimeout; and, when the caller cancels
// ctx, one that wraps [context.Canceled].
func (c *Client) Template(ctx context.Context, from svc.Upstream, id string) (svc.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	at, err := c.locate(from)
	if err != nil {
		return svc.Content{}, err
	}
	file, err := c.file(ctx, at, keyOf(from, ""))
	if err != nil {
		return svc.Content{}, badCatalog(from, err)
	}
	entry, err := entryOf(file.catalog, from, id)
	if err != nil || entry.ManifestFile == "" {
		return own(entry.Content), err
	}
	entry.Content.Manifest, err = c.manifest(ctx, at, entry)
	return own(entry.Content), err
}

// Manifest implements [svc.Marketplace]. Errors are those of [Client.Template], without CodeNotFound.
func (c *Client) Manifest(ctx context.Context, from svc.Upstream, entry svc.CatalogEntry) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	at, err := c.locate(from)
	if err != nil {
		return nil, err
	}
	if entry.ManifestFile == "" {
		return slices.Clone(entry.Content.Manifest), nil
	}
	if _, problem := confined(entry.ManifestFile); problem != "" {
		return nil, badManifest(from, entry, failed(problem, nil))
	}
	manifest, err := c.manifest(ctx, at, entry)
	return slices.Clone(manifest), err
}

// manifest returns the manifest of an entry that is in a file: the copy, if it is what the catalogue, which has just been asked for,
// says; else the source is asked.
func (c *Client) manifest(ctx context.Context, at place, entry svc.CatalogEntry) (json.RawMessage, error) {
	key := keyOf(at.from, entry.ManifestFile)
	if entry.ManifestDigest != "" {
		if file := c.held(ctx, at, key); file != nil && file.digest == entry.ManifestDigest {
			return file.manifest, nil
		}
	}
	file, err := c.file(ctx, at, key)
	if err == nil && entry.ManifestDigest != "" && file.digest != entry.ManifestDigest {
		err = failed("is not what the manifest_digest of the catalogue says", nil)
	}
	if err != nil {
		return nil, badManifest(at.from, entry, err)
	}
	return file.manifest, nil
}

// Catalog implements [svc.Marketplace]. A maxAge of 0 asks the source, now. The manifests of files are there as far as they
// were fetched or confirmed within maxAge. Errors are those of [Client.Template], without CodeNotFound.
func (c *Client) Catalog(ctx context.Context, from svc.Upstream, maxAge time.Duration) (svc.Catalog, error) {
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
		} else if failure = badCatalog(from, err); file == nil {
			file = c.copies.get(key) // it may have been remembered
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

// withManifests returns the entries of a catalogue with the manifests of files whose copies are good since then.
func (c *Client) withManifests(key fileKey, catalog *fileCopy, since time.Time) []svc.CatalogEntry {
	entries, shared := catalog.catalog.Entries, true
	for _, i := range catalog.files {
		entry := entries[i]
		key.manifest = entry.ManifestFile
		file := c.copies.get(key)
		if file == nil || entry.ManifestDigest != file.digest && (entry.ManifestDigest != "" || file.asked.Before(since)) {
			continue
		}
		if shared {
			entries, shared = slices.Clone(entries), false
		}
		entries[i].Content.Manifest = file.manifest
	}
	return entries
}

// own returns a content that shares no memory with the copy that it is from.
func own(content svc.Content) svc.Content {
	content.Description, content.Category = ownText(content.Description), ownText(content.Category)
	content.Integrations, content.Tags = slices.Clone(content.Integrations), slices.Clone(content.Tags)
	content.Manifest = slices.Clone(content.Manifest)
	return content
}

func ownText(text *string) *string {
	if text == nil {
		return nil
	}
	owned := *text
	return &owned
}

// CacheStats returns what is kept now.
func (c *Client) CacheStats() CacheStats { return c.copies.look() }

// CloseIdleConnections closes the connections that are kept open for further requests. The Client stays usable.
func (c *Client) CloseIdleConnections() {
	c.guarded.CloseIdleConnections()
	c.allowed.CloseIdleConnections()
}
