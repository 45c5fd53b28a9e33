package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

var changeTemplateFaults = map[string]func(*store){
	"changes of a template overwrite each other": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			read, err := s.FullStore.Template(ctx, key)
			if err != nil {
				return err
			}
			if write, err := change(&read); err != nil || !write {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				*t = read
				return true, nil
			})
		}
	},
	"a change is written although it failed": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			var failed error
			err := s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				var write bool
				write, failed = change(t)
				return write, nil
			})
			return cmp.Or(failed, err)
		}
	},
	"a change is always written": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				_, err := change(t)
				return true, err
			})
		}
	},
	"a change's error is wrapped": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			if err := s.FullStore.ChangeTemplate(ctx, key, change); err != nil {
				return fmt.Errorf("change template: %w", err)
			}
			return nil
		}
	},
	"a change's panic is swallowed": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) (err error) {
			defer func() {
				if seen := recover(); seen != nil {
					err = fmt.Errorf("panic: %v", seen)
				}
			}()
			return s.FullStore.ChangeTemplate(ctx, key, change)
		}
	},
	"change is called for a template that does not exist": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			err := s.FullStore.ChangeTemplate(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.Template{})
			}
			return err
		}
	},
	"change receives a template without its base": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				without := listed(*t)
				write, err := change(&without)
				if write {
					*t = without
				}
				return write, err
			})
		}
	},
	"a change keeps the tags": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				tags := slices.Clone(t.Tags)
				write, err := change(t)
				t.Tags = tags
				return write, err
			})
		}
	},
	"a change writes InstalledAt": func(s *store) {
		var mu sync.Mutex
		moved := map[svc.TemplateKey]time.Time{}
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				write, err := change(t)
				mu.Lock()
				defer mu.Unlock()
				if write && err == nil {
					moved[key] = t.InstalledAt
				}
				return write, err
			})
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			t, err := s.FullStore.Template(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if at, there := moved[key]; there {
				t.InstalledAt = at
			}
			return t, err
		}
	},
	"a change concurrent with a delete restores the template": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			read, err := s.FullStore.Template(ctx, key)
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			err = s.FullStore.ChangeTemplate(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				if write, err := change(&read); err != nil || !write {
					return err
				}
				_ = s.FullStore.CreateTemplate(ctx, read)
				return nil
			}
			return err
		}
	},
}
