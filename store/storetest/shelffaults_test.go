package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc"
)

// shelves are the files of sources in a broken store.
type shelves map[svc.SourceKey]map[string]svc.SourceFile

// shelved returns a fault that keeps files with keep and reads them with hand.
func shelved(keep func(all shelves, key svc.SourceKey, file svc.SourceFile), hand func(svc.SourceFile) svc.SourceFile) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		all := shelves{}
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
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
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			mu.Lock()
			defer mu.Unlock()
			file, there := all[key][path]
			if !there {
				return svc.SourceFile{}, errors.Join(svc.ErrNotFound, ctx.Err())
			}
			return hand(file), ctx.Err()
		}
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
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

func asIs(file svc.SourceFile) svc.SourceFile { return file }

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

var shelfFaults = map[string]func(*store){
	"the number of files has no limit": limited(func(map[string]svc.SourceFile, svc.SourceFile) []svc.SourceFile { return nil }),
	"one file fewer is kept": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		return beyond(files, svc.MaxSourceFiles-1, noCatalogue)
	}),
	"the catalogue counts as a file": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		return beyond(files, svc.MaxSourceFiles, func(svc.SourceFile) bool { return true })
	}),
	"a new catalogue replaces a file": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		return slices.DeleteFunc(beyond(files, svc.MaxSourceFiles, func(svc.SourceFile) bool { return true }), func(file svc.SourceFile) bool {
			return file.Path == ""
		})
	}),
	"the file kept last is never deleted": limited(func(files map[string]svc.SourceFile, kept svc.SourceFile) []svc.SourceFile {
		return beyond(files, svc.MaxSourceFiles, func(file svc.SourceFile) bool { return file.Path != "" && file.Path != kept.Path })
	}),
	"files are deleted in the order of their paths": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		list := beyond(files, 0, noCatalogue)
		slices.SortFunc(list, func(a, b svc.SourceFile) int { return strings.Compare(a.Path, b.Path) })
		return list[min(svc.MaxSourceFiles, len(list)):]
	}),
	"all files with the oldest time are deleted": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		first := beyond(files, svc.MaxSourceFiles, noCatalogue)
		if len(first) == 0 {
			return nil
		}
		return slices.DeleteFunc(beyond(files, 0, noCatalogue), func(file svc.SourceFile) bool { return file.KeptAt.After(first[0].KeptAt) })
	}),
	"the limit of files counts all sources together": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		if all[key][file.Path] = copied(file); len(all[key]) > svc.MaxSourceFiles {
			for other := range all {
				if other != key {
					delete(all[other], "a")
				}
			}
			for _, file := range beyond(all[key], svc.MaxSourceFiles, noCatalogue) {
				delete(all[key], file.Path)
			}
		}
	}, copied),
	"a file keeps its first data": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		if old, there := all[key][file.Path]; there {
			file.Data = old.Data
		}
		all[key][file.Path] = copied(file)
	}, copied),
	"files share memory with the caller that keeps them": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		all[key][file.Path] = file
	}, copied),
	"files share memory with the caller that reads them": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		all[key][file.Path] = copied(file)
	}, asIs),
	"files stay when their source is deleted": func(s *store) {
		shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) { all[key][file.Path] = copied(file) }, copied)(s)
		s.deleteSource = s.FullStore.DeleteSource
		found := s.sourceFile
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			if _, err := s.FullStore.Source(ctx, key); err != nil {
				return svc.SourceFile{}, err
			}
			return found(ctx, key, path)
		}
	},
}
