package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/maphash"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/extsvc/svc/internal/cache"
)

// How much a Compiler keeps: of each kind at least so many, and not many more.
const (
	keptDocuments = 1 << 12
	keptTables    = 1 << 12
	keptVerdicts  = 1 << 16
	keptAsked     = 1 << 15
	keptLength    = 512 // bytes of the strings of one ask
)

// Compiler turns subjects into rights, so that what is equal is parsed once, kept once and decided once. What it keeps is
// bounded, whatever it is asked. Use [NewCompiler]. It is safe for concurrent use.
type Compiler struct {
	documents *cache.Cache[digest, parsed]
	tables    *cache.Cache[digest, *table]
	made      atomic.Uint64 // tables
	verdicts  *memo[cell, verdict]
	asked     *answers // spares finding the classes of strings that were asked about before
	seed      maphash.Seed
}

// digest is the SHA-256 of what was compiled.
type digest [sha256.Size]byte

// parsed is a document, or what is wrong with it.
type parsed struct {
	document *Document
	fault    error
}

// NewCompiler returns a Compiler that has kept nothing yet.
func NewCompiler() *Compiler {
	return &Compiler{
		documents: cache.New[digest, parsed](keptDocuments, digest.bits),
		tables:    cache.New[digest, *table](keptTables, digest.bits),
		verdicts:  newMemo[cell, verdict](keptVerdicts),
		asked:     newAnswers(keptAsked),
		seed:      maphash.MakeSeed(),
	}
}

func (d digest) bits() uint64 { return binary.LittleEndian.Uint64(d[:]) }

// Compile returns the rights of a subject. Subjects with equal policies share a table, and all that is decided with it.
func (c *Compiler) Compile(s Subject) *Rights {
	r := &Rights{compiler: c, serviceAccount: s.ServiceAccountID, closed: closed(s.Closed)}
	switch s.Kind {
	case Unmapped:
		return r
	case User, ServiceAccount:
	default:
		r.closed = closed(fmt.Sprintf("denied: %q is no kind of principal", s.Kind))
	}
	grants := gather(s.Grants)
	key := fingerprint(s, grants)
	fence := c.tables.Fence(key)
	var ok bool
	if r.table, ok = c.tables.Get(key); !ok {
		r.table = c.compile(s, grants)
		c.tables.Put(fence, key, r.table)
	}
	return r
}

// fingerprint is equal for subjects that share a table.
func fingerprint(s Subject, grants []Grant) (d digest) {
	h := sha256.New()
	write(h, string(s.Kind), strconv.Itoa(len(grants)))
	for _, g := range grants {
		write(h, g.PolicyID, g.Group, fmt.Sprint(g.Priority), string(g.Document))
	}
	for _, n := range s.Scoping {
		write(h, n.ID, string(n.Document))
	}
	h.Sum(d[:0])
	return d
}

// write writes each part behind its length, so that no two lists of parts are written alike.
func write(h hash.Hash, parts ...string) {
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
}

func (c *Compiler) compile(s Subject, grants []Grant) *table {
	t := c.gather(s, grants)
	var actions, banks []string
	for _, w := range slices.Concat(t.sides...) {
		for _, st := range w.statements() {
			actions, banks = append(actions, st.Actions...), append(banks, st.Banks...)
		}
		t.statements += len(w.statements())
	}
	t.actions = classify(":", append(actions, coveredByRecall...))
	t.banks = classify("::", banks)
	return t
}

// gather returns a table that knows no classes yet.
func (c *Compiler) gather(s Subject, grants []Grant) *table {
	t := &table{id: c.made.Add(1), holder: "the user"}
	if s.Kind == ServiceAccount {
		t.holder = "its owner"
	}
	granted := make([]way, 0, len(grants))
	for _, g := range grants {
		w := g.way(t.holder)
		w.parsed = c.parse(g.Document)
		granted = append(granted, w)
	}
	t.sides = append(t.sides, granted)
	for _, n := range s.Scoping {
		w := way{policy: n.ID, words: fmt.Sprintf("scoping policy %q", n.ID)}
		w.parsed = c.parse(n.Document)
		t.sides = append(t.sides, []way{w})
	}
	return t
}

// Check says what is wrong with an access policy, as [ParseDocument] does.
func (c *Compiler) Check(document []byte) error { return c.parse(document).fault }

// parse parses a document, once for all policies that are written alike.
func (c *Compiler) parse(raw []byte) parsed {
	key := digest(sha256.Sum256(raw))
	fence := c.documents.Fence(key)
	p, ok := c.documents.Get(key)
	if !ok {
		p.document, p.fault = ParseDocument(raw)
		c.documents.Put(fence, key, p)
	}
	return p
}
