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
// entry that does is a [Problem], and does not stop the others.
//
// Nothing that a source says is trusted: every address that is dialled is checked after the name was resolved,
// redirects are followed by hand, everything that is read has a limit, and a manifest_file cannot leave its directory.
// Nothing is cached: every call asks the source.
package marketplace

import (
	"cmp"
	"context"
	"crypto/x509"
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
	// they are plain http, or wherever their name leads: exactly that scheme, host and port, in redirects too.
	AllowOrigins []string
	// AllowCIDRs are addresses that may be dialled although they are not public. They allow no plain http.
	AllowCIDRs []netip.Prefix
	// Files are sources in file systems, addressed as fs://NAME or fs://NAME/dir. Names are of letters, digits
	// and "-_.". A file system is read concurrently. [os.DirFS] follows symbolic links out of its directory;
	// [os.Root.FS] does not.
	Files map[string]fs.FS
	// RootCAs are who may sign a server's certificate. Nil: those of the system.
	RootCAs *x509.CertPool
	// UserAgent is sent to servers. "": "extsvc-svc".
	UserAgent string
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
		if name == "" || files == nil || strings.ContainsFunc(strings.ToLower(name), func(r rune) bool { return r != '.' && notInName(r) }) {
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

// Catalog asks the source, now, for its catalogue. Errors are those of [Client.Template], without CodeNotFound.
func (c *Client) Catalog(ctx context.Context, from svc.Upstream) (Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	catalog, _, err := c.open(ctx, from)
	return catalog, err
}

// Template implements [svc.Marketplace]: it asks the source, now, for its catalogue, and for the file of the manifest
// when the catalogue names one. The lists of the content are not nil.
//
// Errors are [*svc.Error] with CodeNotFound (the catalogue has no entry with that id), CodeSourceFailed (the source is
// unreachable, forbidden or answers badly, or the entry is bad) or CodeSourceTimeout; and, when the caller cancels
// ctx, one that wraps [context.Canceled].
func (c *Client) Template(ctx context.Context, from svc.Upstream, id string) (svc.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.Timeout)
	defer cancel()
	catalog, at, err := c.open(ctx, from)
	if err != nil {
		return svc.Content{}, err
	}
	entry, err := catalog.entry(from, id)
	if err != nil {
		return svc.Content{}, err
	}
	if entry.ManifestFile == "" {
		return entry.Content, nil
	}
	entry.Content.Manifest, err = c.manifest(ctx, at, entry.ManifestFile)
	if err != nil {
		return svc.Content{}, badManifest(from, entry, err)
	}
	return entry.Content, nil
}

// open reads a source's catalogue, and says where the source is.
func (c *Client) open(ctx context.Context, from svc.Upstream) (Catalog, place, error) {
	at, problem := c.place(from.URL)
	if problem != "" {
		return Catalog{}, at, sourceError(from, svc.CodeSourceFailed, "its address "+problem, nil)
	}
	at.token = from.Token
	data, err := c.read(ctx, at, "templates.json", c.limits.Catalog)
	if err != nil {
		return Catalog{}, at, badCatalog(from, err)
	}
	catalog, err := parseCatalog(data, c.limits)
	if err != nil {
		return Catalog{}, at, badCatalog(from, err)
	}
	return catalog, at, nil
}

func (c *Client) manifest(ctx context.Context, at place, name string) ([]byte, error) {
	data, err := c.read(ctx, at, name, c.limits.Manifest)
	if err != nil {
		return nil, err
	}
	return parseManifest(data)
}

// read reads a file of the source. The name is relative to the source and confined to it.
func (c *Client) read(ctx context.Context, at place, name string, limit int) ([]byte, error) {
	if at.files != nil {
		return readFile(ctx, at.files, at.path(name), limit)
	}
	return c.get(ctx, webFile{url: at.url(name), token: at.token, homes: at.homes, limit: limit})
}

// CloseIdleConnections closes the connections that are kept open for further requests. The Client stays usable.
func (c *Client) CloseIdleConnections() {
	c.guarded.CloseIdleConnections()
	c.allowed.CloseIdleConnections()
}
