package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

// certificate makes a self-signed certificate for 127.0.0.1 and returns its files.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
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
		[events]
		keep = false`, cert, key))
	s := startServer(t, "-config", file)
	is.True(strings.HasPrefix(s.base, "https://127.0.0.1:"))
	is.True(strings.Contains(s.stdout.String(), "\nKEY=$("+word(os.Args[0])+" key -config "+file+" -user admin)\n"))
	is.True(strings.Contains(s.stdout.String(), s.base+"/api/me/api-keys"))
	_, err := os.Stat(filepath.Join(os.Getenv("TEST_STATE"), "svc.db.keys"))
	is.NoErr(err)

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	issued := strings.TrimSpace(does(t, "key", "-config", file, "-user", "admin"))
	is.True(strings.HasPrefix(issued, "mine_"))
	for path, want := range map[string]int{
		"/api/me/api-keys": 200, "/api/users": 404, "/api/admin/events": 404, "/ext/svc/me/api-keys": 404, "/healthz": 204,
	} {
		request, err := http.NewRequest("GET", s.base+path, nil)
		is.NoErr(err)
		request.Header.Set("Authorization", "Bearer "+issued)
		answer, err := client.Do(request)
		is.NoErr(err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
	}
	is.True(strings.Contains(s.stderr.String(), `"msg":"svc: request"`))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.base, "https://"))
	is.NoErr(err)
	is.Equal(does(t, "health", "-config", file, "-addr", ":"+port), "")
	err = run(t.Context(), []string{"health", "-addr", ":" + port}, &output{}, &output{}) // speaks no TLS
	is.Equal(exitCode(err, &output{}), 1)
}

func TestServerWithoutItsCertificate(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	file := writeFile(t, "c.toml", "[tls]\ncert_file = 'none.pem'\nkey_file = 'none.key'")
	err := run(t.Context(), []string{"-config", file, "-db", db}, &output{}, &output{})
	is.True(err != nil && strings.Contains(err.Error(), "tls.cert_file and tls.key_file: open none.pem"))
	_, err = os.Stat(db)
	is.True(os.IsNotExist(err))
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
	err = run(t.Context(), []string{"health", "-addr", strings.TrimPrefix(sick.URL, "http://")}, &output{}, &output{})
	is.True(err != nil && strings.Contains(err.Error(), "503"))
	err = run(t.Context(), []string{"health", "-addr", "127.0.0.1:0"}, &output{}, &output{})
	is.Equal(exitCode(err, &output{}), 2)
}
