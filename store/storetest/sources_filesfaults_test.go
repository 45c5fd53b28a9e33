package storetest

import (
	"bytes"
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// keptAs returns a fault in a file before it is kept.
func keptAs(fault func(file *svc.SourceFile)) func(*store) {
	return func(s *store) {
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			file.Data = bytes.Clone(file.Data)
			fault(&file)
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
	}
}

// underPath returns a fault that changes paths.
func underPath(fault func(path string) string) func(*store) {
	return func(s *store) {
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, fault(path))
			file.Path = path
			return file, err
		}
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			file.Path = fault(file.Path)
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
	}
}

// forgottenWhen hides the files of sources that forget was called with, until they are kept again.
func forgottenWhen(fault func(s *store, forget func(svc.SourceKey))) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		forgotten := map[svc.SourceKey]bool{}
		mark := func(key svc.SourceKey, as bool) {
			mu.Lock()
			defer mu.Unlock()
			forgotten[key] = as
		}
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			mark(key, false)
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, path)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && forgotten[key] {
				return svc.SourceFile{}, svc.ErrNotFound
			}
			return file, err
		}
		fault(s, func(key svc.SourceKey) { mark(key, true) })
	}
}

var sourceFileFaults = map[string]func(*store){
	"an empty file is not found": func(s *store) {
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, path)
			if err == nil && len(file.Data) == 0 {
				return svc.SourceFile{}, svc.ErrNotFound
			}
			return file, err
		}
	},
	"files are text":               keptAs(func(file *svc.SourceFile) { file.Data = bytes.ToValidUTF8(file.Data, []byte("\ufffd")) }),
	"files end at the first zero":  keptAs(func(file *svc.SourceFile) { file.Data, _, _ = bytes.Cut(file.Data, []byte{0}) }),
	"files are cut at a megabyte":  keptAs(func(file *svc.SourceFile) { file.Data = file.Data[:min(len(file.Data), 1_000_000)] }),
	"files lose their time":        keptAs(func(file *svc.SourceFile) { file.KeptAt = file.KeptAt.Truncate(time.Second) }),
	"paths are not case-sensitive": underPath(strings.ToLower),
	"paths are cleaned": underPath(func(p string) string {
		if p == "" {
			return p
		}
		return path.Clean(p)
	}),
	"the catalogue has a name": underPath(func(path string) string {
		if path == "" {
			return "templates.json"
		}
		return path
	}),
	"paths are cut": underPath(func(path string) string { return path[:min(len(path), 255)] }),
	"a file is returned without its path": func(s *store) {
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, path)
			file.Path = ""
			return file, err
		}
	},
	"an older file does not replace a newer one": func(s *store) {
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if newer, err := s.FullStore.SourceFile(ctx, key, file.Path); err == nil && newer.KeptAt.After(file.KeptAt) {
				return nil
			}
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
	},
	"a missing file is read from another owner": func(s *store) {
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, path)
			if errors.Is(err, svc.ErrNotFound) && key.Owner == "bob" {
				return s.FullStore.SourceFile(ctx, personalSource("alice", key.Name), path)
			}
			return file, err
		}
	},
	"source names of files are not case-sensitive": func(s *store) {
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if lower := personalSource(key.Owner, strings.ToLower(key.Name)); lower != key {
				_ = s.FullStore.KeepSourceFile(ctx, lower, file)
			}
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
	},
	"keeping a file of an unknown source is no error": func(s *store) {
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if err := s.FullStore.KeepSourceFile(ctx, key, file); !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return nil
		}
	},
	"files of an unknown source are kept until it is registered": func(s *store) {
		var waiting sync.Map
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			err := s.FullStore.KeepSourceFile(ctx, key, file)
			if errors.Is(err, svc.ErrNotFound) {
				waiting.Store(key, file)
			}
			return err
		}
		s.createSource = func(ctx context.Context, source svc.Source) error {
			err := s.FullStore.CreateSource(ctx, source)
			if file, there := waiting.LoadAndDelete(source.SourceKey); there && err == nil {
				return s.FullStore.KeepSourceFile(ctx, source.SourceKey, file.(svc.SourceFile))
			}
			return err
		}
	},
	"deleting a source deletes the files of others with the name": forgottenWhen(func(s *store, forget func(svc.SourceKey)) {
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			forget(personalSource("bob", key.Name))
			return s.FullStore.DeleteSource(ctx, key)
		}
	}),
	"a source that moves loses its files": forgottenWhen(func(s *store, forget func(svc.SourceKey)) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			forget(key)
			return s.FullStore.ChangeSource(ctx, key, change)
		}
	}),
	"keeping a file is a mutation": func(s *store) {
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if err := s.FullStore.KeepSourceFile(ctx, key, file); err != nil {
				return err
			}
			return s.FullStore.ChangeSource(ctx, key, func(*svc.Source) (bool, error) { return true, nil })
		}
	},
	"concurrent KeepSourceFile calls are an error": func(s *store) {
		var busy sync.Mutex
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if !busy.TryLock() {
				return errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Millisecond)
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
	},
	"a file stays when its source is deleted concurrently": func(s *store) {
		var left sync.Map
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if _, err := s.FullStore.Source(ctx, key); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			err := s.FullStore.KeepSourceFile(ctx, key, file)
			if errors.Is(err, svc.ErrNotFound) {
				left.Store(file.Path, file)
				return nil
			}
			return err
		}
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, path)
			if of, there := left.Load(path); there && errors.Is(err, svc.ErrNotFound) {
				return of.(svc.SourceFile), nil
			}
			return file, err
		}
	},
}
