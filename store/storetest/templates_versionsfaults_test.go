package storetest

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// versionsFault returns a fault in the versions that are returned.
func versionsFault(fault func(chunk []svc.TemplateVersion) []svc.TemplateVersion) func(*store) {
	return func(s *store) {
		s.templateVersions = func(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
			chunk, err := s.FullStore.TemplateVersions(ctx, key, before, limit)
			return fault(chunk), err
		}
	}
}

// raises returns a fault in a change of a template that raises Version.
func raises(fault func(before svc.Template, after *svc.Template)) func(*store) {
	return func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				before := *t
				write, err := change(t)
				fault(before, t)
				return write, err
			})
		}
	}
}

var versionFaults = map[string]func(*store){
	"no version is kept":               versionsFault(func([]svc.TemplateVersion) []svc.TemplateVersion { return nil }),
	"versions are listed oldest first": versionsFault(func(chunk []svc.TemplateVersion) []svc.TemplateVersion { slices.Reverse(chunk); return chunk }),
	"versions lose their texts":        versionsFault(each(func(v *svc.TemplateVersion) { v.Description = nil })),
	"versions lose their tags":         versionsFault(each(func(v *svc.TemplateVersion) { v.Tags = nil })),
	"versions lose their source revision": versionsFault(each(func(v *svc.TemplateVersion) {
		v.SourceRevision = ""
	})),
	"versions lose their time": versionsFault(each(func(v *svc.TemplateVersion) { v.UpdatedAt = at(0) })),
	"each change is a version": raises(func(before svc.Template, after *svc.Template) { after.Version = before.Version + 1 }),
	"one version fewer is kept": versionsFault(func(chunk []svc.TemplateVersion) []svc.TemplateVersion {
		return slices.DeleteFunc(chunk, func(v svc.TemplateVersion) bool { return v.Number == 6 })
	}),
	"before includes its own version": func(s *store) {
		s.templateVersions = func(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
			return s.FullStore.TemplateVersions(ctx, key, max(before, before+1), limit)
		}
	},
	"versions of templates with one id are confused": func(s *store) {
		s.templateVersions = func(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
			chunk, err := s.FullStore.TemplateVersions(ctx, key, before, limit)
			if err == nil && len(chunk) == 0 {
				return s.FullStore.TemplateVersions(ctx, personalTemplate("alice", key.ID), before, limit)
			}
			return chunk, err
		}
	},
	"versions share the store's memory": func(s *store) {
		kept := map[svc.TemplateKey][]svc.TemplateVersion{}
		s.templateVersions = func(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
			chunk, err := s.FullStore.TemplateVersions(ctx, key, before, limit)
			if len(chunk) == 0 {
				return chunk, err
			}
			if old := kept[key]; old != nil {
				return slices.Clone(old), err
			}
			kept[key] = slices.Clone(chunk)
			return chunk, err
		}
	},
	"a refused change leaves a version": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			var refused error
			if err := s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				before := *t
				write, err := change(t)
				if refused = err; err != nil || !write {
					raised := t.Version > before.Version
					*t = before
					if raised {
						t.Version++
					}
					return true, nil
				}
				return write, nil
			}); err != nil {
				return err
			}
			return refused
		}
	},
	"one of several concurrent changes leaves no version": raises(func(before svc.Template, after *svc.Template) {
		if after.Version > 3 && len(before.Name) == len("name of t")+3 && after.Name == before.Name+"x" {
			after.Version = before.Version
		}
	}),
}

func each(spoil func(*svc.TemplateVersion)) func([]svc.TemplateVersion) []svc.TemplateVersion {
	return func(chunk []svc.TemplateVersion) []svc.TemplateVersion {
		for i := range chunk {
			spoil(&chunk[i])
		}
		return chunk
	}
}
