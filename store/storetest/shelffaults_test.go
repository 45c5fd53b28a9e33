//go:build planted

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
	"files are deleted in the order of their paths": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		list := beyond(files, 0, noCatalogue)
		slices.SortFunc(list, func(a, b svc.SourceFile) int { return strings.Compare(a.Path, b.Path) })
		return list[min(svc.MaxSourceFiles, len(list)):]
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
}
