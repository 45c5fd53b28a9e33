//go:build planted

package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// changingNothing is the change of a row, with a call of change for a row that does not exist.
func changingNothing[K, R any](
	do func(context.Context, K, func(*R) (bool, error)) error,
) func(context.Context, K, func(*R) (bool, error)) error {
	return func(ctx context.Context, key K, change func(*R) (bool, error)) error {
		err := do(ctx, key, change)
		if errors.Is(err, svc.ErrNotFound) {
			_, _ = change(new(R))
		}
		return err
	}
}

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
		s.does["ChangeSource"] = changingNothing(s.FullStore.ChangeSource)
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

var templateFaults = map[string]func(*store){
	"a template overwrites another": func(s *store) {
		s.does["CreateTemplate"] = func(ctx context.Context, t svc.Template) error {
			if err := s.FullStore.DeleteTemplate(ctx, t.TemplateKey, nil); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"deleting a template deletes others with the id": func(s *store) {
		s.does["DeleteTemplate"] = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			_ = s.FullStore.DeleteTemplate(ctx, personalTemplate("alice", key.ID), nil)
			return s.FullStore.DeleteTemplate(ctx, key, check)
		}
	},
	"change is called for a template that does not exist": func(s *store) {
		s.does["ChangeTemplate"] = changingNothing(s.FullStore.ChangeTemplate)
	},
	"RebindTemplates of a source without templates is an error": func(s *store) {
		s.does["RebindTemplates"] = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			if err == nil && len(keys) == 0 {
				err = svc.ErrNotFound
			}
			return keys, err
		}
	},
	"re-binding overwrites concurrent changes": func(s *store) {
		changed := make(chan struct{})
		s.does["ChangeTemplate"] = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			err := s.FullStore.ChangeTemplate(ctx, key, change)
			select {
			case changed <- struct{}{}:
			default:
			}
			return err
		}
		s.does["RebindTemplates"] = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			read, err := s.FullStore.Template(ctx, own("t"))
			if err != nil || read.Origin == nil || len(url) != len("https://1.example") {
				return s.FullStore.RebindTemplates(ctx, source, url) // no change runs at the same time
			}
			for range racers { // at least one of racers changes began after this
				select {
				case <-changed:
				case <-time.After(time.Second):
				}
			}
			_ = s.FullStore.ChangeTemplate(ctx, read.TemplateKey, func(t *svc.Template) (bool, error) {
				*t = read
				return true, nil
			})
			return s.FullStore.RebindTemplates(ctx, source, url)
		}
	},
}

var apiKeyFaults = map[string]func(*store){
	"a key overwrites another": func(s *store) {
		var mu sync.Mutex
		over := map[string]svc.APIKey{}
		s.does["CreateAPIKey"] = func(ctx context.Context, key svc.APIKey) error {
			err := s.FullStore.CreateAPIKey(ctx, key)
			if errors.Is(err, svc.ErrExists) {
				mu.Lock()
				defer mu.Unlock()
				over[key.ID] = key
				return nil
			}
			return err
		}
		s.does["Access"] = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			if key, there := over[query.KeyID]; there {
				snapshot.Key = &key
			}
			return snapshot, err
		}
	},
	"a service account has the keys of the user with its id": func(s *store) {
		s.does["APIKeys"] = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.Holder.Kind = svc.KindUser
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"any holder can change a key": func(s *store) {
		s.does["ChangeAPIKey"] = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			if key, err := readKey(ctx, s, id); err == nil {
				holder = key.Holder
			}
			return s.FullStore.ChangeAPIKey(ctx, holder, id, change)
		}
	},
	"changes of a key overwrite each other": func(s *store) {
		s.does["ChangeAPIKey"] = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			read, err := readKey(ctx, s, id)
			if err != nil || read.Holder != holder || !read.RevokedAt.IsZero() {
				return cmp.Or(err, svc.ErrNotFound)
			}
			if write, err := change(&read); err != nil || !write {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
				*key = read
				return true, nil
			})
		}
	},
	"revoking all keys leaves their hashes": func(s *store) {
		var mu sync.Mutex
		was := map[string]svc.APIKey{}
		s.does["RevokeAPIKeys"] = func(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
			keys, err := s.FullStore.APIKeys(ctx, svc.APIKeyPage{Holder: holder, KeyQuery: svc.KeyQuery{Limit: 1000}})
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				was[key.ID] = svc.APIKey{Hash: key.Hash}
			}
			return s.FullStore.RevokeAPIKeys(ctx, holder, at, limit)
		}
		s.does["Access"] = remembering(s, &mu, was)
	},
}

func readKey(ctx context.Context, s *store, id string) (svc.APIKey, error) {
	snapshot, err := s.FullStore.Access(ctx, svc.AccessQuery{KeyID: id})
	if err == nil && snapshot.Key == nil {
		err = svc.ErrNotFound
	}
	if err != nil {
		return svc.APIKey{}, err
	}
	return *snapshot.Key, nil
}

// remembering reads keys with their former hashes and seals.
func remembering(s *store, mu *sync.Mutex, was map[string]svc.APIKey) func(context.Context, svc.AccessQuery) (svc.AccessSnapshot, error) {
	return func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
		snapshot, err := s.FullStore.Access(ctx, query)
		mu.Lock()
		defer mu.Unlock()
		if key, there := was[query.KeyID]; there && snapshot.Key != nil {
			if key.Hash != nil {
				snapshot.Key.Hash = key.Hash
			}
			if key.Seal != nil {
				snapshot.Key.Seal = key.Seal
			}
		}
		return snapshot, err
	}
}
