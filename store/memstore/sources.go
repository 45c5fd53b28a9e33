package memstore

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// CreateSource implements [svc.SourceStore].
func (s *Store) CreateSource(ctx context.Context, source svc.Source) error {
	return create(ctx, s, s.sources, source.SourceKey, cloneSource(source))
}

// Source implements [svc.SourceStore].
func (s *Store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	if err := s.lock(ctx); err != nil {
		return svc.Source{}, err
	}
	defer s.mu.Unlock()
	return find(s.sources, key, cloneSource)
}

// Sources implements [svc.SourceStore].
func (s *Store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	after := svc.SourceKey{Scope: page.Scope, Owner: page.Owner, Name: page.After}
	rows := sortedRows(s.sources, func(row svc.Source) bool {
		return (page.Every || row.Scope == page.Scope && row.Owner == page.Owner) &&
			row.SourceKey.Compare(after) > 0
	}, func(a, b svc.Source) int { return a.SourceKey.Compare(b.SourceKey) })
	return first(rows, page.Limit, cloneSource), nil
}

// ChangeSource implements [svc.SourceStore].
func (s *Store) ChangeSource(
	ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error),
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	as, err := find(s.sources, key, cloneSource)
	if err != nil {
		return err
	}
	if write, err := change(&as); err != nil || !write {
		return err
	}
	source := s.sources[key]
	source.Description, source.URL, source.SealedToken = as.Description, as.URL, as.SealedToken
	source.Serial, source.UpdatedAt = as.Serial, as.UpdatedAt
	put(s, s.sources, key, cloneSource(source))
	s.recordChange(key.Target())
	return nil
}

// DeleteSource implements [svc.SourceStore].
func (s *Store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, there := s.sources[key]; !there {
		return svc.ErrNotFound
	}
	drop(s, s.sources, key)
	drop(s, s.files, key)
	unbound := s.unbind(func(source svc.SourceKey) bool { return source == key })
	s.recordChange(append(unbound, key.Target())...)
	return nil
}

// KeepSourceFile implements [svc.SourceFileStore].
func (s *Store) KeepSourceFile(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, there := s.sources[key]; !there {
		return svc.ErrNotFound
	}
	if s.files[key] == nil {
		put(s, s.files, key, map[string]svc.SourceFile{})
	}
	put(s, s.files[key], file.Path, cloneFile(file))
	s.forgetFiles(s.files[key])
	return nil
}

// forgetFiles deletes the oldest files of a source above the limit, but never its catalogue.
func (s *Store) forgetFiles(files map[string]svc.SourceFile) {
	most := limits.SourceFiles
	if _, there := files[""]; there {
		most++
	}
	for len(files) > most {
		manifests := slices.DeleteFunc(
			slices.Collect(maps.Values(files)),
			func(file svc.SourceFile) bool { return file.Path == "" },
		)
		oldest := slices.MinFunc(manifests, func(a, b svc.SourceFile) int {
			return a.KeptAt.Compare(b.KeptAt)
		})
		drop(s, files, oldest.Path)
	}
}

// SourceFile implements [svc.SourceFileStore].
func (s *Store) SourceFile(
	ctx context.Context, key svc.SourceKey, path string,
) (svc.SourceFile, error) {
	if err := s.lock(ctx); err != nil {
		return svc.SourceFile{}, err
	}
	defer s.mu.Unlock()
	return find(s.files[key], path, cloneFile)
}

func cloneFile(file svc.SourceFile) svc.SourceFile {
	file.Data = bytes.Clone(file.Data)
	return file
}

func cloneSource(source svc.Source) svc.Source {
	source.Description = cloneText(source.Description)
	source.SealedToken = bytes.Clone(source.SealedToken)
	source.SigningKey = bytes.Clone(source.SigningKey)
	return source
}
