package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// host is the application around a service: it owns the store, and says who is a user.
type host struct {
	service *svc.Service
	store   database
	fresh   bool // nothing was ever written to the database
}

// openHost opens the database and the keys file, both made if there are none. Templates may be fetched from base, where
// the server's own catalogue is, and from the sources that o allows.
func openHost(ctx context.Context, o options, base string, log *slog.Logger) (*host, error) {
	h, err := openStore(ctx, o.db)
	if err != nil {
		return nil, err
	}
	keys, made, err := ensureSecrets(o.keys, log)
	if err == nil && made && !h.fresh {
		log.Warn("the keys file was gone, and a new one was made: no key issued before works any more, and the tokens of sources "+
			"cannot be read. If you still have the old file, stop, put it back and start again", "file", o.keys)
	}
	if err == nil {
		err = h.build(keys, append([]string{base}, o.allowSources...), log)
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func openStore(ctx context.Context, db string) (*host, error) {
	store, err := openDatabase(ctx, db)
	if err != nil {
		return nil, err
	}
	h := &host{store: store}
	if h.fresh, err = untouched(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return h, nil
}

// build makes the service. Sources at origins may be asked although they are plain http, or no public address.
func (h *host) build(keys secrets, origins []string, log *slog.Logger) error {
	market, err := marketplace.New(marketplace.Config{AllowOrigins: origins})
	if err != nil {
		return err
	}
	h.service, err = svc.New(svc.Config{
		Store:       h.store,
		Marketplace: market,
		KnownUser:   h.knownUser,
		Logger:      log,
		Keys:        keys.keyConfig(),
		Sources:     svc.SourceConfig{SealingKey: keys.SealingKey},
		Events:      svc.EventConfig{Keep: true},
	})
	return err
}

// knownUser: this host has no users of its own, so known are those who have a row.
func (h *host) knownUser(ctx context.Context, id string) (bool, error) {
	_, err := h.store.User(ctx, id)
	if errors.Is(err, svc.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (h *host) close() error {
	if h.service == nil {
		return h.store.Close()
	}
	return errors.Join(h.service.Close(), h.store.Close())
}
