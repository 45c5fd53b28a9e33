package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/pelletier/go-toml/v2"
)

// printed runs the server with -print-config.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	return does(t, append(args, "-print-config")...)
}

// table reads lines "KEY -> VALUE" of testdata.
func table(t *testing.T, name string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile("testdata/" + name)))) {
		key, value, is := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), `\n`, "\n"), " -> ")
		if is {
			rows[key] = value
		} else if line[0] != '#' {
			t.Fatalf("%s: %s has no value", name, line)
		}
	}
	return rows
}

func TestWrongConfig(t *testing.T) {
	rows := table(t, "wrong-config.txt")
	t.Chdir(t.TempDir())
	for text, want := range rows {
		is.New(t).NoErr(os.WriteFile("c.toml", []byte(text), 0o600))
		fails(t, want, "-config", "c.toml", "-print-config")
	}
}

// Every key has its row in docs/reference/configuration.md, with its default.
func TestConfigIsDocumented(t *testing.T) {
	is := is.New(t)
	var tree map[string]any
	text := printed(t)
	is.Equal(printed(t, "-config", writeFile(t, "c.toml", "\ufeff"+text)), text) // a byte order mark is none of it
	is.NoErr(toml.Unmarshal([]byte(text), &tree))
	page := must(os.ReadFile("../../docs/reference/configuration.md"))
	_, section, _ := strings.Cut(string(page), "## The configuration file\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var have []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| `([^`]*)` \\|").FindAllStringSubmatch(section, -1) {
		have = append(have, row[1]+" = "+row[2])
	}
	slices.Sort(have)
	is.Equal(have, keysIn(tree, ""))
}

// keysIn returns the keys of a tree with their values, as in a table of the documentation.
func keysIn(tree map[string]any, table string) (all []string) {
	for name, value := range tree {
		if inner, is := value.(map[string]any); is {
			all = append(all, keysIn(inner, table+name+".")...)
			continue
		}
		text, _ := toml.Marshal(map[string]any{"x": value})
		_, shown, _ := strings.Cut(strings.TrimSpace(string(text)), " = ")
		all = append(all, table+name+" = "+strings.ReplaceAll(shown, "'", `"`))
	}
	slices.Sort(all)
	return all
}

// parsed returns the call that a command line asks for.
func parsed(t *testing.T, args ...string) *call {
	t.Helper()
	c := &call{args: doubled(args), stdout: io.Discard, stderr: io.Discard}
	var do job
	program := c.program(&do)
	program.SetArgs(c.args)
	if err := program.Execute(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return c
}

func TestParse(t *testing.T) {
	is := is.New(t)
	usual := defaults()
	usual.Keys, usual.flagged, usual.variables = "svc.db.keys", map[string]bool{}, map[string]bool{}
	is.Equal(parsed(t).config, usual)
	is.Equal(parsed(t, "-db", "${HOME}").DB, "${HOME}") // a shell expands flags

	c := parsed(t, "-addr", ":0", "-db", "d", "-keys", "k", "-bundle", "b",
		"-allow-source", "http://127.0.0.1:9999", "-allow-source", "https://git.corp.example")
	is.Equal([]string{c.Addr, c.DB, c.Keys, c.Bundle}, []string{":0", "d", "k", "b"})
	is.Equal(c.Sources.AllowOrigins, []string{"http://127.0.0.1:9999", "https://git.corp.example"})

	c = parsed(t, "key", "-db", "d", "-service-account", "ci")
	is.Equal([]string{c.DB, c.Keys}, []string{"d", "d.keys"})
	is.Equal(parsed(t, "apply", "-prune", "-").operand, "-")
	is.Equal(parsed(t, "diff", "-json", "-db", "postgres://db/svc", "b.json").operand, "b.json")
	for _, db := range []string{"postgres://u:p@db/svc", "postgresql://db/svc?sslmode=disable"} {
		is.Equal(parsed(t, "-db", db).Keys, "svc.keys")
		is.Equal(parsed(t, "key", "-db", db, "-keys", "k", "-user", "a").Keys, "k")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for line, want := range table(t, "wrong-usage.txt") {
		exits(t, 2, want, strings.Fields(line)...)
	}
}

// The help of the program names every command, and that of a command each of its flags. It opens nothing.
func TestHelp(t *testing.T) {
	t.Parallel()
	said := func(args ...string) string {
		t.Helper()
		is := is.New(t)
		var stdout, stderr output
		is.NoErr(run(t.Context(), args, &stdout, &stderr))
		is.Equal(stderr.String(), "")
		return stdout.String()
	}
	whole, group := said("-help"), said("help", "user")
	if !strings.Contains(group, "server user set") || strings.Contains(group, "server group") || strings.Contains(group, "-overlap") {
		t.Errorf("the help of a group: %s", group)
	}
	for _, c := range subcommands {
		is := is.New(t)
		text := said(append(strings.Fields(c.name), "-h")...)
		is.Equal(text, said(append(strings.Fields(c.name), "--help")...))
		is.True(strings.Contains(whole, "  "+strings.TrimSpace("server "+c.name)+" [flags]"))
		c.flags().VisitAll(func(f *flag.Flag) {
			if !strings.Contains(text, "\n  -"+f.Name) || f.Usage == "" {
				t.Errorf("the help of %q does not explain -%s", c.name, f.Name)
			}
		})
		for line := range strings.Lines(text) {
			is.True(len(line) <= 101)
		}
	}
}

// certificate makes a self-signed certificate for 127.0.0.1 and returns its files.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))
	secret := must(x509.MarshalPKCS8PrivateKey(private))
	parsed, _ := x509.ParseCertificate(der)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return writeFile(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))), pool
}

// The server does what its file says, and the commands find the server by the same file.
func TestServerWithAConfig(t *testing.T) {
	is := is.New(t)
	cert, key, pool := certificate(t)
	t.Setenv("TEST_STATE", t.TempDir())
	file := writeFile(t, "c.toml", fmt.Sprintf(`
		db = "${TEST_STATE}/svc.db"
		[http]
		prefix = "/api"
		public_url = "https://memory.example/api"
		hide_access = true
		[tls]
		cert_file = %q
		key_file = %q
		[log]
		format = "json"
		[api_keys]
		user_prefix = "mine_"
		max_per_holder = 3
		ignore_expired = true
		[events]
		keep = false`, cert, key))
	s := startServer(t, "-config", file)
	is.True(strings.HasPrefix(s.base, "https://127.0.0.1:"))
	is.True(strings.Contains(s.stdout.String(), "\nKEY=$("+word(os.Args[0])+" key -config "+file+" -user admin)\n"))
	is.True(strings.Contains(s.stdout.String(), s.base+"/api/me/api-keys"))
	must(os.Stat(filepath.Join(os.Getenv("TEST_STATE"), "svc.db.keys")))

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	issued := strings.TrimSpace(does(t, "key", "-config", file, "-user", "admin"))
	is.True(strings.HasPrefix(issued, "mine_"))
	for range 3 { // each expires, and makes room for the next
		request := must(http.NewRequest("POST", s.base+"/api/me/api-keys", strings.NewReader(`{"expires_at":"2999-01-01T00:00:00Z"}`)))
		request.Header.Set("Authorization", "Bearer "+issued)
		request.Header.Set("Content-Type", "application/json")
		answer := must(client.Do(request))
		_ = answer.Body.Close()
		is.Equal(answer.StatusCode, 201)
		execute(t, filepath.Join(os.Getenv("TEST_STATE"), "svc.db"), `UPDATE svc_api_keys SET expires_at = 1 WHERE expires_at IS NOT NULL`)
	}
	for path, want := range map[string]int{
		"/api/me/api-keys": 200, "/api/users": 404, "/api/admin/events": 404, "/ext/svc/me/api-keys": 404, "/healthz": 204,
	} {
		request := must(http.NewRequest("GET", s.base+path, nil))
		request.Header.Set("Authorization", "Bearer "+issued)
		answer := must(client.Do(request))
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
	}
	is.True(strings.Contains(s.stderr.String(), `"msg":"svc: request"`))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.base, "https://"))
	is.NoErr(err)
	is.Equal(does(t, "health", "-config", file, "-addr", ":"+port), "")
	fails(t, "", "health", "-addr", ":"+port) // speaks no TLS
}

// Health is asked by a process of its own, whose exit code counts.
func TestHealth(t *testing.T) {
	is := is.New(t)
	s := startServer(t, "-db", newDB(t))
	addr := strings.TrimPrefix(s.base, "http://")
	is.NoErr(command(t, "health", "-addr", addr).Run())
	is.NoErr(s.stop(t))
	out, err := command(t, "health", "-addr", addr).CombinedOutput()
	is.Equal(err.Error(), "exit status 1")
	is.True(strings.Contains(string(out), "does not answer"))

	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer sick.Close()
	fails(t, "503", "health", "-addr", strings.TrimPrefix(sick.URL, "http://"))
	exits(t, 2, "-addr", "health", "-addr", "127.0.0.1:0")
}

// A certificate that is renewed is served without a restart. While its files do not fit, the last one stays.
func TestRenewedCertificate(t *testing.T) {
	is := is.New(t)
	cert, key, _ := certificate(t)
	next, nextKey, _ := certificate(t)
	kept := must(readCertificates(tlsConfig{Cert: cert, Key: key}, slog.New(slog.NewTextHandler(io.Discard, nil))))
	served := func() *tls.Certificate { return must(kept.get(nil)) }
	first := served()
	is.NoErr(os.Rename(next, cert)) // its key has not come yet
	kept.looked = kept.looked.Add(-looksApart)
	is.Equal(served(), first)
	is.NoErr(os.Rename(nextKey, key))
	is.Equal(served(), first) // looked at just now
	kept.looked = kept.looked.Add(-looksApart)
	is.True(served() != first)
	_, err := readCertificates(tlsConfig{Cert: cert + "x", Key: key}, nil)
	is.True(err != nil)
}

// A name of a flag says whether a value follows, which may begin with a dash.
func TestValuesWithDashes(t *testing.T) {
	takes := map[string]bool{}
	for _, of := range subcommands {
		of.flags().VisitAll(func(f *flag.Flag) {
			if was, seen := takes[f.Name]; seen && was == isSwitch(f) {
				t.Errorf("-%s takes a value in some commands only", f.Name)
			}
			takes[f.Name] = !isSwitch(f)
		})
	}
}

// A key that cannot be one is a mistake of its variable.
func TestWrongKeyInTheEnvironment(t *testing.T) {
	for _, key := range []string{"", "two words", "svcu_x\n", "ü"} {
		t.Setenv("SVC_KEY", key)
		exits(t, 2, "SVC_KEY", "user", "list", "-url", "http://127.0.0.1:1/ext/svc")
	}
}
