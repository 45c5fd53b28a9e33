package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// host is the application around a Service. It owns the store and decides which users exist.
type host struct {
	service *svc.Service
	store   database
	fresh   bool // no host has written to the database
	newKeys bool // this start has made the keys file

	secrets     secrets
	sessionKeys [][]byte // of the administration page

	progress func(done, total int) // gets the progress of bundles; nil: nothing does
}

// openHost opens the database and the keys file. It creates them if they do not exist, unless c is
// read-only. The Service
// may fetch templates from base, which serves the server's own catalogue, and from the sources that
// c allows.
func openHost(ctx context.Context, c config, base string, log *slog.Logger) (*host, error) {
	if err := checkRestored(c.Keys, repeatRestore); err != nil {
		return nil, err // before it creates a database
	}
	warnOfMount(c.DB, log)
	open, secretsOf := c.openDatabase, ensureSecrets
	if c.ReadOnly {
		open, secretsOf = c.readDatabase, existingSecrets
	}
	h, err := openStore(ctx, open)
	if err != nil {
		return nil, err
	}
	keys, made, err := secretsOf(c.Keys, log)
	if h.newKeys = made; err == nil {
		h.warnOfKeys(c.Keys, log)
	}
	if err == nil && !h.fresh {
		err = warnOfPrefixes(ctx, h.store, c.APIKeys, log)
	}
	if err == nil {
		err = h.use(c, keys, originsOf(base), log)
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// warnOfKeys warns of a new keys file for a database that others have written to.
func (h *host) warnOfKeys(file string, log *slog.Logger) {
	if h.newKeys && !h.fresh {
		log.Warn("cannot find the keys file, created a new one:"+
			" all earlier API keys stop working, and the tokens of sources cannot be read."+
			" If you have the old file, stop the server, put the file back and start again",
			"file", file)
	}
}

// originsOf returns the origin of the server's own catalogue. Sources are not asked over a socket.
func originsOf(base string) []string {
	if _, is := socketOf(base); is {
		return nil
	}
	return []string{base}
}

// warnOfPrefixes counts the keys whose prefix is not accepted: they have ended, and nobody has
// revoked them.
func warnOfPrefixes(
	ctx context.Context, store database, c apiKeysConfig, log *slog.Logger,
) error {
	stored, err := store.KeyPrefixes(ctx)
	for _, prefix := range c.prefixes() {
		delete(stored, prefix)
	}
	for _, prefix := range slices.Sorted(maps.Keys(stored)) {
		log.Warn("keys with this prefix are not accepted. If the prefix has changed, put it into"+
			" api_keys.earlier_user_prefixes or api_keys.earlier_service_account_prefixes;"+
			" otherwise revoke these keys", "prefix", prefix, "keys", stored[prefix])
	}
	return err
}

// opener opens a database: openDatabase and readDatabase of a config.
type opener func(ctx context.Context) (database, error)

func openStore(ctx context.Context, open opener) (*host, error) {
	store, err := open(ctx)
	if err != nil {
		return nil, err
	}
	h := &host{store: store}
	if h.fresh, err = isFresh(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return h, nil
}

// use makes the Service and the keys of sessions from the secrets. The Service may fetch templates
// from origins, in addition to those that c allows, over plain http and at addresses that are not
// public.
func (h *host) use(c config, keys secrets, origins []string, log *slog.Logger) (err error) {
	h.secrets = keys
	if h.sessionKeys, err = keys.sessionKeys(); err != nil {
		return err
	}
	market, err := marketplace.New(c.Sources.options(origins))
	if err != nil {
		return err
	}
	apiKeys := keys.keyConfig()
	apiKeys.UserPrefix = c.APIKeys.UserPrefix
	apiKeys.ServiceAccountPrefix = c.APIKeys.ServiceAccountPrefix
	apiKeys.EarlierUserPrefixes = c.APIKeys.EarlierUserPrefixes
	apiKeys.EarlierServiceAccountPrefixes = c.APIKeys.EarlierAccountPrefixes
	apiKeys.MaxPerHolder = c.APIKeys.MaxPerHolder
	apiKeys.IgnoreExpired = c.APIKeys.IgnoreExpired
	sources := keys.sourceConfig()
	sources.Marketplace = market
	h.service, err = svc.New(svc.Config{
		Store:   h.store,
		Logger:  log,
		Keys:    apiKeys,
		Sources: sources,

		ReadOnly:  c.ReadOnly,
		Users:     svc.UserConfig{AreRows: true}, // this host keeps no other list of users
		Templates: svc.TemplateConfig{LocalEdits: svc.LocalEdits(c.Templates.LocalEdits)},
		Events:    svc.EventConfig{Keep: c.Events.Keep},
		Memory: svc.Memory{
			Keys:      c.APIKeys.Cached,
			Templates: c.Templates.Cached,
			Access:    c.Limits.CachedAccess,
		},
	})
	return err
}

func (s sourcesConfig) options(origins []string) marketplace.Config {
	config := marketplace.Config{
		AllowOrigins:  slices.Concat(origins, s.AllowOrigins),
		AllowPersonal: s.AllowPersonal,
		UserAgent:     s.UserAgent,
		Reading:       s.Reading,
		Cache:         s.Cache,
		Limits: marketplace.Limits{
			Catalog: s.Limits.Catalog, Entries: s.Limits.Entries, Manifest: s.Limits.Manifest,
			Redirects:     s.Limits.Redirects,
			HeaderTimeout: s.Limits.HeaderTimeout.value(), Timeout: s.Limits.Timeout.value(),
		},
	}
	for _, network := range s.AllowCIDRs {
		config.AllowCIDRs = append(config.AllowCIDRs, netip.MustParsePrefix(network)) // checked
	}
	return config
}

// knownUser reports whether a user has a row in the database.
func (h *host) knownUser(ctx context.Context, id string) (bool, error) {
	user := svc.Identity{Kind: svc.KindUser, ID: id}
	snapshot, err := h.store.Access(ctx, svc.AccessQuery{Identity: user})
	return snapshot.User != nil, err
}

func (h *host) close() error {
	if h.service == nil {
		return h.store.Close()
	}
	return errors.Join(h.service.Close(), h.store.Close())
}
