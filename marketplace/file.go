package marketplace

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/extsvc/svc"
)

// document is the parsed content of a file of a source: a catalogue or a manifest.
type document struct {
	catalog   svc.Catalog
	signature []byte // of the catalogue; nil: it needs none
	manifest  json.RawMessage
	digest    string // of the manifest
	files     []int  // the indexes of the catalogue's entries that have a manifest_file
	bytes     int64  // the memory that the document takes
}

// withSize fills in files and bytes, so that confirming a copy does not compute them again.
func (d document) withSize() document {
	for i := range d.catalog.Entries {
		if d.catalog.Entries[i].ManifestFile != "" {
			d.files = append(d.files, i)
		}
	}
	d.bytes = d.size()
	return d
}

// fileCopy is the last good answer for a file, parsed. It is immutable.
type fileCopy struct {
	document
	asked time.Time // the start of the request whose answer gave or confirmed it
	validators
}

// locate returns the place of a source.
func (c *Client) locate(from svc.Upstream) (place, error) {
	at, problem := c.place(from.URL, c.trusts(from.Source))
	if problem != "" {
		return at, sourceError(from, svc.CodeSourceFailed, "its address "+problem, nil)
	}
	at.from = from
	return at, nil
}

// file asks the source for a file. Errors are faults, or ctx's when the caller cancelled it.
func (c *Client) file(ctx context.Context, at place, key fileKey) (*fileCopy, error) {
	if at.files == nil {
		fetch := func(ctx context.Context) (*fileCopy, error) { return c.fetch(ctx, at, key) }
		return c.flights.share(ctx, flightKey{key, at.from.Memory != nil}, fetch)
	}
	ctx, turn := c.reading.turn(ctx, at.from.Source)
	defer turn.end()
	file := &fileCopy{asked: c.now()}
	name, limit := c.nameOf(key)
	data, err := readFile(ctx, at.files, at.path(name), limit, turn)
	if err != nil {
		return nil, err
	}
	file.document, err = c.accept(ctx, at, key, data)
	return file, err
}

var errNotAFile = errors.New("not a regular file")

// readFile reads a file of at most limit bytes. Errors are faults, or ctx's when the caller
// cancelled it.
func readFile(
	ctx context.Context, files fs.FS, name string, limit int, t *turn,
) (data []byte, err error) {
	defer func() {
		if err != nil {
			err = explain(ctx, "cannot be read", err)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Check the mode before opening the file: to open a named pipe waits for a writer.
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotAFile
	}
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readLimited(ctx, file, limit, info.Size(), t)
}

// bytes reads a small file of a source on the web or in a file system. On the web it makes an
// unconditional request.
func (c *Client) bytes(ctx context.Context, at place, name string, limit int) ([]byte, error) {
	if at.files != nil {
		return readFile(ctx, at.files, at.path(name), limit, nil)
	}
	a, err := c.get(ctx, at.file(name, limit))
	return a.data, err
}

// knownCopy returns the copy of a file on the web from the cache or the store, or nil.
func (c *Client) knownCopy(ctx context.Context, at place, key fileKey) *fileCopy {
	if at.files != nil {
		return nil
	}
	if file := c.copies.get(key); file != nil {
		return file
	}
	return c.recall(ctx, at, key)
}

// fetch asks a server for a file and caches the answer. If the cache or the store has a copy, fetch
// asks whether that is still good. A bad answer does not replace the copy.
func (c *Client) fetch(ctx context.Context, at place, key fileKey) (*fileCopy, error) {
	wanted := at.file(c.nameOf(key))
	last := c.knownCopy(ctx, at, key)
	if last != nil {
		wanted.known = last.validators
	}
	ctx, turn := c.reading.turn(ctx, at.from.Source)
	defer turn.end()
	wanted.turn = turn
	file := &fileCopy{asked: c.now()}
	a, err := c.get(ctx, wanted)
	if err != nil {
		return nil, err
	}
	file.validators = a.validators
	if a.unchanged {
		if file.document = last.document; key.manifest == "" {
			err = c.admit(ctx, at, file.catalog)
		}
	} else {
		file.document, err = c.accept(ctx, at, key, a.data)
	}
	if err != nil {
		return nil, err
	}
	c.copies.put(key, file, a.unchanged)
	if !a.unchanged {
		c.remember(ctx, at, key, file, a.data)
	}
	return file, nil
}

// accept parses and checks a new answer of a source. Errors are those of read.
func (c *Client) accept(
	ctx context.Context, at place, key fileKey, data []byte,
) (d document, err error) {
	if key.manifest != "" {
		return c.read(ctx, at, key, data, nil)
	}
	var signature []byte
	if at.from.SigningKey != nil {
		if signature, err = c.signature(ctx, at); err != nil {
			return d, err
		}
	}
	if d, err = c.read(ctx, at, key, data, signature); err != nil {
		return d, err
	}
	return d, c.admit(ctx, at, d.catalog)
}

// nameOf returns the path of a file relative to its source, and its limit in bytes. The path does
// not leave the directory of the source.
func (c *Client) nameOf(key fileKey) (name string, limit int) {
	if key.manifest == "" {
		return catalogFile, c.limits.Catalog
	}
	return key.manifest, c.limits.Manifest
}

// read parses a file and verifies the signature of a catalogue. Errors are faults, or ctx's when
// the caller cancelled it.
func (c *Client) read(
	ctx context.Context, at place, key fileKey, data, signature []byte,
) (d document, err error) {
	leave, err := c.parsing.enter(ctx, at.from.Source)
	if err != nil {
		return d, err
	}
	defer leave()
	if key.manifest != "" {
		if d.manifest, err = parseManifest(data); err == nil {
			d.digest, err = manifestDigest(d.manifest)
		}
		return d.withSize(), err
	}
	signed := at.from.SigningKey != nil
	if signed {
		if err := verify(data, signature, at.from.SigningKey); err != nil {
			return d, err
		}
		d.signature = signature
	}
	d.catalog, err = parseCatalog(data, c.limits, signed)
	return d.withSize(), err
}
