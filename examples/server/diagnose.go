package main

import (
	"archive/zip"
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

var diagnoseCommand = subcommand{
	name:  "diagnose",
	takes: "FILE",
	about: "write a zip archive for support into FILE, which must be new; - is the standard" +
		" output. It has the version, the system, the configuration, and figures of the database," +
		" but no secret and no row",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		c.addrFlag(flags)
		return func(ctx context.Context) error {
			archive, err := c.diagnosis(ctx)
			if err != nil {
				return err
			}
			if c.operand == standard {
				_, err = c.stdout.Write(archive)
				return err
			}
			return writeText(c.operand, string(archive))
		}
	},
}

// diagnosis returns the archive. A part that cannot be found out says why.
func (c *call) diagnosis(ctx context.Context) ([]byte, error) {
	var config, goroutines bytes.Buffer
	if err := c.print(&config); err != nil {
		return nil, err
	}
	if err := pprof.Lookup("goroutine").WriteTo(&goroutines, 2); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	hide := c.hider()
	for _, part := range []struct {
		name string
		text []byte
	}{
		{"program.json", asJSON(program())},
		{"config.toml", config.Bytes()},
		{"database.json", asJSON(c.figures(ctx))},
		{"server.json", asJSON(map[string]any{"addr": c.Addr, "health": reason(c.askHealth(ctx))})},
		{"goroutines.txt", goroutines.Bytes()},
	} {
		to, err := archive.CreateHeader(&zip.FileHeader{
			Name:     part.name,
			Method:   zip.Deflate,
			Modified: time.Now(),
		})
		if err == nil {
			_, err = io.WriteString(to, hide(string(part.text)))
		}
		if err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

func asJSON(value any) []byte {
	text, _ := json.MarshalIndent(value, "", "  ") // what is given to it always encodes
	return append(text, '\n')
}

// reason returns what an error says; "ok": there is none.
func reason(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// program describes this process and its system.
func program() map[string]any {
	modules := map[string]string{}
	if build, known := debug.ReadBuildInfo(); known {
		for _, m := range build.Deps {
			modules[m.Path] = m.Version
		}
	}
	var variables []string // their names only
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "SVC_") || strings.HasPrefix(name, "PG") {
			variables = append(variables, name)
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return map[string]any{
		"time": time.Now().UTC(), "version": version(), "go": runtime.Version(),
		"os": runtime.GOOS, "arch": runtime.GOARCH, "processors": runtime.NumCPU(),
		"modules": modules, "variables": variables, "heap_bytes": memory.HeapAlloc,
	}
}

// figures counts the rows of the database, and has the version of its tables and the statistics of
// a Service that was just opened on it.
func (c *call) figures(ctx context.Context) map[string]any {
	all := map[string]any{}
	err := c.withAccess(ctx, c.readDatabase, func(service *svc.Service) error {
		all["statistics"] = service.Stats()
		return nil
	})
	all["service"] = reason(err)
	if _, err := readSecrets(c.Keys, c.log); errors.Is(err, fs.ErrNotExist) {
		all["keys_file"] = "missing"
	} else {
		all["keys_file"] = reason(err)
	}
	if err := exists(c.DB); err != nil {
		all["database"] = err.Error()
		return all
	}
	store, err := openMovable(ctx, c.DB, true)
	if err != nil {
		all["database"] = err.Error()
		return all
	}
	defer store.Close()
	db, dialect := store.(interface{ DB() *sql.DB }).DB(), sqlite.Dialect()
	if isPostgres(c.DB) {
		dialect = postgres.Dialect()
	}
	known, _ := fs.Glob(sqlstore.Migrations(dialect), "*.sql")
	all["database"], all["known_migrations"] = "ok", len(known)
	all["migration"], _ = number(ctx, db, "SELECT MAX(version) FROM svc_migrations")
	rows := map[string]int64{}
	for _, found := range createTable.FindAllStringSubmatch(sqlstore.SQL(dialect), -1) {
		if n, err := number(ctx, db, "SELECT COUNT(*) FROM "+found[1]); err == nil {
			rows[found[1]] = n // a later migration may drop the table
		}
	}
	all["rows"], all["pool"] = rows, db.Stats()
	return all
}

var createTable = regexp.MustCompile(`CREATE TABLE (?:IF NOT EXISTS )?(svc_\w+)`)

func number(ctx context.Context, db *sql.DB, query string) (n int64, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

var (
	secretVariable = regexp.MustCompile(`(?i)PASS|SECRET|TOKEN|KEY`)
	looksLikeKey   = regexp.MustCompile(`_[0-9A-Za-z]{40,}`)
)

// hider returns a function that hides all known secrets, wherever they may have
// slipped into a text.
func (c *call) hider() func(text string) string {
	var pairs []string
	hide := func(secret string) {
		if len(secret) >= 4 {
			pairs = append(pairs, secret, "***", url.QueryEscape(secret), "***")
		}
	}
	if address, err := url.Parse(c.DB); err == nil {
		password, _ := address.User.Password()
		hide(password)
		for name, values := range address.Query() {
			if strings.Contains(name, "password") {
				hide(strings.Join(values, ""))
			}
		}
	}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if secretVariable.MatchString(name) && !isSetting(name) {
			hide(value)
		}
	}
	if keys, err := readSecrets(c.Keys, c.log); err == nil {
		for _, p := range keys.accepted() {
			hide(base64.StdEncoding.EncodeToString(p.Pepper))
			hide(base64.StdEncoding.EncodeToString(p.SealingKey))
		}
	}
	replace := strings.NewReplacer(pairs...)
	return func(text string) string {
		return looksLikeKey.ReplaceAllString(replace.Replace(text), "_***")
	}
}

// isSetting reports whether a variable is a key of the configuration, such as SVC_KEYS.
func isSetting(name string) bool {
	for key := range flagOf {
		if variableOf(key) == name {
			return true
		}
	}
	return strings.HasPrefix(name, variableOf("api_keys.")) ||
		strings.HasPrefix(name, variableOf("tls."))
}
