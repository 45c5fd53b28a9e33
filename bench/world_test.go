package bench_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	modernc "modernc.org/sqlite"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// engine is a kind of database. Its pools have the settings of its store.
type engine struct {
	name    string
	dialect sqlstore.Dialect
	place   func(testing.TB) string                               // makes an empty database; returns its path or address
	open    func(place string) (closingStore, error)              // as a host does
	connect func(place string, r *recorder) (write, read *sql.DB) // r nil: records nothing
	settle  string                                                // runs after a world is filled
	age     string                                                // fills the feed of changes, as in a database in use
}

type closingStore interface {
	svc.Store
	Close() error
}

// connections is the size of a pool: enough for all issuers at once.
const connections = issuers

func pool(connector driver.Connector, size int) *sql.DB {
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

var sqliteEngine = engine{
	name:    "sqlite",
	dialect: sqlite.Dialect(),
	place:   func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "svc.db") },
	open: func(path string) (closingStore, error) {
		return sqlite.Open(context.Background(), path, sqlite.Options{})
	},
	connect: func(path string, r *recorder) (write, read *sql.DB) {
		file := (&url.URL{Scheme: "file", Path: path}).String() + "?_pragma=busy_timeout(5000)"
		const durable = "&_txlock=immediate&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"
		return pool(r.record(fileConnector(file+durable), true), 1),
			pool(r.record(fileConnector(file+"&_pragma=query_only(1)"), false), max(2, runtime.NumCPU()))
	},
	settle: `PRAGMA wal_checkpoint(TRUNCATE)`,
	age: `UPDATE svc_generation SET value = value + 10000;
		WITH RECURSIVE back(i) AS (SELECT 9999 UNION ALL SELECT i - 1 FROM back WHERE i > 0)
		INSERT INTO svc_changefeed (lane, number, changed) SELECT id, value - i, '{}' FROM back, svc_generation`,
}

// fileConnector connects to a SQLite file, given the driver's name for it.
type fileConnector string

func (c fileConnector) Connect(context.Context) (driver.Conn, error) {
	return c.Driver().Open(string(c))
}

func (c fileConnector) Driver() driver.Driver { return &modernc.Driver{} }

var postgresEngine = engine{
	name:    "postgres",
	dialect: postgres.Dialect(),
	place:   func(tb testing.TB) string { return pgtest.Database(tb) },
	open: func(address string) (closingStore, error) {
		return postgres.Open(context.Background(), address, postgres.Options{MaxOpen: connections})
	},
	connect: func(address string, r *recorder) (write, read *sql.DB) {
		db := pool(r.record(stdlib.GetConnector(*get(pgx.ParseConfig(address))), true), connections)
		return db, db
	},
	settle: `ANALYZE`,
	age: `WITH lanes AS (UPDATE svc_generation SET value = value + 320 RETURNING id, value)
		INSERT INTO svc_changefeed (lane, number, changed)
		SELECT id, value - i, '{}' FROM lanes, generate_series(319, 0, -1) i`,
}

func eachEngine(b *testing.B, do func(b *testing.B, e engine)) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		b.Run(e.name, func(b *testing.B) { do(b, e) })
	}
}

// size is the number of rows.
type size struct {
	name            string
	keys, templates int
	perUser         int // keys; 0: 10
}

func (s size) keysPerUser() int { return cmp.Or(s.perUser, 10) }

var (
	empty = size{name: "empty"}
	small = size{name: "small", keys: 10_000, templates: 1_000}
	large = size{name: "large", keys: 100_000, templates: 10_000} // with SVC_BENCH_LARGE=1
)

const (
	labelled     = 20 // templates of one category, and of one tag
	manifestSize = 4 << 10
)

// skipLarge skips the large sizes unless SVC_BENCH_LARGE is set.
func skipLarge(tb testing.TB, isLarge bool) {
	tb.Helper()
	if isLarge && os.Getenv("SVC_BENCH_LARGE") == "" {
		tb.Skip("NOT MEASURED: large sizes need SVC_BENCH_LARGE=1")
	}
}

// world is a filled database, a Service over it, and the bare driver. All benchmarks use worlds.
type world struct {
	engine
	size
	place       string
	store       svc.Store
	service     *svc.Service
	write, read *sql.DB // the bare driver
	issued      []svc.IssuedKey
	next        int          // a counter, so that each call uses another row
	spare       []svc.APIKey // keys to revoke
}

// newWorld fills an empty database through the store. It lives until the end of the benchmark.
func newWorld(tb testing.TB, e engine, s size) *world {
	tb.Helper()
	skipLarge(tb, s == large)
	w := &world{engine: e, size: s, place: e.place(tb)}
	store := get(e.open(w.place))
	w.store, w.service = store, get(svc.New(config(store)))
	w.write, w.read = e.connect(w.place, nil)
	tb.Cleanup(func() { check(errors.Join(w.service.Close(), w.read.Close(), w.write.Close(), store.Close())) })
	w.fill(context.Background())
	return w
}

func get[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func failure[T any](_ T, err error) error { return err }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) fill(ctx context.Context) {
	var users svc.Bundle
	for i := range w.keys / w.keysPerUser() {
		users.Users = append(users.Users, svc.User{ID: userID(i)})
	}
	shop := "shop"
	get(w.service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: shopURL, Alias: &shop}))
	check(w.service.Access.Apply(ctx, svc.Host, users))
	w.addKeys(ctx, w.keys)
	w.inChunks(ctx, w.templates, func(ctx context.Context, tx svc.Store, i int) error {
		return tx.CreateTemplate(ctx, storedTemplate(i))
	})
	get(w.write.ExecContext(ctx, w.age))
	check(w.settled(ctx))
}

func (w *world) settled(ctx context.Context) error {
	return failure(w.write.ExecContext(ctx, w.settle))
}

// inChunks calls create with the numbers below n, in transactions of some thousand rows.
func (w *world) inChunks(ctx context.Context, n int, create func(ctx context.Context, tx svc.Store, i int) error) {
	const chunk = 5000
	for from := 0; from < n; from += chunk {
		check(w.store.(svc.TransactionStore).Atomically(ctx, func(ctx context.Context, tx svc.Store) (err error) {
			for i := from; i < min(from+chunk, n) && err == nil; i++ {
				err = create(ctx, tx, i)
			}
			return err
		}))
	}
}

// addKeys adds keys whose bearers are known, made by a Service in memory. Their
// use is already recorded: uses that wait to be written would count.
func (w *world) addKeys(ctx context.Context, n int) {
	var maker *svc.Service
	used := time.Now().Add(time.Hour)
	for i := range n {
		if i%1000 == 0 { // memstore counts a holder's keys by reading all keys
			maker = get(svc.New(config(memstore.New())))
			defer maker.Close()
		}
		key := get(maker.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: userID(i / w.keysPerUser())}, svc.NewAPIKey{}))
		key.LastUsedAt = used
		w.issued = append(w.issued, key)
	}
	w.inChunks(ctx, n, func(ctx context.Context, tx svc.Store, i int) error {
		return tx.CreateAPIKey(ctx, w.issued[i].APIKey)
	})
}

func userID(i int) string     { return fmt.Sprintf("user-%07d", i) }
func templateID(i int) string { return fmt.Sprintf("t-%06d", i) }

func (w *world) anyUser() svc.Identity {
	w.next++
	return svc.Identity{Kind: svc.KindUser, ID: userID(w.next * 7919 % (w.keys / w.keysPerUser()))}
}

func (w *world) anyKey() svc.IssuedKey {
	w.next++
	return w.issued[w.next*7919%len(w.issued)]
}

func (w *world) anyTemplate() string {
	w.next++
	return templateID(w.next * 7919 % w.templates)
}

// anyLabel returns the number of a category, and of a tag, that 20 templates have.
func (w *world) anyLabel() int {
	w.next++
	return w.next * 31 % (w.templates / labelled)
}

const shopURL = "https://shop.example/templates"

// manifest is an object of 4 KB that compresses about as well as English.
var manifest = func() json.RawMessage {
	words := strings.Fields("the agent remembers what was said and asks again when a plan of last week is due or somebody new has joined")
	draw := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString(`{"version":"1","notes":[`)
	for b.Len() < manifestSize-64 {
		fmt.Fprintf(&b, `{"id":%d,"text":"%s %s %s"},`, draw.IntN(1e9), words[draw.IntN(len(words))], words[draw.IntN(len(words))], words[draw.IntN(len(words))])
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), ",") + `]}`)
}()

// storedTemplate returns a template whose name has another order than its id. Every second one is
// installed.
func storedTemplate(i int) svc.Template {
	category := fmt.Sprint("category-", i/labelled)
	at := time.UnixMicro(1_700_000_000_000_000).UTC()
	t := svc.Template{
		TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: templateID(i)}, InstalledAt: at, UpdatedAt: at, Version: 1,
		Content: svc.Content{
			Name: fmt.Sprintf("Template %08x", uint32(i)*2_654_435_761), Category: &category, Manifest: manifest,
			Integrations: []string{"mail", "calendar"}, Tags: []string{"everything", fmt.Sprint("tag-", i/labelled)},
		},
	}
	if i%2 == 0 {
		t.Origin = &svc.Origin{Source: svc.SourceKey{Scope: svc.ScopeServer, Name: "shop"}, ID: t.ID, URL: shopURL, Revision: "sha256:0", Base: t.Content}
	}
	return t
}

const (
	crowdPolicies = 500
	few           = 100 // members of the group "few"
)

// addCrowd adds users with rights. Each is in two groups, and a group has four of 500 policies of
// ten statements. One in 60 users may recall from the bank crowdBank, and so may the group "few".
// root administers and reads no bank; boss has everything.
func (w *world) addCrowd(ctx context.Context, users int) error {
	groups := max(users/400, 10)
	b := svc.Bundle{Policies: []svc.Policy{
		{ID: "few", Document: crowdDocument(1, 0)},
		{ID: "everything", Document: json.RawMessage(`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*","iam:*","template:*"],"banks":["*"]}]}`)},
	}}
	for i := range crowdPolicies {
		b.Policies = append(b.Policies, svc.Policy{ID: fmt.Sprint("policy-", i), Document: crowdDocument(i, 0)})
	}
	for i := range groups {
		b.Groups = append(b.Groups, svc.Group{ID: fmt.Sprint("crowd-", i)})
		for n := range 4 {
			b.Attachments = append(b.Attachments, attached(fmt.Sprint("policy-", (i*4+n)%crowdPolicies), fmt.Sprint("crowd-", i), 0))
		}
	}
	fews := svc.Group{ID: "few"}
	for i := range users {
		b.Users = append(b.Users, svc.User{ID: userID(i)})
		one, other := &b.Groups[i%groups], &b.Groups[(i+1+i/groups%(groups-1))%groups]
		one.Members, other.Members = append(one.Members, userID(i)), append(other.Members, userID(i))
		if i < few {
			fews.Members = append(fews.Members, userID(i))
		}
	}
	b.Groups, b.Attachments = append(b.Groups, fews), append(b.Attachments, attached("few", "few", 0))
	for id, policy := range map[string]string{"root": svc.PolicyIAMAdmin, "boss": "everything"} {
		b.Users = append(b.Users, svc.User{ID: id})
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}})
	}
	return errors.Join(w.service.Access.Apply(ctx, svc.Host, b), w.settled(ctx))
}

const crowdBank = "bank-1::3::notes"

func crowdDocument(i, version int) json.RawMessage {
	var statements []string
	for n := range 10 {
		statements = append(statements, fmt.Sprintf(
			`{"effect":"allow","actions":["bank:recall","bank:retain"],"banks":["bank-%d::%d::*"],"recall_max_tokens":%d}`, i, n, 1+version))
	}
	return json.RawMessage(`{"version":"2026-03-24","statements":[` + strings.Join(statements, ",") + `]}`)
}

func attached(policy, group string, priority int64) svc.Attachment {
	return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: group}, Priority: priority}
}

// config is the configuration of every measured Service. Templates are not cached.
func config(store svc.Store) svc.Config {
	return svc.Config{
		Store: store, Sources: svc.SourceConfig{Marketplace: shop{}}, Authenticator: svc.AuthenticatorFunc(authenticate), Logger: slog.New(slog.DiscardHandler),
		Keys:   svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("a pepper for benchmarks, of 32 B")}}},
		Memory: svc.Memory{Templates: -1},
	}
}

const password = "the administrator's"

func authenticate(_ context.Context, bearer string) (svc.Principal, error) {
	if bearer != password {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	return svc.Principal{Kind: svc.KindUser, ID: "administrator", Actions: []string{action.TemplateAdmin}}, nil
}

// shop is a Marketplace that answers at once, about templates alone.
type shop struct{ svc.Marketplace }

func (shop) CheckURL(string) error { return nil }

func (shop) Template(context.Context, svc.Upstream, string) (svc.Content, error) {
	category := "installed"
	return svc.Content{
		Name: "zzz, behind all others", Category: &category, Integrations: []string{"mail"}, Tags: []string{"one", "two"}, Manifest: manifest,
	}, nil
}

// compare measures sides in turn and reports the cost of the last one, the Service, as a multiple
// of each other side. It divides the best rounds of both: other load on the machine can only add to
// either.
func compare(b *testing.B, sides ...measure.Side) {
	b.Helper()
	costs := alternate(b, sides, measure.Alike)
	service := costs[len(costs)-1]
	for i, s := range sides {
		b.ReportMetric(costs[i], "µs-"+s.Name)
		if i < len(sides)-1 {
			b.ReportMetric(service/costs[i], "x-"+s.Name)
		}
	}
}

// alternate returns the µs that a call of each side takes in its best round. calls gives the number
// of calls of each side in a round.
func alternate(b *testing.B, sides []measure.Side, calls func(*testing.B, []measure.Side) []int) []float64 {
	b.Helper()
	costs := measure.Alternate(b, sides, calls(b, sides))
	for i := range costs {
		costs[i] /= 1000
	}
	return costs
}

// together calls do from as many goroutines at once, each with its number.
func together(goroutines int, do func(i int) error) error {
	var all sync.WaitGroup
	failures := make([]error, goroutines)
	for i := range goroutines {
		all.Go(func() { failures[i] = do(i) })
	}
	all.Wait()
	return errors.Join(failures...)
}
