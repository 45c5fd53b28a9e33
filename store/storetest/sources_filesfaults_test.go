//go:build planted

package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

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

var sourceFileFaults = map[string]func(*store){
	"the catalogue has a name": underPath(func(path string) string {
		if path == "" {
			return "templates.json"
		}
		return path
	}),
	"a file is returned without its path": func(s *store) {
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			file, err := s.FullStore.SourceFile(ctx, key, path)
			file.Path = ""
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
}
