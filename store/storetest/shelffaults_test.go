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

// shelves are the files of sources, kept by a store that does it badly.
type shelves map[svc.SourceKey]map[string]svc.SourceFile

// shelved keeps files on shelves, as keep says, and hands them out as hand does.
func shelved(keep func(all shelves, key svc.SourceKey, file svc.SourceFile), hand func(svc.SourceFile) svc.SourceFile) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		all := shelves{}
		s.keepSourceFile = func(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
			mu.Lock()
			defer mu.Unlock()
			if err := s.Store.KeepSourceFile(ctx, key, svc.SourceFile{}); err != nil {
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
			return s.Store.DeleteSource(ctx, key)
		}
	}
}

func copied(file svc.SourceFile) svc.SourceFile {
	file.Data = bytes.Clone(file.Data)
	return file
}

func asIs(file svc.SourceFile) svc.SourceFile { return file }

// limited keeps a file, and forgets those that too says.
func limited(tooMany func(files map[string]svc.SourceFile, kept svc.SourceFile) []svc.SourceFile) func(*store) {
	return shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		all[key][file.Path] = copied(file)
		for _, file := range tooMany(all[key], file) {
			delete(all[key], file.Path)
		}
	}, copied)
}

// beyond returns the files that are older than those that are so many, newest first.
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
	"files are kept without end": limited(func(map[string]svc.SourceFile, svc.SourceFile) []svc.SourceFile { return nil }),
	"a file fewer is kept": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		return beyond(files, svc.MaxSourceFiles-1, noCatalogue)
	}),
	"the catalogue is one of the files": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		return beyond(files, svc.MaxSourceFiles, func(svc.SourceFile) bool { return true })
	}),
	"a new catalogue takes the place of a file": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		return slices.DeleteFunc(beyond(files, svc.MaxSourceFiles, func(svc.SourceFile) bool { return true }), func(file svc.SourceFile) bool {
			return file.Path == ""
		})
	}),
	"what was kept just now is never forgotten": limited(func(files map[string]svc.SourceFile, kept svc.SourceFile) []svc.SourceFile {
		return beyond(files, svc.MaxSourceFiles, func(file svc.SourceFile) bool { return file.Path != "" && file.Path != kept.Path })
	}),
	"files are forgotten by their paths": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		list := beyond(files, 0, noCatalogue)
		slices.SortFunc(list, func(a, b svc.SourceFile) int { return strings.Compare(a.Path, b.Path) })
		return list[min(svc.MaxSourceFiles, len(list)):]
	}),
	"of files of one time all are forgotten": limited(func(files map[string]svc.SourceFile, _ svc.SourceFile) []svc.SourceFile {
		first := beyond(files, svc.MaxSourceFiles, noCatalogue)
		if len(first) == 0 {
			return nil
		}
		return slices.DeleteFunc(beyond(files, 0, noCatalogue), func(file svc.SourceFile) bool { return file.KeptAt.After(first[0].KeptAt) })
	}),
	"so many files are kept of all sources": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
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
	"files share the memory of who keeps them": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		all[key][file.Path] = file
	}, copied),
	"files share the memory of who reads them": shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) {
		all[key][file.Path] = copied(file)
	}, asIs),
	"files stay when their source goes": func(s *store) {
		shelved(func(all shelves, key svc.SourceKey, file svc.SourceFile) { all[key][file.Path] = copied(file) }, copied)(s)
		s.deleteSource = s.Store.DeleteSource
		found := s.sourceFile
		s.sourceFile = func(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
			if _, err := s.Store.Source(ctx, key); err != nil {
				return svc.SourceFile{}, err
			}
			return found(ctx, key, path)
		}
	},
}
