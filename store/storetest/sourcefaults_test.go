//go:build planted

package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

var sourceFaults = map[string]func(*store){
	"a source overwrites another": func(s *store) {
		s.does["CreateSource"] = func(ctx context.Context, source svc.Source) error {
			if err := s.FullStore.DeleteSource(ctx, source.SourceKey); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return s.FullStore.CreateSource(ctx, source)
		}
	},
	"change is called for a source that does not exist": func(s *store) {
		s.does["ChangeSource"] = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			err := s.FullStore.ChangeSource(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.Source{})
			}
			return err
		}
	},
	"files of an unknown source are kept until it is registered": func(s *store) {
		var waiting sync.Map
		s.does["KeepSourceFile"] = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			err := s.FullStore.KeepSourceFile(ctx, key, file)
			if errors.Is(err, svc.ErrNotFound) {
				waiting.Store(key, file)
			}
			return err
		}
		s.does["CreateSource"] = func(ctx context.Context, source svc.Source) error {
			err := s.FullStore.CreateSource(ctx, source)
			if file, there := waiting.LoadAndDelete(source.SourceKey); there && err == nil {
				return s.FullStore.KeepSourceFile(ctx, source.SourceKey, file.(svc.SourceFile))
			}
			return err
		}
	},
	"concurrent KeepSourceFile calls are an error": func(s *store) {
		var busy sync.Mutex
		s.does["KeepSourceFile"] = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			if !busy.TryLock() {
				return errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Millisecond)
			return s.FullStore.KeepSourceFile(ctx, key, file)
		}
	},
	"files are deleted in the order of their paths": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		list := beyond(files, 0, noCatalogue)
		slices.SortFunc(list, func(a, b svc.SourceFile) int { return strings.Compare(a.Path, b.Path) })
		return list[min(limits.SourceFiles, len(list)):]
	}),
	"the limit of files counts all sources together": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		if all[key][file.Path] = copied(file); len(all[key]) > limits.SourceFiles {
			for other := range all {
				if other != key {
					delete(all[other], "a")
				}
			}
			for _, file := range beyond(all[key], limits.SourceFiles, noCatalogue) {
				delete(all[key], file.Path)
			}
		}
	}, copied),
}

// shelves are the files of sources in a broken store.
type shelves map[svc.SourceKey]map[string]svc.SourceFile

// shelved returns a fault that keeps files with keep and reads them with hand.
func shelved(keep func(all shelves, key svc.SourceKey, file svc.SourceFile), hand func(svc.SourceFile) svc.SourceFile) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		all := shelves{}
		s.does["KeepSourceFile"] = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			mu.Lock()
			defer mu.Unlock()
			if err := s.FullStore.KeepSourceFile(ctx, key, svc.SourceFile{}); err != nil {
				return err
			}
			if all[key] == nil {
				all[key] = map[string]svc.SourceFile{}
			}
			keep(all, key, file)
			return nil
		}
		s.does["SourceFile"] = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			mu.Lock()
			defer mu.Unlock()
			file, there := all[key][path]
			if !there {
				return svc.SourceFile{}, errors.Join(svc.ErrNotFound, ctx.Err())
			}
			return hand(file), ctx.Err()
		}
		s.does["DeleteSource"] = func(ctx context.Context, key svc.SourceKey) error {
			mu.Lock()
			defer mu.Unlock()
			delete(all, key)
			return s.FullStore.DeleteSource(ctx, key)
		}
	}
}

func copied(file svc.SourceFile) svc.SourceFile {
	file.Data = bytes.Clone(file.Data)
	return file
}

// limited returns a fault that keeps a file, and deletes the files that tooMany returns.
func limited(tooMany func(files map[string]svc.SourceFile, kept svc.SourceFile) []svc.SourceFile) func(*store) {
	return shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		all[key][file.Path] = copied(file)
		for _, file := range tooMany(all[key], file) {
			delete(all[key], file.Path)
		}
	}, copied)
}

// beyond returns the files older than the newest so many, newest first.
func beyond(files map[string]svc.SourceFile, most int, counts func(svc.SourceFile) bool) []svc.SourceFile {
	if len(files) <= most {
		return nil
	}
	var list []svc.SourceFile
	for _, file := range files {
		if counts(file) {
			list = append(list, file)
		}
	}
	slices.SortFunc(list, func(a, b svc.SourceFile) int { return b.KeptAt.Compare(a.KeptAt) })
	return list[min(most, len(list)):]
}

func noCatalogue(file svc.SourceFile) bool { return file.Path != "" }
