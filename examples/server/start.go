package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/extsvc/svc"
)

//go:embed demo.json
var demo []byte

// administrator is the user who gets the first key.
const administrator = "admin"

// start is what a start of the server found and did.
type start struct {
	key           svc.Secret // the administrator's first; "" unless the database was fresh
	administrator bool       // there is one
	demo          bool       // was written
}

// prepare writes the bundle in a file, or the demo when none is named and the database is fresh, and issues the first key.
func (h *host) prepare(ctx context.Context, file string) (start, error) {
	s := start{demo: file == "" && h.fresh}
	var err error
	switch {
	case s.demo:
		err = h.apply(ctx, demo)
	case file != "":
		err = h.applyFile(ctx, file)
	}
	if err != nil {
		return s, err
	}
	if s.administrator, err = h.knownUser(ctx, administrator); err != nil {
		return s, err
	}
	if h.fresh && s.administrator {
		s.key, err = h.issue(ctx, svc.Identity{Kind: svc.KindUser, ID: administrator}, "made at the first start")
	}
	return s, err
}

func (h *host) applyFile(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := h.apply(ctx, data); err != nil {
		return fmt.Errorf("bundle %s: %w", file, err)
	}
	return nil
}

func (h *host) apply(ctx context.Context, data []byte) error {
	bundle, err := svc.ParseBundle(data)
	if err != nil {
		return err
	}
	return h.service.Access.Apply(ctx, svc.Host, bundle)
}

// issue issues a key as the host itself, whom nobody asks whether it knows the user.
func (h *host) issue(ctx context.Context, holder svc.Identity, description string) (svc.Secret, error) {
	if holder.Kind == svc.KindUser {
		if known, err := h.knownUser(ctx, holder.ID); err != nil {
			return "", err
		} else if !known {
			return "", fmt.Errorf("there is no such user: %q has no row", holder.ID)
		}
	}
	issued, err := h.service.Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{Description: &description})
	return issued.Key, err
}
