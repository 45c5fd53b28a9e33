package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/extsvc/svc/internal/cache"
)

// How many of each kind a Compiler caches: at least this many, and not many more.
const (
	keptDocuments = 1 << 12
	keptTables    = 1 << 12
	keptVerdicts  = 1 << 16
	keptAsked     = 1 << 15
	keptLength    = 512 // bytes of action and bank together; longer requests are not cached
)

// MaxKept limits the bytes that a Compiler caches, including what others cache in its Budget.
const MaxKept = 128 << 20

// Compiler turns subjects into rights. It parses, stores and decides equal things once. Its caches
// are limited in number and in bytes, whatever the requests. Use [NewCompiler]. It is safe for
// concurrent use.
type Compiler struct {
	schema    *Schema
	documents *cache.Cache[digest, parsed]
	tables    *cache.Cache[digest, *table]
	made      *atomic.Uint64 // the number of tables so far
	// apart holds the documents of a Compiler for one call. nil: this is not such a Compiler.
	apart    map[digest]parsed
	read     map[span]parsed // what that Compiler parsed, by its place in memory
	granting *granting       // of that Compiler's last comparison
	call     Call            // long work stops when it ends; nil: it never stops early
	verdicts *memo[cell, verdict]
	asked    *answers // saves finding the classes of strings seen before
	seed     maphash.Seed
	budget   *cache.Budget
}

// digest is the SHA-256 of the compiled input.
type digest [sha256.Size]byte

// parsed is a document, or the fault in it.
type parsed struct {
	document *Document
	fault    error
	bytes    int          // of the document, before it was parsed
	share    *cache.Share // of both

	user, group bool // the document has the variable
	controls    bool // a statement may allow a control-plane right
}

func (s *Schema) parseApart(raw []byte) parsed {
	document, fault := s.ParseDocument(raw)
	share := cache.NewShare(cache.Size(document) + cache.Size(fault))
	p := parsed{document: document, fault: fault, bytes: len(raw), share: share}
	if document != nil {
		p.user, p.group = document.names(UserVariable), document.names(GroupVariable)
		p.controls = slices.ContainsFunc(document.Statements, func(st Statement) bool {
			return st.Effect == EffectAllow && st.controls()
		})
	}
	return p
}

// NewCompiler returns a Compiler of documents with these parameters. Its caches are empty.
func NewCompiler(schema *Schema) *Compiler { return NewCompilerWithin(schema, MaxKept) }

// NewCompilerWithin returns a Compiler whose caches take at most that many bytes.
func NewCompilerWithin(schema *Schema, most int64) *Compiler {
	budget := cache.NewBudget(most)
	document := func(_ digest, p parsed) (int64, *cache.Share) { return 0, p.share }
	table := func(_ digest, t *table) (int64, *cache.Share) { return 0, t.share }
	verdict := func(_ cell, v *verdict) *cache.Share { return v.share }
	return &Compiler{
		schema: schema,
		made:   new(atomic.Uint64), seed: maphash.MakeSeed(), budget: budget,
		documents: cache.NewWithin(keptDocuments, digest.bits, budget, document),
		tables:    cache.NewWithin(keptTables, digest.bits, budget, table),
		verdicts:  newMemo(keptVerdicts, budget, verdict),
		asked:     newAnswers(keptAsked, budget),
	}
}

// Schema returns the table of the parameters.
func (c *Compiler) Schema() *Schema { return c.schema }

// Budget returns the budget of the Compiler's caches. Cache its Rights and Banks within this
// budget, because they share much memory.
func (c *Compiler) Budget() *cache.Budget { return c.budget }

// Share returns the memory that caching the rights takes.
func (r *Rights) Share() *cache.Share {
	if r == nil || r.table == nil {
		return nil
	}
	return r.table.share
}

// Call ends long work early. A [context.Context] is a Call.
type Call interface{ Err() error }

// Apart returns a Compiler for one call. It reads the caches of c and adds nothing to them, so it
// suits documents that may never be stored.
//
// It is not safe for concurrent use, and documents must not change while it is used. Its Rights are
// for Explain and Capabilities, not for Decide. All comparisons of the call together take at most
// MaxSteps. When these are spent or the call ends, long work stops and its result is incomplete:
// check Err.
func (c *Compiler) Apart(call Call) *Compiler {
	one := *c
	one.apart, one.read, one.granting = map[digest]parsed{}, map[span]parsed{}, nil
	one.call = &meter{call, MaxSteps}
	return &one
}

// ended reports whether the call is over. A nil call never ends.
func ended(call Call) bool { return call != nil && call.Err() != nil }

func (d digest) bits() uint64 { return binary.LittleEndian.Uint64(d[:]) }

// Compile returns the rights of a subject. Subjects with equal policies share a table and all
// decisions made with it.
func (c *Compiler) Compile(s Subject) *Rights {
	r := &Rights{compiler: c, serviceAccount: s.ServiceAccountID, closed: closed(s.Closed)}
	switch s.Kind {
	case Unmapped:
		return r
	case User, ServiceAccount:
	default:
		r.closed = closed(fmt.Sprintf("denied: %q is not a kind of principal", s.Kind))
	}
	grants := gather(s.Grants)
	key := fingerprint(s, grants)
	fence := c.tables.Fence(key)
	var ok bool
	if r.table, ok = c.tables.Get(key); !ok {
		r.table = c.compile(s, grants)
		if c.apart == nil {
			c.tables.Put(fence, key, r.table)
		}
	}
	return r
}

// Size returns the number of statements, each counted as often as it reaches the subject. A trace
// is about that long.
func (r *Rights) Size() int {
	if r.table == nil {
		return 0
	}
	return r.table.statements
}

// Weight is about how many bytes the statements take that Size counts.
func (r *Rights) Weight() (n int) {
	if r.table == nil {
		return 0
	}
	for _, ways := range r.table.sides {
		for i := range ways {
			n += ways[i].bytes
		}
	}
	return n
}

// fingerprint is equal for subjects that share a table.
func fingerprint(s Subject, grants []Grant) (d digest) {
	h := sha256.New()
	write(h, string(s.Kind), strconv.Itoa(len(grants)))
	known, personal := map[string]bool{}, false
	for _, g := range grants {
		write(h, g.PolicyID, g.Group, strconv.FormatInt(g.Priority, 10))
		if !known[g.PolicyID] { // all grants of a policy have the same document
			known[g.PolicyID] = true
			writeBytes(h, g.Document)
			personal = personal || MayName(UserVariable, g.Document)
		}
	}
	write(h, strconv.Itoa(len(s.Scoping)))
	for _, n := range s.narrowing() {
		write(h, n.ID)
		writeBytes(h, n.Document)
		personal = personal || MayName(UserVariable, n.Document)
	}
	if personal {
		write(h, s.UserID)
	}
	h.Sum(d[:0])
	return d
}

// write writes each part after its length, so that different lists never give the same bytes.
func write(h hash.Hash, parts ...string) {
	for _, p := range parts {
		writeBytes(h, []byte(p))
	}
}

func writeBytes(h hash.Hash, part []byte) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
	h.Write(part)
}

func (c *Compiler) compile(s Subject, grants []Grant) *table {
	t := c.gather(s, grants)
	var actions, banks []string
	var documents []*cache.Share
	known := map[*cache.Share]bool{}
	for _, w := range slices.Concat(t.sides...) {
		t.statements += len(w.statements())
		if known[w.share] {
			continue
		}
		known[w.share] = true
		documents = append(documents, w.share)
		for _, st := range w.statements() {
			actions, banks = append(actions, st.Actions...), append(banks, st.Banks...)
		}
	}
	t.actions = classify(":", append(actions, coveredByRecall...))
	t.banks = classify("::", banks)
	t.share = cache.NewShare(t.size(), documents...)
	return t
}

// size estimates the bytes of a table without its documents.
func (t *table) size() int64 {
	n := cache.Allocated(int(reflect.TypeFor[table]().Size()))
	n += cache.Size(t.actions) + cache.Size(t.banks)
	for _, ways := range t.sides {
		n += cache.Allocated(cap(ways) * int(reflect.TypeFor[attachedBy]().Size()))
		for _, w := range ways {
			n += cache.Allocated(len(w.policy)) + cache.Allocated(len(w.granted))
		}
	}
	return n
}

// gather returns a table without its classes.
func (c *Compiler) gather(s Subject, grants []Grant) *table {
	t := &table{id: c.made.Add(1), schema: c.schema, holder: "the user"}
	if s.Kind == ServiceAccount {
		t.holder = "its owner"
	}
	granted := make([]attachedBy, 0, len(grants))
	known := map[string]parsed{} // by policy id; a policy has one document
	for _, g := range grants {
		w := attachedBy{
			policy: g.PolicyID, via: "group:", granted: g.Group, holder: t.holder,
			priority: g.Priority,
		}
		if g.Group == "" {
			w.via, w.direct = "user", true
		}
		if _, is := known[g.PolicyID]; !is {
			known[g.PolicyID] = c.parse(g.Document)
		}
		w.parsed = c.bound(g.Document, known[g.PolicyID], binding{s.UserID, g.Group})
		granted = append(granted, w)
	}
	t.sides = append(t.sides, granted)
	for i, n := range s.narrowing() {
		t.sides = append(t.sides, []attachedBy{{
			parsed: c.bound(n.Document, c.parse(n.Document), binding{user: s.UserID}),
			policy: n.ID,
			limits: i >= len(s.Scoping),
		}})
	}
	return t
}

// Check reports what is wrong with an access policy, as [Schema.ParseDocument] does.
func (c *Compiler) Check(document []byte) error { return c.parse(document).fault }

// span is a place in memory.
type span struct {
	first  *byte
	length int
}

// parse parses a document, once for all policies with the same bytes.
func (c *Compiler) parse(raw []byte) parsed {
	if c.apart == nil || len(raw) == 0 {
		return c.parseEqual(raw)
	}
	at := span{&raw[0], len(raw)}
	p, ok := c.read[at]
	if !ok {
		p = c.parseEqual(raw)
		c.read[at] = p
	}
	return p
}

func (c *Compiler) parseEqual(raw []byte) parsed {
	return c.once(sha256.Sum256(raw), func() parsed { return c.schema.parseApart(raw) })
}

// once returns what is cached for a key, or makes it.
func (c *Compiler) once(key digest, made func() parsed) parsed {
	fence := c.documents.Fence(key)
	p, ok := c.documents.Get(key)
	if !ok {
		p, ok = c.apart[key]
	}
	if ok {
		return p
	}
	if p = made(); c.apart != nil {
		c.apart[key] = p
	} else {
		c.documents.Put(fence, key, p)
	}
	return p
}
