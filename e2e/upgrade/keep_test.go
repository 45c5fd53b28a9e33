package upgrade

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

var keepVersion = flag.String("keep", "", "keep the databases of this version in testdata, such as v0.1.0")

func TestKeep(t *testing.T) {
	if *keepVersion == "" {
		t.Skip("keeps a version, with -keep")
	}
	pgtest.Server(t) // without it nothing is kept
	dir := filepath.Join("testdata", *keepVersion)
	check(os.RemoveAll(dir))
	for _, kind := range kinds {
		place, from := kind.make(t), newSite(t)
		from.fill(kind, place)
		kind.keep(t, place, dir)
		to := newSite(t)
		to.vars = from.vars
		to.restore(kind, dir)
		write(filepath.Join(dir, kind.name+".answers"), []byte(to.record("testdata/requests.txt").String()))
	}
	write(filepath.Join(dir, "migrations.txt"), []byte(strings.Join(migrations(), "\n")+"\n"))
}

// migrations returns a line for each migration of each kind of database: kind, file and sum.
func migrations() (list []string) {
	for _, kind := range kinds {
		files := sqlstore.Migrations(kind.dialect)
		for _, name := range must(fs.Glob(files, "*")) {
			sum := sha256.Sum256(must(fs.ReadFile(files, name)))
			list = append(list, fmt.Sprintf("%s %s %x", kind.name, name, sum))
		}
	}
	return list
}

// restore serves a kept database.
func (s *site) restore(kind kind, dir string) (place string) {
	s.t.Helper()
	place = kind.make(s.t)
	kind.restore(s.t, dir, place)
	s.serve(must(kind.open(s.t.Context(), place)), nil)
	return place
}

// first are the rows without which nobody could make others.
const first = `{
  "users": [{"id": "admin"}],
  "policies": [{"id": "all", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["iam:*", "template:*", "bank:*"], "banks": ["*"]}]}}],
  "attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "admin"}]
}`

var (
	admin = svc.Identity{Kind: svc.KindUser, ID: "admin"}
	alice = svc.Identity{Kind: svc.KindUser, ID: "alice"}
)

// fill makes rows of every kind in an empty database.
func (s *site) fill(kind kind, place string) {
	s.t.Helper()
	ctx := s.t.Context()
	web := must(net.Listen("tcp", webAddress))
	go http.Serve(web, http.StripPrefix("/acme", http.FileServerFS(s.files))) // until web is closed
	defer web.Close()

	s.vars["web"] = "http://" + webAddress
	s.vars["signer"] = base64.StdEncoding.EncodeToString(signingKey.Public().(ed25519.PublicKey))
	s.withoutPepper(must(kind.open(ctx, place)))

	s.at(filledFrom)
	s.offer(catalogues[0])
	s.serve(must(kind.open(ctx, place)), nil)
	s.issue("admin", admin)
	s.run("testdata/fill.txt")
	s.imports("imported", "old_key-of-another-system")
	check(s.service.ForgetUser(ctx, svc.Host, "leaver"))
	must(s.service.Audit.Forget(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "leaver"}, "erased-1"))
	s.at(askedAt) // so that later uses at this time change nothing
	for name := range s.keys() {
		s.use(name)
	}
	check(s.stop())

	s.outbox(must(kind.open(ctx, place)), kind)
	s.tenants(must(kind.tenants(ctx, place)))
	s.checkRows(kind, must(kind.open(ctx, place)))
}

// withoutPepper issues a key before there is a pepper.
func (s *site) withoutPepper(store database) {
	s.serve(store, func(c *svc.Config) { c.Keys.Peppers = nil })
	check(s.service.Access.Apply(s.t.Context(), svc.Host, must(svc.ParseBundle([]byte(first)))))
	s.issue("bare", alice)
	s.use("bare")
	check(s.stop())
}

func (s *site) imports(name, key string) {
	s.vars[name] = key
	hash := sha256.Sum256([]byte(key))
	must(s.service.Keys.Import(s.t.Context(), svc.Host, alice, svc.ImportedKey{Prefix: "old_", Hash: hash[:]}))
}

// issue issues a key as the host does.
func (s *site) issue(name string, to svc.Identity) {
	s.vars[name] = string(must(s.service.Keys.Issue(s.t.Context(), svc.Host, to, svc.NewAPIKey{})).Key)
}

// use sends a request with a key, which need not be accepted. Keys of before the first pepper are used
// without one alone: else they would get a hash under it.
func (s *site) use(name string) {
	if name != "bare" || s.vars["admin"] == "" {
		s.ask(name + " GET /me")
	}
}

// run does what fill.txt says.
func (s *site) run(script string) {
	s.t.Helper()
	for _, line := range lines(script) {
		s.at(s.clock.Load().Add(1e9))
		if line == "revise" {
			s.offer(catalogues[1])
			continue
		}
		name, request, isKey := strings.Cut(line, " = ")
		if !isKey || strings.Contains(name, " ") {
			name, request = "", line
		}
		answer := s.ask(s.expand(request))
		if answer.status[0] != '2' {
			s.t.Fatal(answer)
		}
		if name != "" {
			issued := answer.body.(map[string]any)
			s.vars[name], s.vars[name+"_id"] = issued["api_key"].(string), issued["id"].(string)
		}
	}
}

// outbox issues a key in a transaction of the host. It leaves the event in the outbox, and the record of it
// in its queue, where the store has one.
func (s *site) outbox(store database, kind kind) {
	s.serve(store, func(c *svc.Config) { c.Events.OnEvent, c.Events.NoDelivery = s.deliver, true })
	tx := must(store.DB().BeginTx(s.t.Context(), nil))
	in := s.service.WithTx(sqlstore.Tx(tx, kind.dialect))
	must(in.Keys.Issue(s.t.Context(), svc.Host, alice, svc.NewAPIKey{}))
	check(s.service.Close()) // which would move the record of the key out of its queue
	check(tx.Commit())
	check(s.stop())
}

// tenants makes one that is served and one that is suspended.
func (s *site) tenants(store tenants) {
	list := must(svc.NewTenants(svc.TenantsConfig{Store: store, Config: s.config(nil, peppers...)}))
	ctx := s.t.Context()
	for _, name := range []string{"acme", "asleep"} {
		must(list.Create(ctx, name))
	}
	check(list.Use(ctx, "acme", func(service *svc.Service) error {
		s.service = service
		check(service.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(first)))))
		s.issue("tenant", admin)
		return nil
	}))
	check(list.Suspend(ctx, "asleep"))
	check(list.Close())
	check(store.Close())
}

// checkRows checks that each column of each table has a value, so that no kind of row is forgotten.
func (s *site) checkRows(kind kind, store database) {
	s.t.Helper()
	db := store.DB()
	var missing []string
	for _, table := range tables(s.t, db) {
		rows := must(db.QueryContext(s.t.Context(), "SELECT * FROM "+table))
		columns := must(rows.Columns())
		filled := make([]bool, len(columns))
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			check(rows.Scan(values...))
			for i, value := range values {
				filled[i] = filled[i] || *value.(*any) != nil
			}
		}
		check(rows.Err())
		for i, column := range columns {
			if name := table + "." + column; !filled[i] && !kind.empty.MatchString(name) {
				missing = append(missing, name)
			}
		}
	}
	check(store.Close())
	if missing != nil {
		s.t.Errorf("no row has a value in %s: make some in fill.txt", strings.Join(missing, ", "))
	}
}

// exchange is a request with its answer.
type exchange struct {
	request string // as a script has it, with the values of variables
	status  string
	headers map[string]string
	body    any
}

// shown are the headers of answers that clients rely on across requests.
var shown = []string{"ETag", "Link", "Location", "Retry-After", "WWW-Authenticate"}

func newExchange(request string, response *http.Response, body []byte) (e exchange, err error) {
	e = exchange{request: request, status: fmt.Sprint(response.StatusCode), headers: map[string]string{}}
	for _, name := range shown {
		if value := response.Header.Get(name); value != "" {
			e.headers[name] = value
		}
	}
	if strings.HasSuffix(response.Request.URL.Path, "/templates") {
		delete(e.headers, "ETag") // each process has its own for a list
	}
	e.body, err = decoded(body)
	return e, err
}

// decoded returns a JSON value with its numbers as they are written. Of a problem it returns the code:
// texts of errors are no promise. nil: the body is empty.
func decoded(body []byte) (value any, err error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err = decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("%.100s: %w", body, err)
	}
	if problem, is := value.(map[string]any); is && problem["code"] != nil && problem["status"] != nil {
		value = map[string]any{"code": problem["code"]}
	}
	return value, nil
}

// String writes the exchange in three lines: the request, the status with headers, and the body.
func (e exchange) String() string {
	var b bytes.Buffer
	b.WriteString(e.request + "\n" + e.status)
	for _, name := range slices.Sorted(maps.Keys(e.headers)) {
		b.WriteString("\t" + name + ": " + e.headers[name])
	}
	b.WriteByte('\n')
	if e.body != nil {
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(e.body); err != nil {
			panic(err) // it was JSON
		}
	}
	return b.String()
}

func parseExchange(text string) (e exchange, err error) {
	lines := append(strings.SplitN(text, "\n", 3), "", "")
	fields := strings.Split(lines[1], "\t")
	e = exchange{request: lines[0], status: fields[0], headers: map[string]string{}}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, ": ")
		e.headers[name] = value
	}
	e.body, err = decoded([]byte(lines[2]))
	return e, err
}

// without removes what may differ: headers, and fields of any object of the body.
func (e exchange) without(names map[string]string) exchange {
	e.headers = maps.Clone(e.headers)
	for name := range names {
		delete(e.headers, name)
	}
	e.body = withoutFields(e.body, names)
	return e
}

func withoutFields(value any, names map[string]string) any {
	switch value := value.(type) {
	case []any:
		list := []any{}
		for _, each := range value {
			list = append(list, withoutFields(each, names))
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name, each := range value {
			_, may := names[name]
			if text, is := each.(string); is && !may && strings.Trim(text, "0123456789") == "" {
				_, may = names[name+" of digits"]
			}
			if !may {
				object[name] = withoutFields(each, names)
			}
		}
		return object
	}
	return value
}

// difference says how two answers differ, "" when they are the same but for what may differ.
func difference(kept, now exchange, may map[string]string) string {
	kept, now = kept.without(may), now.without(may)
	if reflect.DeepEqual(kept, now) {
		return ""
	}
	return fmt.Sprintf("was\n%s\nand is\n%s", kept, now)
}

// record is what a kept database comes with: its keys by name, and the exchanges.
type record struct {
	keys      map[string]string
	exchanges []exchange
}

func (r record) String() string {
	blocks := []string{}
	for _, name := range slices.Sorted(maps.Keys(r.keys)) {
		blocks = append(blocks, name+" "+r.keys[name])
	}
	blocks = []string{strings.Join(blocks, "\n") + "\n"}
	for _, each := range r.exchanges {
		blocks = append(blocks, each.String())
	}
	return strings.Join(blocks, "\n")
}

var blank = regexp.MustCompile(`\n\n+`)

func readRecord(path string) (r record, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	blocks := blank.Split(strings.TrimSpace(string(text)), -1)
	r.keys = map[string]string{}
	for line := range strings.Lines(blocks[0]) {
		name, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		r.keys[name] = key
	}
	for _, block := range blocks[1:] {
		e, err := parseExchange(block)
		if err != nil {
			return r, err
		}
		r.exchanges = append(r.exchanges, e)
	}
	return r, nil
}
