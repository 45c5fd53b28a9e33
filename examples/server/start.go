package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"io"
	"log/slog"

	"github.com/extsvc/svc"
)

//go:embed demo.json
var demo []byte

// The program's own calls have these names in audit records.
var (
	atStart = svc.Host.As("server start")
	byKey   = svc.Host.As("server key")
)

// administrator is the id of the user who gets the first key.
const administrator = "admin"

// start describes what a start of the server found and did.
type start struct {
	first         svc.IssuedKey // of the administrator; zero unless the database was fresh
	administrator bool          // the administrator has a row
	demo          bool          // this start applied the demo
}

// prepare applies the bundle of the configuration. Without a bundle, it applies the demo to a fresh
// database. In a fresh database it also issues the administrator's first key. A server that is
// read-only does nothing of it.
func (h *host) prepare(ctx context.Context, c config, log *slog.Logger) (s start, err error) {
	s.demo = c.Bundle == "" && h.fresh && !c.ReadOnly
	switch {
	case c.ReadOnly:
	case s.demo:
		err = h.applyDemo(ctx)
	case c.Bundle != "":
		err = h.applyFile(ctx, c.Bundle)
	}
	if err != nil {
		return s, err
	}
	if s.administrator, err = h.knownUser(ctx, administrator); err != nil {
		return s, err
	}
	if !h.fresh || c.ReadOnly {
		return s, nil
	}
	if h.fresh, err = h.isFirst(ctx); err != nil {
		return s, err
	}
	h.warnOfKeys(c.Keys, log)
	if h.fresh && s.administrator {
		holder := svc.Identity{Kind: svc.KindUser, ID: administrator}
		s.first, err = h.issue(ctx, atStart, holder, "made at the first start")
	}
	return s, err
}

// isFirst reports whether this is the first of the servers that have found the database fresh.
func (h *host) isFirst(ctx context.Context) (bool, error) {
	mine := rand.Text()
	first, err := identity(ctx, h.store, mine)
	return first == mine, err
}

// identity returns a text that a database keeps for ever: that of the first server that gave it one.
func identity(ctx context.Context, store svc.APIKeyStore, mine string) (string, error) {
	kept, err := store.KeepValue(ctx, "first start", []byte(mine))
	return string(kept), err
}

func (h *host) applyFile(ctx context.Context, file string) error {
	bundle, err := readBundle(ctx, file)
	if err != nil {
		return err
	}
	return inFile(file, h.service.Access.Load(ctx, atStart, bundle, h.progress))
}

func (h *host) applyDemo(ctx context.Context) error {
	bundle, err := svc.ParseBundle(demo)
	if err != nil {
		return err
	}
	return h.service.Access.Apply(ctx, atStart, bundle)
}

// meter returns a function that prints progress once a second, and nothing in the first second. If
// it has printed progress, it prints the end.
func meter(out io.Writer) func(done, total int) {
	shown := newProgress(out, "bundle")
	shown.lines, shown.terminal = true, false
	return func(done, total int) { shown.report(int64(done), int64(total)) }
}

// issue issues a key as by, a name of [svc.Host]. That actor may issue keys to users without a row,
// so issue looks for the row itself.
func (h *host) issue(
	ctx context.Context, by svc.Principal, holder svc.Identity, description string,
) (svc.IssuedKey, error) {
	if holder.Kind == svc.KindUser {
		if known, err := h.knownUser(ctx, holder.ID); err != nil {
			return svc.IssuedKey{}, err
		} else if !known {
			return svc.IssuedKey{}, fmt.Errorf(
				"user %q has no row in the database: use the id of a known user", holder.ID)
		}
	}
	request := svc.NewAPIKey{Description: &description}
	return h.service.Keys.Issue(ctx, by, holder, request)
}
