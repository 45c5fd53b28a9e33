package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// http20 compares a list over HTTP, including the caller's authentication, with the same statements
// for its rows.
func http20(ctx context.Context, s *site) comparison {
	api := httpapi.New(s.service, httpapi.Options{})
	return comparison{
		sides: []side{
			{name: "floor", call: func() error {
				return counted(labelled, func(row func(*templateRow) error) error {
					return s.bare.each(ctx, categoryFilter(s.anyLabel()), math.MaxInt, row)
				})
			}},
			{name: "service", call: func() error { return serve(ctx, api, categoryFilter(s.anyLabel()), &discard{}) }},
		},
		same: func() error { return s.sameAnswer(ctx, api, categoryFilter(s.anyLabel()), math.MaxInt) },
	}
}

// httpAll compares the list of all templates over HTTP with scanning the same columns, in one
// statement and in the same chunks.
func httpAll(ctx context.Context, s *site) comparison {
	api, all := httpapi.New(s.service, httpapi.Options{}), min(s.templates, httpapi.MaxList)
	return comparison{
		sides: []side{
			{name: "floor", call: func() error {
				return counted(all, func(row func(*templateRow) error) error { return s.bare.eachAtOnce(ctx, all, row) })
			}},
			{name: "chunks", call: func() error {
				return counted(all, func(row func(*templateRow) error) error {
					return s.bare.each(ctx, svc.TemplateQuery{}, all, row)
				})
			}},
			{name: "service", call: func() error { return serve(ctx, api, svc.TemplateQuery{}, &discard{}) }},
		},
		same: func() error {
			if s.large {
				return nil // the small site checks all of it
			}
			return s.sameAnswer(ctx, api, svc.TemplateQuery{}, s.templates)
		},
	}
}

// serve requests a list of templates.
func serve(ctx context.Context, api http.Handler, filter svc.TemplateQuery, w http.ResponseWriter) error {
	query := url.Values{}
	if filter.Category != "" {
		query.Set("category", filter.Category)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, httpapi.DefaultPrefix+"/admin/templates?"+query.Encode(), nil)
	r.Header.Set("Authorization", "Bearer "+password)
	api.ServeHTTP(w, r)
	if d, ok := w.(*discard); ok && d.status != http.StatusOK {
		return fmt.Errorf("status %d", d.status)
	}
	return nil
}

// discard takes an answer and keeps none of it.
type discard struct {
	header  http.Header
	status  int
	between func(piece []byte) // called before each piece; nil: no call
}

func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

func (d *discard) WriteHeader(status int) { d.status = status }

func (d *discard) Write(p []byte) (int, error) {
	if d.between != nil {
		d.between(p)
	}
	return io.Discard.Write(p)
}

func (s *site) sameAnswer(ctx context.Context, api http.Handler, filter svc.TemplateQuery, limit int) error {
	answer := httptest.NewRecorder()
	err := serve(ctx, api, filter, answer)
	var list struct {
		Templates []struct {
			ID, Name string
			Tags     []string
			Manifest json.RawMessage
		}
	}
	err = errors.Join(err, json.Unmarshal(answer.Body.Bytes(), &list))
	n := 0
	return errors.Join(err, s.bare.each(ctx, filter, limit, func(r *templateRow) error {
		row, err := r.template()
		if n == len(list.Templates) {
			return fmt.Errorf("the answer ends after %d templates", n)
		}
		sent := list.Templates[n]
		n++
		return errors.Join(err, equal(sent.ID, row.ID), equal(sent.Name, row.Name), equal(sent.Tags, row.Tags), equal(string(sent.Manifest), string(row.Manifest)))
	}), equal(n, len(list.Templates)))
}
