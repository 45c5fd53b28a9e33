package marketplace

import (
	"context"
	"encoding/json"
	"time"

	"github.com/extsvc/svc"
)

// document is what a file of a source says: a catalogue or a manifest.
type document struct {
	catalog  svc.Catalog
	manifest json.RawMessage
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
	at.token = from.Token
	return at, nil
}

// file asks the source, now, for a file. Errors are faults, or ctx's when the caller cancelled it.
func (c *Client) file(ctx context.Context, at place, key fileKey) (*fileCopy, error) {
	if at.files == nil {
		return c.flights.share(ctx, key, func(ctx context.Context) (*fileCopy, error) { return c.fetch(ctx, at, key) })
	}
	name, limit := c.nameOf(key)
	file := &fileCopy{asked: time.Now()}
	data, err := readFile(ctx, at.files, at.path(name), limit)
	if err != nil {
		return nil, err
	}
	file.document, err = c.parse(key, data)
	return file, err
}

// fetch asks a server for a file, or whether the copy of it still holds, and keeps what it is told. A bad answer leaves
// the copy that there is.
func (c *Client) fetch(ctx context.Context, at place, key fileKey) (*fileCopy, error) {
	name, limit := c.nameOf(key)
	wanted := webFile{url: at.url(name), token: at.token, homes: at.homes, limit: limit}
	last := c.copies.get(key)
	if last != nil {
		wanted.known = last.validators
	}
	file := &fileCopy{asked: time.Now()}
	a, err := c.get(ctx, wanted)
	if err != nil {
		return nil, err
	}
	file.validators = a.validators
	if a.unchanged {
		file.document = last.document
	} else if file.document, err = c.parse(key, a.data); err != nil {
		return nil, err
	}
	c.copies.put(key, file, a.unchanged)
	return file, nil
}

// nameOf returns the path of a file, relative to its source and confined to it, and how many bytes it may have.
func (c *Client) nameOf(key fileKey) (name string, limit int) {
	if key.manifest == "" {
		return "templates.json", c.limits.Catalog
	}
	return key.manifest, c.limits.Manifest
}

// parse reads what a file says. Errors are faults.
func (c *Client) parse(key fileKey, data []byte) (d document, err error) {
	if key.manifest == "" {
		d.catalog, err = parseCatalog(data, c.limits)
	} else {
		d.manifest, err = parseManifest(data)
	}
	return d, err
}
