package upgrade

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
		write(t, filepath.Join(dir, kind.name+".answers"), []byte(to.record("testdata/requests.txt").String()))
	}
	write(t, filepath.Join(dir, "migrations.txt"), []byte(strings.Join(migrations(), "\n")+"\n"))
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

// imports imports a key of another system.
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
	for _, line := range lines(s.t, script) {
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
