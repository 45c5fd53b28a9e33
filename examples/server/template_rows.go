package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"

	"github.com/extsvc/svc"
	svcclient "github.com/extsvc/svc/client"
)

type (
	sourceRow struct {
		Name        string  `json:"name"`
		URL         string  `json:"url"`
		HasAuth     bool    `json:"has_auth"`
		Description *string `json:"description"`
	}
	templateRow struct {
		ID             string          `json:"id"`
		Name           string          `json:"name"`
		Category       *string         `json:"category"`
		SourceName     *string         `json:"source_name"`
		SourceRevision *string         `json:"source_revision"`
		Manifest       json.RawMessage `json:"manifest,omitempty"`
	}
)

func ofTemplate(t svc.Template) templateRow {
	row := templateRow{ID: t.ID, Name: t.Name, Category: t.Category, Manifest: t.Manifest}
	if t.Origin != nil {
		row.SourceName, row.SourceRevision = &t.Origin.Source.Name, &t.Origin.Revision
	}
	return row
}

// sourcesOf yields the sources of a target.
func sourcesOf(ctx context.Context, t target) iter.Seq2[sourceRow, error] {
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

var sourceCommands = []rows{
	{name: "source list", about: "list the sources of templates", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			return show(c, sourcesOf(ctx, t), "NAME\tURL\tTOKEN", func(s sourceRow) []any { return []any{s.Name, s.URL, s.HasAuth} }, func(s sourceRow) sourceRow { return s })
		}
	}},
	{name: "source add", takes: "URL", secrets: true, about: "trust a source; its access token comes from the variable SVC_SOURCE_TOKEN", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name := flags.String("name", "", "the `NAME` of the source; without it, after the URL")
		return func(ctx context.Context, t target) error {
			in := svc.NewSource{URL: c.operand, Alias: orNil(*name)}
			if token := svc.Secret(os.Getenv("SVC_SOURCE_TOKEN")); token != "" {
				in.AuthToken = &token
			}
			r := ask(t,
				func(s *svc.Service, by svc.Principal) result[string] {
					source, err := s.Sources.Register(ctx, by, in)
					return of(source.Name, err)
				},
				func(r *svcclient.Client) result[string] {
					source, err := r.Sources.Register(ctx, in)
					return of(source.Name, err)
				})
			if r.err != nil {
				return r.err
			}
			return c.done("added source %s", r.value)
		}
	}},
	removal("source remove", "SOURCE", "trust a source no more; its templates stay", "removed source %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.Sources.Remove(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error { return r.Sources.Remove(ctx, id) }),
	{name: "source check", secrets: true, about: "ask all sources for updates of what is installed", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error { return c.checkUpdates(ctx, t) }
	}},
}

// checkUpdates prints the templates that have an update, and the sources that could not be asked.
func (c *call) checkUpdates(ctx context.Context, t target) error {
	r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.UpdateReport] {
		return of(s.Templates.CheckUpdates(ctx, by, nil))
	},
		func(r *svcclient.Client) result[svc.UpdateReport] { return of(r.Templates.CheckUpdates(ctx)) })
	if r.err != nil {
		return r.err
	}
	failed := 0
	for _, s := range r.value.Sources {
		if s.Problem != "" {
			failed++
			fmt.Fprintf(c.stderr, "source %s: %s\n", s.Source.Name, s.Problem)
		}
	}
	type update struct {
		ID     string `json:"id"`
		Source string `json:"source_name"`
		Update bool   `json:"update"`
	}
	err := show(c, sequence(r.value.Templates, nil), "TEMPLATE\tSOURCE\tUPDATE", func(u update) []any { return []any{u.ID, u.Source, u.Update} },
		func(u svc.TemplateUpdate) update { return update{u.ID, u.Source.Name, u.HasUpdate()} })
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d sources could not be asked", failed, len(r.value.Sources))
	}
	return err
}

var templateCommands = []rows{
	{name: "template list", about: "list the templates", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			all := ask(t, func(s *svc.Service, by svc.Principal) iter.Seq2[svc.Template, error] {
				return s.Templates.List(ctx, by, svc.TemplateQuery{})
			},
				func(r *svcclient.Client) iter.Seq2[svc.Template, error] {
					return r.Templates.List(ctx, svc.TemplateQuery{})
				})
			return show(c, all, "ID\tNAME\tCATEGORY\tSOURCE", func(t templateRow) []any { return []any{t.ID, t.Name, t.Category, t.SourceName} },
				func(t svc.Template) templateRow { row := ofTemplate(t); row.Manifest = nil; return row })
		}
	}},
	{name: "template show", takes: "TEMPLATE", about: "show a template", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Template] {
				return of(s.Templates.Read(ctx, by, c.operand))
			},
				func(r *svcclient.Client) result[svc.Template] { return of(r.Templates.Read(ctx, c.operand)) })
			if r.err != nil {
				return r.err
			}
			return showOne(c, ofTemplate(r.value))
		}
	}},
	{name: "template install", takes: "TEMPLATE", secrets: true, about: "install a template of a source", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		source, as := flags.String("source", "", "the `NAME` of the source"), flags.String("as", "", "the `ID` here; without it, that of the source")
		return func(ctx context.Context, t target) error {
			in := svc.Install{TemplateID: c.operand, SourceName: *source, AliasID: orNil(*as)}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Template] {
				return of(s.Templates.Install(ctx, by, in))
			},
				func(r *svcclient.Client) result[svc.Template] { return of(r.Templates.Install(ctx, in)) })
			if r.err != nil {
				return r.err
			}
			return c.done("installed template %s", r.value.ID)
		}
	}},
	{name: "template check", secrets: true, about: "print which templates have an update", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error { return c.checkUpdates(ctx, t) }
	}},
	{name: "template update", takes: "TEMPLATE", secrets: true, about: "update a template from its source", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		force := flags.Bool("force", false, "discard local edits")
		return func(ctx context.Context, t target) error {
			var in svc.UpdateRequest
			if *force {
				in.LocalEdits = svc.TakeTheirs
			}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Update] {
				return of(s.Templates.Update(ctx, by, c.operand, in))
			},
				func(r *svcclient.Client) result[svc.Update] { return of(r.Templates.Update(ctx, c.operand, in)) })
			if r.err != nil {
				return r.err
			}
			if !r.value.Updated {
				return c.done("template %s is up to date", c.operand)
			}
			return c.done("updated template %s", c.operand)
		}
	}},
	{name: "template diff", takes: "TEMPLATE", secrets: true, about: "print what differs from the source; exit with 2 if anything does", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.TemplateDiff] {
				return of(s.Templates.Diff(ctx, by, c.operand))
			},
				func(r *svcclient.Client) result[svc.TemplateDiff] { return of(r.Templates.Diff(ctx, c.operand)) })
			if r.err != nil {
				return r.err
			}
			type change struct {
				Path   string          `json:"path"`
				Base   json.RawMessage `json:"base"`
				Ours   json.RawMessage `json:"ours"`
				Theirs json.RawMessage `json:"theirs"`
			}
			err := show(c, sequence(r.value.Changes, nil), "PATH\tBASE\tOURS\tTHEIRS", func(d change) []any {
				return []any{d.Path, string(d.Base), string(d.Ours), string(d.Theirs)}
			}, func(d svc.ContentChange) change { return change(d) })
			if err == nil && len(r.value.Changes) > 0 {
				err = silent(2)
			}
			return err
		}
	}},
	removal("template remove", "TEMPLATE", "remove a template", "removed template %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.Templates.Delete(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error { return r.Templates.Delete(ctx, id) }),
}
