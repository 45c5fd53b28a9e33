//go:build planted

package storetest

import (
	"context"

	"github.com/extsvc/svc"
)

// asInstalled returns a fault in each installation that is returned.
func asInstalled(fault func(i *svc.Installation)) func(*store) {
	return func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			for i := range chunk {
				fault(&chunk[i])
			}
			return chunk, err
		}
	}
}

// installationsOf returns a fault in the page that is asked for and in the answer.
func installationsOf(ask func(page *svc.InstallationPage), answer func(chunk []svc.Installation) []svc.Installation) func(*store) {
	return func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			ask(&page)
			chunk, err := s.FullStore.Installations(ctx, page)
			if err != nil {
				return nil, err
			}
			return answer(chunk), nil
		}
	}
}

func asAnswered(chunk []svc.Installation) []svc.Installation { return chunk }

var installationFaults = map[string]func(*store){
	"installations lose the revision": asInstalled(func(i *svc.Installation) { i.Origin.Revision = "" }),
	"templates made by hand are installations": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			templates := allTemplates(ctx, s.FullStore, svc.TemplatePage{Scope: page.Scope, Owner: page.Owner})
			for _, t := range templates {
				if t.Origin == nil && t.ID > page.After && len(chunk) < page.Limit {
					chunk = append(chunk, svc.Installation{ID: t.ID})
				}
			}
			return chunk, err
		}
	},
	"a chunk of installations is more than full": installationsOf(func(page *svc.InstallationPage) { page.Limit++ }, asAnswered),
	"the server's installations are in every list": installationsOf(func(page *svc.InstallationPage) {
		if page.Owner == "" {
			page.Scope = svc.ScopeServer
		}
	}, asAnswered),
}
