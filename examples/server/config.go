package main

import (
	"slices"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/limits"
)

// config is the configuration, as the configuration file and -print-config have it.
// docs/reference/configuration.md says what each key means.
type config struct {
	DB        string          `toml:"db"`
	Keys      string          `toml:"keys"`
	Addr      string          `toml:"addr"`
	Bundle    string          `toml:"bundle"`
	ReadOnly  bool            `toml:"read_only"`
	HTTP      httpConfig      `toml:"http"`
	TLS       tlsConfig       `toml:"tls"`
	Backup    backupConfig    `toml:"backup"`
	Log       logConfig       `toml:"log"`
	APIKeys   apiKeysConfig   `toml:"api_keys"`
	Templates templatesConfig `toml:"templates"`
	Sources   sourcesConfig   `toml:"sources"`
	Events    eventsConfig    `toml:"events"`
	Limits    limitsConfig    `toml:"limits"`
	SQLite    sqliteConfig    `toml:"sqlite"`
	Postgres  postgresConfig  `toml:"postgres"`

	file    string          // the configuration file; "": none
	flagged map[string]bool // the names of the flags that were set
	// variables has the keys that the environment has set.
	variables map[string]bool
	unknown   []string // warnings of misspelled variables
}

type httpConfig struct {
	Prefix            string   `toml:"prefix"`
	PublicURL         string   `toml:"public_url"`
	HideAccess        bool     `toml:"hide_access"`
	HideOpenAPI       bool     `toml:"hide_openapi"`
	HideAdminPage     bool     `toml:"hide_admin_page"`
	MaxBody           int64    `toml:"max_body"`
	MaxHeader         int      `toml:"max_header"`
	ReadHeaderTimeout duration `toml:"read_header_timeout"`
	ReadTimeout       duration `toml:"read_timeout"`
	WriteTimeout      duration `toml:"write_timeout"`
	IdleTimeout       duration `toml:"idle_timeout"`
	ShutdownTimeout   duration `toml:"shutdown_timeout"`
}

type tlsConfig struct {
	Cert string `toml:"cert_file"`
	Key  string `toml:"key_file"`
}

type backupConfig struct {
	Dir   string   `toml:"dir"`
	Every duration `toml:"every"`
	Keep  int      `toml:"keep"`
}

type logConfig struct {
	Format string `toml:"format"`
	Level  string `toml:"level"`
}

type apiKeysConfig struct {
	UserPrefix             string   `toml:"user_prefix"`
	ServiceAccountPrefix   string   `toml:"service_account_prefix"`
	EarlierUserPrefixes    []string `toml:"earlier_user_prefixes"`
	EarlierAccountPrefixes []string `toml:"earlier_service_account_prefixes"`
	MaxPerHolder           int      `toml:"max_per_holder"`
	IgnoreExpired          bool     `toml:"ignore_expired"`
	Cached                 int      `toml:"cached"`
}

// prefixes returns all accepted prefixes.
func (c apiKeysConfig) prefixes() []string {
	present := []string{c.UserPrefix, c.ServiceAccountPrefix}
	return slices.Concat(present, c.EarlierUserPrefixes, c.EarlierAccountPrefixes)
}

type templatesConfig struct {
	LocalEdits string `toml:"local_edits"`
	Cached     int    `toml:"cached"`
}

type sourcesConfig struct {
	AllowOrigins  []string    `toml:"allow_origins"`
	AllowCIDRs    []string    `toml:"allow_cidrs"`
	AllowPersonal bool        `toml:"allow_personal"`
	UserAgent     string      `toml:"user_agent"`
	Reading       int         `toml:"reading"`
	Cache         int         `toml:"cache"`
	Limits        fetchConfig `toml:"limits"`
}

type fetchConfig struct {
	Catalog       int      `toml:"catalog"`
	Entries       int      `toml:"entries"`
	Manifest      int      `toml:"manifest"`
	Redirects     int      `toml:"redirects"`
	HeaderTimeout duration `toml:"header_timeout"`
	Timeout       duration `toml:"timeout"`
}

type eventsConfig struct {
	Keep bool `toml:"keep"`
}

type limitsConfig struct {
	CachedAccess int `toml:"cached_access"`
}

type sqliteConfig struct {
	Fast bool `toml:"fast"`
}

type postgresConfig struct {
	MaxOpen           int      `toml:"max_open"`
	MaxIdleTime       duration `toml:"max_idle_time"`
	Timeout           duration `toml:"timeout"`
	SynchronousCommit string   `toml:"synchronous_commit"`
	NoNotify          bool     `toml:"no_notify"`
	Exact             bool     `toml:"exact"`
	Pooler            bool     `toml:"pooler"`
}

func defaults() config {
	return config{
		DB: "svc.db", Addr: "127.0.0.1:8080",
		HTTP: httpConfig{
			Prefix: httpapi.DefaultPrefix, MaxBody: httpapi.DefaultMaxBody, MaxHeader: 64 << 10,
			ReadHeaderTimeout: "5s", ReadTimeout: "20s", WriteTimeout: "1m", IdleTimeout: "2m",
			ShutdownTimeout: "10s",
		},
		Backup: backupConfig{Every: "24h", Keep: 7},
		Log:    logConfig{Format: "text", Level: "info"},
		APIKeys: apiKeysConfig{
			UserPrefix: "svcu_", ServiceAccountPrefix: "svcs_",
			EarlierUserPrefixes: []string{}, EarlierAccountPrefixes: []string{},
			MaxPerHolder: svc.DefaultMaxKeysPerHolder, Cached: 1 << 16,
		},
		Templates: templatesConfig{LocalEdits: string(svc.EditsConflict), Cached: 32 << 20},
		Sources: sourcesConfig{
			AllowOrigins: []string{}, AllowCIDRs: []string{}, Reading: 64 << 20, Cache: 64 << 20,
			Limits: fetchConfig{
				Catalog: 32 << 20, Entries: 100_000, Manifest: limits.Manifest, Redirects: 5,
				HeaderTimeout: "10s", Timeout: "30s",
			},
		},
		Events:   eventsConfig{Keep: true},
		Limits:   limitsConfig{CachedAccess: 256 << 20},
		Postgres: postgresConfig{MaxOpen: 10, MaxIdleTime: "5m", Timeout: "30s"},
	}
}

// duration is a time such as "30s" or "2m". It is checked before it is used.
type duration string

func (d duration) value() time.Duration {
	value, _ := time.ParseDuration(string(d))
	return value
}
