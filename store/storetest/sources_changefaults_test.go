package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// changeOfSource returns a fault in a change of a source.
// The fault gets the source before and after change.
func changeOfSource(fault func(before svc.Source, after *svc.Source)) func(*store) {
	return func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				before := *source
				write, err := change(source)
				fault(before, source)
				return write, err
			})
		}
	}
}

// writesSigningKey returns a fault: a change of a source writes its signing key if when says so.
func writesSigningKey(when func(before, after []byte) bool) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		written := map[svc.SourceKey][]byte{}
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				before := bytes.Clone(source.SigningKey)
				write, err := change(source)
				mu.Lock()
				defer mu.Unlock()
				if write && err == nil && when(before, source.SigningKey) {
					written[key] = bytes.Clone(source.SigningKey)
				}
				return write, err
			})
		}
		s.source = func(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
			source, err := s.FullStore.Source(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if signingKey, there := written[key]; there && err == nil {
				source.SigningKey = signingKey
			}
			return source, err
		}
	}
}

var changeSourceFaults = map[string]func(*store){
	"a change of a source keeps the old URL":    changeOfSource(func(before svc.Source, after *svc.Source) { after.URL = before.URL }),
	"a change of a source keeps the old token":  changeOfSource(func(before svc.Source, after *svc.Source) { after.SealedToken = before.SealedToken }),
	"a change of a source keeps the old text":   changeOfSource(func(before svc.Source, after *svc.Source) { after.Description = before.Description }),
	"a change of a source keeps the old time":   changeOfSource(func(before svc.Source, after *svc.Source) { after.UpdatedAt = before.UpdatedAt }),
	"a change of a source keeps the old serial": changeOfSource(func(before svc.Source, after *svc.Source) { after.Serial = before.Serial }),
	"the serial of a source only grows": changeOfSource(func(before svc.Source, after *svc.Source) {
		after.Serial = max(before.Serial, after.Serial)
	}),
	"the serial of a source is a JavaScript number": changeOfSource(func(_ svc.Source, after *svc.Source) {
		after.Serial = min(after.Serial, 1<<53-1)
	}),
	"change receives a source without its signing key": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				source.SigningKey = nil
				return change(source)
			})
		}
	},
	"a change of a source writes the signing key":  writesSigningKey(func(before, after []byte) bool { return true }),
	"a change of a source removes the signing key": writesSigningKey(func(before, after []byte) bool { return len(after) == 0 }),
	"a change of a source gives it a signing key":  writesSigningKey(func(before, after []byte) bool { return len(before) == 0 }),
	"a change of a source never removes the token": changeOfSource(func(before svc.Source, after *svc.Source) {
		if after.SealedToken == nil {
			after.SealedToken = before.SealedToken
		}
	}),
	"change receives a source without its token": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				source.SealedToken = nil
				return change(source)
			})
		}
	},
	"a change of a source changes the sources of all owners": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			_ = s.FullStore.ChangeSource(ctx, personalSource("bob", key.Name), change)
			return s.FullStore.ChangeSource(ctx, key, change)
		}
	},
	"a change of a source writes CreatedAt": func(s *store) {
		var mu sync.Mutex
		moved := map[svc.SourceKey]time.Time{}
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				write, err := change(source)
				mu.Lock()
				defer mu.Unlock()
				if write && err == nil {
					moved[key] = source.CreatedAt
				}
				return write, err
			})
		}
		s.source = func(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
			source, err := s.FullStore.Source(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if at, there := moved[key]; there {
				source.CreatedAt = at
			}
			return source, err
		}
	},
	"a change of a source is always written": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				_, err := change(source)
				return true, err
			})
		}
	},
	"a refused change of a source is written": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			var refused error
			err := s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (write bool, _ error) {
				write, refused = change(source)
				return write, nil
			})
			return cmp.Or(refused, err)
		}
	},
	"the error of a change of a source is wrapped": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			if err := s.FullStore.ChangeSource(ctx, key, change); err != nil {
				return fmt.Errorf("change source: %w", err)
			}
			return nil
		}
	},
	"the panic of a change of a source is swallowed": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) (err error) {
			defer func() {
				if seen := recover(); seen != nil {
					err = fmt.Errorf("panic: %v", seen)
				}
			}()
			return s.FullStore.ChangeSource(ctx, key, change)
		}
	},
	"change is called for a source that does not exist": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			err := s.FullStore.ChangeSource(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.Source{})
			}
			return err
		}
	},
	"a change of a source is two mutations": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			wrote := false
			err := s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (write bool, err error) {
				write, err = change(source)
				wrote = write
				return write, err
			})
			if err != nil || !wrote {
				return err
			}
			return s.FullStore.ChangeSource(ctx, key, func(*svc.Source) (bool, error) { return true, nil })
		}
	},
	"changes of a source overwrite each other": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			read, err := s.FullStore.Source(ctx, key)
			if err != nil {
				return err
			}
			if write, err := change(&read); err != nil || !write {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				*source = read
				return true, nil
			})
		}
	},
	"a change concurrent with a delete restores the source": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			read, err := s.FullStore.Source(ctx, key)
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			err = s.FullStore.ChangeSource(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				if write, err := change(&read); err != nil || !write {
					return err
				}
				_ = s.FullStore.CreateSource(ctx, read)
				return nil
			}
			return err
		}
	},
	"a change of a source shares the store's memory": func(s *store) {
		var mu sync.Mutex
		var last *svc.Source
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				last = source
				return change(source)
			})
		}
		s.source = func(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
			source, err := s.FullStore.Source(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && last != nil && last.SourceKey == key {
				source.SealedToken = last.SealedToken
			}
			return source, err
		}
	},
}
