package marketplace

import (
	"context"
	"encoding/json"
	"time"

	"github.com/extsvc/svc"
)

// document is what a file of a source says: a catalogue or a manifest.
type document struct {
	catalog   svc.Catalog
	signature []byte // of the catalogue; nil: it needs none
	manifest  json.RawMessage
	digest    string // of the manifest
	files     []int  // the places of the catalogue's entries whose manifests are in files
	bytes     int64  // that all this takes in memory
}

// measured notes what a document is asked for each time that it is confirmed.
func (d document) measured() document {
	for i := range d.catalog.Entries {
		if d.catalog.Entries[i].ManifestFile != "" {
			d.files = append(d.files, i)
		}
	}
	d.bytes = d.size()
	return d
}

// fileCopy is the last good answer for a file, parsed. It never changes.
type fileCopy struct {
	document
	asked time.Time // when the answer that gave or confirmed it was asked for
	validators
}

// locate says where a source is.
func (c *Client) locate(from svc.Upstream) (place, error) {
	at, problem := c.place(from.URL)
	if problem != "" {
		return at, sourceError(from, svc.CodeSourceFailed, "its address "+problem, nil)
	}
	at.from = from
	return at, nil
}

// file asks the source, now, for a file. Errors are faults, or ctx's when the caller cancelled it.
func (c *Client) file(ctx context.Context, at place, key fileKey) (*fileCopy, error) {
	if at.files == nil {
		flight := flightKey{key, at.from.Memory != nil}
		return c.flights.share(ctx, flight, func(ctx context.Context) (*fileCopy, error) { return c.fetch(ctx, at, key) })
	}
	file := &fileCopy{asked: c.now()}
	name, limit := c.nameOf(key)
	data, err := readFile(ctx, at.files, at.path(name), limit)
	if err != nil {
		return nil, err
	}
	file.document, err = c.accept(ctx, at, key, data)
	return file, err
}

// bytes reads a file of a source, wherever that is, unconditionally.
func (c *Client) bytes(ctx context.Context, at place, name string, limit int) ([]byte, error) {
	if at.files != nil {
		return readFile(ctx, at.files, at.path(name), limit)
	}
	a, err := c.get(ctx, at.file(name, limit))
	return a.data, err
}

// held returns the copy that there is of a file on the web, or nil.
func (c *Client) held(ctx context.Context, at place, key fileKey) *fileCopy {
	if at.files != nil {
		return nil
	}
	if file := c.copies.get(key); file != nil {
		return file
	}
	return c.recall(ctx, at, key)
}

// fetch asks a server for a file, or whether the copy of it still holds, and keeps what it is told. A bad answer leaves
// the copy that there is.
func (c *Client) fetch(ctx context.Context, at place, key fileKey) (*fileCopy, error) {
	wanted := at.file(c.nameOf(key))
	last := c.held(ctx, at, key)
	if last != nil {
		wanted.known = last.validators
	}
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

// accept reads what a source has answered now. Errors are faults.
func (c *Client) accept(ctx context.Context, at place, key fileKey, data []byte) (d document, err error) {
	if key.manifest != "" {
		return c.read(at, key, data, nil)
	}
	var signature []byte
	if at.from.SigningKey != nil {
		if signature, err = c.signature(ctx, at); err != nil {
			return d, err
		}
	}
	if d, err = c.read(at, key, data, signature); err != nil {
		return d, err
	}
	return d, c.admit(ctx, at, d.catalog)
}

// nameOf returns the path of a file, relative to its source and confined to it, and how many bytes it may have.
func (c *Client) nameOf(key fileKey) (name string, limit int) {
	if key.manifest == "" {
		return catalogFile, c.limits.Catalog
	}
	return key.manifest, c.limits.Manifest
}

// read reads what a file says, and who has signed it. Errors are faults.
func (c *Client) read(at place, key fileKey, data, signature []byte) (d document, err error) {
	if key.manifest != "" {
		if d.manifest, err = parseManifest(data); err == nil {
			d.digest, err = manifestDigest(d.manifest)
		}
		return d.measured(), err
	}
	signed := at.from.SigningKey != nil
	if signed {
		if err := verify(data, signature, at.from.SigningKey); err != nil {
			return d, err
		}
		d.signature = signature
	}
	d.catalog, err = parseCatalog(data, c.limits, signed)
	return d.measured(), err
}
