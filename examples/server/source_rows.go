package main

import (
	"context"
	"flag"
	"iter"
	"os"

	"github.com/extsvc/svc"
)

// sourceRow is a source as the API shows it.
type sourceRow struct {
	Name        string  `json:"name"`
	URL         string  `json:"url"`
	HasAuth     bool    `json:"has_auth"`
	Description *string `json:"description"`
}

func (s sourceRow) cells() []any { return []any{s.Name, s.URL, s.HasAuth} }

var sourceCommands = []rows{
	listing(
		"source list", "list the sources of templates", "NAME\tURL\tTOKEN", target.sources,
		func(s sourceRow) sourceRow { return s },
	),
	{
		name: "source add", takes: "URL", secrets: true,
		about: "trust a source; its access token comes from the variable SVC_SOURCE_TOKEN",
		setup: addSource,
	},
	removal(
		"source remove", "SOURCE", "trust a source no more; its templates stay",
		"removed source %s", target.removeSource,
	),
	{
		name: "source check", secrets: true,
		about: "ask all sources for updates of what is installed",
		setup: flagless(checkUpdates),
	},
}

func addSource(flags *flag.FlagSet, c *call) rowsAction {
	name := flags.String("name", "", "the `NAME` of the source; without it, after the URL")
	return func(ctx context.Context, t target) error {
		in := svc.NewSource{URL: c.operand, Alias: orNil(*name)}
		if token := svc.Secret(os.Getenv("SVC_SOURCE_TOKEN")); token != "" {
			in.AuthToken = &token
		}
		added, err := t.registerSource(ctx, in)
		return c.done(err, "added source %s", added)
	}
}

func (t target) sources(ctx context.Context) iter.Seq2[sourceRow, error] {
	return func(yield func(sourceRow, error) bool) {
		if t.local != nil {
			for s, err := range t.local.Sources.List(ctx, t.by) {
				if !yield(sourceRow{s.Name, s.URL, s.HasAuth(), s.Description}, err) {
					return
				}
			}
			return
		}
		for s, err := range t.far.Sources.List(ctx) {
			if !yield(sourceRow{s.Name, s.URL, s.HasAuth, s.Description}, err) {
				return
			}
		}
	}
}

// registerSource returns the name of the new source.
func (t target) registerSource(ctx context.Context, in svc.NewSource) (string, error) {
	if t.local != nil {
		source, err := t.local.Sources.Register(ctx, t.by, in)
		return source.Name, err
	}
	source, err := t.far.Sources.Register(ctx, in)
	return source.Name, err
}

func (t target) removeSource(ctx context.Context, name string) error {
	if t.local != nil {
		return t.local.Sources.Remove(ctx, t.by, name)
	}
	return t.far.Sources.Remove(ctx, name)
}
