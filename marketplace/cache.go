package marketplace

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"reflect"
	"sync"

	"github.com/extsvc/svc"
)

// defaultCache is the default of [Config].Cache in bytes.
const defaultCache = 64 << 20

// fileKey identifies a file of a source in the cache. A second registration of the source, another
// address, another token or another signing key gives another fileKey.
type fileKey struct {
	source     svc.SourceKey
	registered int64 // microseconds
	url        string
	credential [sha256.Size]byte // the hash of the signing key and the token
	manifest   string            // a path; "": the catalogue
}

func keyOf(from svc.Upstream, manifest string) fileKey {
	return fileKey{
		source:     from.Source,
		registered: from.Registered.UnixMicro(),
		url:        from.URL,
		credential: sha256.Sum256([]byte(string(from.SigningKey) + "\x00" + string(from.Token))),
		manifest:   manifest,
	}
}

// CacheStats shows the size of the cache of a [Client] and how well it works.
type CacheStats struct {
	// Copies is the number of cached catalogues and manifests.
	Copies int
	// Bytes is the memory that they take.
	Bytes int64
	// Answers counts the good answers of web sources since New.
	Answers uint64
	// Unchanged counts the Answers that confirmed a cached copy. For these, the source sent no file
	// and the Client parsed none.
	Unchanged uint64
}

// copies caches the files of sources in at most limit bytes. The least recently used copy goes
// first.
type copies struct {
	limit int64 // negative: cache nothing

	mu    sync.Mutex
	byKey map[fileKey]*list.Element
	order list.List // of slots; the most recently used slot is in front
	stats CacheStats
}

// slot holds one cached copy.
type slot struct {
	key  fileKey
	copy *fileCopy
	size int64
}

func newCopies(limit int) *copies {
	limit = cmp.Or(limit, defaultCache)
	return &copies{limit: int64(limit), byKey: map[fileKey]*list.Element{}}
}

// get returns the cached copy of a file, or nil.
func (c *copies) get(key fileKey) *fileCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.byKey[key]
	if at == nil {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(slot).copy
}

// put caches an answer in place of the previous one. It does not cache an answer that is too large,
// or whose request began before that of the cached copy.
func (c *copies) put(key fileKey, answer *fileCopy, unchanged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Answers++
	if unchanged {
		c.stats.Unchanged++
	}
	if before := c.byKey[key]; before != nil {
		if before.Value.(slot).copy.asked.After(answer.asked) {
			return
		}
		c.remove(before)
	}
	c.add(key, answer)
}

// restore caches a copy from the store unless the cache has one.
func (c *copies) restore(key fileKey, file *fileCopy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] == nil {
		c.add(key, file)
	}
}

// add caches a copy unless it is too large. The cache must have no copy with that key. The caller
// holds the lock.
func (c *copies) add(key fileKey, file *fileCopy) {
	s := slot{key, file, key.size() + file.size()}
	if s.size > c.limit/2 {
		return
	}
	c.byKey[s.key] = c.order.PushFront(s)
	c.stats.Bytes += s.size
	for c.stats.Bytes > c.limit {
		c.remove(c.order.Back())
	}
}

func (c *copies) remove(at *list.Element) {
	s := c.order.Remove(at).(slot)
	delete(c.byKey, s.key)
	c.stats.Bytes -= s.size
}

func (c *copies) look() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Copies = len(c.byKey)
	return stats
}

// The sizes of the parts of a copy, about as the allocator rounds them.
var (
	// The map holds the key a second time: hence twice the slot.
	slotSize    = 2*sizeOf[slot]() + sizeOf[list.Element]() + sizeOf[fileCopy]()
	entrySize   = sizeOf[svc.CatalogEntry]() + sizeOf[int]() // with its place in files
	problemSize = sizeOf[svc.CatalogProblem]()
	textSize    = sizeOf[string]()
)

func sizeOf[T any]() int64 { return int64(reflect.TypeFor[T]().Size()) }

// bytesOf returns the memory that an allocation of n bytes takes.
func bytesOf(n int) int64 { return int64(n+7) &^ 7 }

func (k fileKey) size() int64 {
	return slotSize + bytesOf(len(k.source.Owner)) + bytesOf(len(k.source.Name)) +
		bytesOf(len(k.url)) + bytesOf(len(k.manifest))
}

func (f *fileCopy) size() int64 {
	return f.bytes + bytesOf(len(f.URL)) + bytesOf(len(f.ETag)) + bytesOf(len(f.LastModified))
}

func (d document) size() int64 {
	n := bytesOf(cap(d.manifest)) + bytesOf(len(d.digest)) +
		bytesOf(cap(d.signature)) + bytesOf(len(d.catalog.Revision))
	n += int64(cap(d.catalog.Entries))*entrySize + int64(cap(d.catalog.Problems))*problemSize
	for _, e := range d.catalog.Entries {
		n += bytesOf(len(e.ID)) + bytesOf(len(e.ManifestFile)) + bytesOf(len(e.ManifestDigest))
		n += contentSize(e.Content)
	}
	for _, p := range d.catalog.Problems {
		n += bytesOf(len(p.ID)) + bytesOf(len(p.Reason))
	}
	for former, present := range d.catalog.Renames {
		// The map keeps a third of its places free.
		n += 4*textSize + bytesOf(len(former)) + bytesOf(len(present))
	}
	return n
}

func contentSize(c svc.Content) int64 {
	n := bytesOf(len(c.Name)) + bytesOf(cap(c.Manifest))
	for _, text := range []*string{c.Description, c.Category} {
		if text != nil {
			n += textSize + bytesOf(len(*text))
		}
	}
	for _, labels := range [][]string{c.Integrations, c.Tags} {
		n += int64(cap(labels)) * textSize
		for _, label := range labels {
			n += bytesOf(len(label))
		}
	}
	return n
}
