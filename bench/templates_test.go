package bench_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/extsvc/svc"
)

func templateGet(ctx context.Context, s *site) comparison {
	return comparison{
		exact: true,
		sides: []side{
			{name: "floor", call: func() error {
				_, err := s.bare.get(ctx, s.anyTemplate())
				return err
			}},
			{name: "service", call: func() error {
				_, err := s.service.Templates.Read(ctx, svc.Host, s.anyTemplate())
				return err
			}},
		},
		same: func() error {
			for range 10 {
				id := s.anyTemplate()
				row, failed := s.bare.get(ctx, id)
				read, bad := row.template()
				template, err := s.service.Templates.Read(ctx, svc.Host, id)
				if err := errors.Join(failed, bad, err, equal(template, read)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// The filters that match 20 templates.
func categoryFilter(label int) svc.TemplateQuery {
	return svc.TemplateQuery{Category: fmt.Sprint("category-", label)}
}

func tagFilter(label int) svc.TemplateQuery {
	return svc.TemplateQuery{Tag: fmt.Sprint("tag-", label)}
}

func bothFilters(label int) svc.TemplateQuery {
	return svc.TemplateQuery{Category: categoryFilter(label).Category, Tag: tagFilter(label).Tag}
}

// commonTagFilter selects a tag that every template has.
func commonTagFilter(label int) svc.TemplateQuery {
	return svc.TemplateQuery{Category: categoryFilter(label).Category, Tag: "everything"}
}

// listOf compares lists of 20 templates of 4 KB.
func listOf(filter func(label int) svc.TemplateQuery) func(context.Context, *site) comparison {
	return func(ctx context.Context, s *site) comparison {
		return comparison{
			exact: true,
			sides: []side{
				{name: "floor", call: func() error {
					return counted(labelled, func(row func(*templateRow) error) error {
						return s.bare.each(ctx, filter(s.anyLabel()), math.MaxInt, row)
					})
				}},
				{name: "service", call: func() error {
					return drained(labelled, s.service.Templates.List(ctx, svc.Host, filter(s.anyLabel())))
				}},
			},
			same: func() error { return s.sameList(ctx, filter(s.anyLabel()), labelled) },
		}
	}
}

// list1000 compares the first 1,000 templates with the same statements, and with one statement for
// all of them.
func list1000(ctx context.Context, s *site) comparison {
	const limit = 1000
	return comparison{
		exact: true,
		sides: []side{
			{name: "floor", call: func() error {
				return counted(limit, func(row func(*templateRow) error) error {
					return s.bare.each(ctx, svc.TemplateQuery{}, limit, row)
				})
			}},
			{name: "at-once", call: func() error {
				return counted(limit, func(row func(*templateRow) error) error { return s.bare.eachAtOnce(ctx, limit, row) })
			}},
			{name: "service", call: func() error {
				return drained(limit, first(limit, s.service.Templates.List(ctx, svc.Host, svc.TemplateQuery{})))
			}},
		},
		same: func() error { return s.sameList(ctx, svc.TemplateQuery{}, limit) },
	}
}

// first stops a list after its first rows.
func first[R any](limit int, rows iter.Seq2[R, error]) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		n := 0
		for row, err := range rows {
			if n++; !yield(row, err) || n == limit {
				return
			}
		}
	}
}

// drained reads a list to its end.
func drained(want int, rows iter.Seq2[svc.Template, error]) error {
	n := 0
	for _, err := range rows {
		if err != nil {
			return err
		}
		n++
	}
	return equal(n, want)
}

// counted calls each with a function that counts rows.
func counted(want int, each func(row func(*templateRow) error) error) error {
	n := 0
	err := each(func(*templateRow) error {
		n++
		return nil
	})
	return errors.Join(err, equal(n, want))
}

func (s *site) sameList(ctx context.Context, filter svc.TemplateQuery, limit int) error {
	var floor, service []svc.Template
	err := s.bare.each(ctx, filter, limit, func(r *templateRow) error {
		template, err := r.template()
		floor = append(floor, template)
		return err
	})
	for template, failed := range first(limit, s.service.Templates.List(ctx, svc.Host, filter)) {
		err = errors.Join(err, failed)
		service = append(service, template)
	}
	return errors.Join(err, equal(len(service), limit), equal(service, floor))
}

// installTemplate compares an installation from a source that answers at once with one insert of
// the same rows.
func installTemplate(ctx context.Context, s *site) comparison {
	next := func() string {
		s.next++
		return fmt.Sprint("installed-", s.next)
	}
	var fromBare, fromService string
	sides := []side{
		{name: "floor", call: func() error {
			fromBare = next()
			return s.bare.install(ctx, fromBare, installed())
		}},
		{name: "service", call: func() error {
			fromService = next()
			_, err := s.service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "new", SourceName: "shop", AliasID: &fromService})
			return err
		}},
	}
	return comparison{
		sides: sides,
		same: func() error {
			err := errors.Join(sides[0].call(), sides[1].call())
			a, failed := s.service.Templates.Read(ctx, svc.Host, fromBare)
			b, bad := s.service.Templates.Read(ctx, svc.Host, fromService)
			if err := errors.Join(err, failed, bad); err != nil {
				return err
			}
			for _, t := range []*svc.Template{&a, &b} {
				t.ID, t.Origin.ID, t.Origin.Revision, t.InstalledAt, t.UpdatedAt = "", "", "", time.Time{}, time.Time{}
			}
			return equal(b, a)
		},
		done: func() error {
			_, err := s.bare.write.ExecContext(ctx, `DELETE FROM svc_templates WHERE scope = 'server' AND owner = '' AND id > 'installed-' AND id < 'installed.'`)
			return err
		},
	}
}
