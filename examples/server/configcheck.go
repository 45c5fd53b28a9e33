package main

import (
	"errors"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/extsvc/svc"
)

// wrong is a key with a wrong value.
type wrong struct{ key, problem string }

func (w *wrong) Error() string { return w.key + " " + w.problem }

// complete checks c and sets the default of Keys. lines are those of readFile. An error names the
// flag, or the file, the line and the key.
func (c *config) complete(lines map[string]int) error {
	err := c.each(checkControls)
	if err == nil {
		err = c.each(c.checkDuration)
	}
	if err == nil {
		err = c.check()
	}
	if w, ok := errors.AsType[*wrong](err); ok {
		return c.place(w, lines)
	}
	if c.Keys == "" {
		c.Keys = c.usualKeys()
	}
	return err
}

// place says where a wrong value is.
func (c *config) place(w *wrong, lines map[string]int) error {
	name := flagOf[w.key]
	if c.variables[w.key] && !c.flagged[name] {
		return usageError(variableOf(w.key) + " " + w.problem)
	}
	if c.flagged[name] || c.file == "" {
		return usageError("-" + name + " " + w.problem)
	}
	for key := w.key; key != ""; key = key[:max(0, strings.LastIndex(key, "."))] {
		if line, found := lines[key]; found { // a table in one line has only its own
			return c.at(line, w.Error())
		}
	}
	return errors.New(c.file + ": " + w.Error())
}

// noControls is what a text must be: a variable that ends in a line break would name another file.
const noControls = "must have no control characters, such as a line break at its end"

func hasControls(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

func checkControls(key string, text reflect.Value) error {
	if hasControls(text.String()) {
		return &wrong{key, noControls}
	}
	return nil
}

func (c *config) checkDuration(key string, text reflect.Value) error {
	if text.Type() != reflect.TypeFor[duration]() {
		return nil
	}
	value, err := time.ParseDuration(text.String())
	if err != nil {
		return &wrong{key, "must be a time such as 30s or 2m"}
	}
	switch {
	case value <= 0 && key != "postgres.timeout":
		return &wrong{key, "must be longer than 0"}
	case value < time.Second && key == "backup.every": // it would do nothing else
		return &wrong{key, "must be at least 1s"}
	}
	return nil
}

// check returns the first wrong value.
func (c *config) check() error {
	for _, v := range slices.Concat(c.places(), c.words(), c.numbers()) {
		if !v.good {
			return &wrong{v.key, v.must}
		}
	}
	return nil
}

// value is a value that was checked.
type value struct {
	key  string
	good bool
	must string
}

// ownPaths are the paths that the server answers outside the interface.
var ownPaths = []string{"healthz", "catalogue"}

var (
	prefixPath = regexp.MustCompile(`^(/[A-Za-z0-9][A-Za-z0-9._~-]*)+$`)
	keyPrefix  = regexp.MustCompile(`^[a-z0-9_]{0,15}_$`)
)

// places checks addresses, files and paths.
func (c *config) places() []value {
	_, socket := socketOf(c.Addr)
	first, _, _ := strings.Cut(strings.TrimPrefix(c.HTTP.Prefix, "/"), "/")
	public, badURL := url.Parse(c.HTTP.PublicURL)
	all := []value{
		{"db", c.DB != "", "must name a file or a database"},
		{"db", isPlace(c.DB), notAPlace},
		{"keys", c.Keys != standard, "must name a file"},
		{"addr", isAddress(c.Addr), "must be HOST:PORT, or unix: and a path of at most 103 bytes"},
		{"addr", !socket || !c.TLS.on(), "must be HOST:PORT with tls.cert_file"},
		{"http.prefix", prefixPath.MatchString(c.HTTP.Prefix) && !slices.Contains(ownPaths, first),
			"must be a path such as /ext/svc, and not one of /healthz and /catalogue"},
		{"http.public_url", badURL == nil && public.User == nil &&
			(public.Host != "" || strings.HasPrefix(public.Path, "/") || *public == url.URL{}),
			"must be a URL or a path, without a password"},
		{"tls.cert_file", c.TLS.Key == "" || c.TLS.Cert != "", "is needed with tls.key_file"},
		{"tls.key_file", c.TLS.Cert == "" || c.TLS.Key != "", "is needed with tls.cert_file"},
	}
	for _, origin := range c.Sources.AllowOrigins {
		all = append(all, value{"sources.allow_origins", checkOrigin(origin) == nil,
			"must have origins like http://127.0.0.1:9999"})
	}
	for _, network := range c.Sources.AllowCIDRs {
		prefix, err := netip.ParsePrefix(network)
		all = append(all, value{"sources.allow_cidrs", err == nil && !prefix.Addr().Is4In6(),
			"must have networks like 10.0.0.0/8"})
	}
	return all
}

// words checks texts that must be one of a few.
func (c *config) words() []value {
	edits := []string{string(svc.EditsConflict), string(svc.EditsOverwrite), string(svc.EditsMerge)}
	commits := []string{"", "on", "remote_apply", "remote_write", "local", "off"}
	return append(c.prefixes(),
		oneOf("log.format", c.Log.Format, "text", "json"),
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("templates.local_edits", c.Templates.LocalEdits, edits...),
		oneOf("postgres.synchronous_commit", c.Postgres.SynchronousCommit, commits...),
	)
}

// prefixes checks the prefixes of keys.
func (c *config) prefixes() (all []value) {
	keys := c.APIKeys
	earlier := len(keys.EarlierUserPrefixes)
	for i, prefix := range keys.prefixes() {
		key := "api_keys.earlier_service_account_prefixes"
		switch {
		case i == 0:
			key = "api_keys.user_prefix"
		case i == 1:
			key = "api_keys.service_account_prefix"
		case i < 2+earlier:
			key = "api_keys.earlier_user_prefixes"
		}
		all = append(all, value{key, keyPrefix.MatchString(prefix),
			"must be 1 to 16 of a-z, 0-9 and _, ending in _"})
		for _, other := range keys.prefixes()[:i] {
			all = append(all, value{key,
				!strings.HasPrefix(prefix, other) && !strings.HasPrefix(other, prefix),
				"and the prefix " + other + " must not start with one another"})
		}
	}
	return all
}

func oneOf(key, text string, words ...string) value {
	return value{key, slices.Contains(words, text),
		"must be one of " + strings.TrimPrefix(strings.Join(words, ", "), ", ")}
}

// numbers checks numbers. 0 stands for a default in the library, and for nothing here.
func (c *config) numbers() []value {
	fetch := c.Sources.Limits
	return []value{
		positive("http.max_body", int(c.HTTP.MaxBody)),
		positive("http.max_header", c.HTTP.MaxHeader),
		positive("api_keys.max_per_holder", c.APIKeys.MaxPerHolder),
		positive("api_keys.cached", c.APIKeys.Cached),
		positiveOrNone("templates.cached", c.Templates.Cached),
		positive("sources.reading", c.Sources.Reading),
		positiveOrNone("sources.cache", c.Sources.Cache),
		positive("sources.limits.catalog", fetch.Catalog),
		positive("sources.limits.entries", fetch.Entries),
		positive("sources.limits.manifest", fetch.Manifest),
		positiveOrNone("sources.limits.redirects", fetch.Redirects),
		positiveOrNone("limits.cached_access", c.Limits.CachedAccess),
		positive("postgres.max_open", c.Postgres.MaxOpen),
		positive("backup.keep", c.Backup.Keep),
	}
}

func positive(key string, n int) value { return value{key, n > 0, "must be greater than 0"} }

func positiveOrNone(key string, n int) value {
	return value{key, n > 0 || n == -1, "must be greater than 0, or -1 for none"}
}
