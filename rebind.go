package svc

import (
	"context"
	"errors"
	"slices"
)

// RebindSource says that the templates which came from a source of that name are to be updated from where it is now: one that was
// registered anew at another address updates nothing that came from the old one, until then. It returns the ids of those of the
// server that it has bound, in byte order; none where all were bound already. Nothing is fetched, no content changes.
// Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (s *Service) RebindSource(ctx context.Context, by Principal, name string) ([]string, error) {
	if err := checkID("name", name); err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return nil, err
	}
	source, err := s.store.Source(ctx, SourceKey{Scope: ScopeServer, Name: name})
	if errors.Is(err, ErrNotFound) {
		return nil, noSource()
	} else if err != nil {
		return nil, fault("read source", err)
	}
	defer s.changesTemplates()()
	var keys []TemplateKey
	err = s.mutate(ctx, by, func(ctx context.Context, store Store) (rebound []Event, err error) {
		keys, err = store.RebindTemplates(ctx, source.SourceKey, source.URL)
		for _, key := range keys {
			rebound = append(rebound, happened(s.now(), EventTemplateRebound, key.Target())...)
		}
		return rebound, err
	})
	if err != nil {
		return nil, fault("re-bind templates", err)
	}
	ids := []string{}
	for _, key := range keys {
		if key.Scope == ScopeServer {
			ids = append(ids, key.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// sourceMoved is why a template is not updated from a source that is not where it was.
func sourceMoved(origin *Origin, up Upstream) *Error {
	was := "an address that is not known"
	if origin.URL != "" {
		was = origin.URL
	}
	return &Error{Code: CodeSourceMoved, Message: "this template came from " + was + ", and the source " + quote(up.Source.Name) +
		" is registered at " + up.URL + " now: re-bind the source if that is right"}
}
