package svc

import (
	"context"
	"errors"
)

// sourceMemory is what a source has answered, in the store. What cannot be kept or read costs a request more, and a line in the log.
type sourceMemory struct {
	service *Service
	key     SourceKey
}

func (m sourceMemory) File(ctx context.Context, path string) []byte {
	file, err := m.service.store.SourceFile(ctx, m.key, path)
	if err != nil && !errors.Is(err, ErrNotFound) {
		m.warn(ctx, "svc: what a source answered before cannot be read", path, err)
	}
	return file.Data
}

// maxKeptPath is how many bytes the path of a file may have that is kept: some databases have short indexes.
const maxKeptPath = 1024

func (m sourceMemory) KeepFile(ctx context.Context, path string, data []byte) {
	if len(path) > maxKeptPath {
		return
	}
	err := m.service.store.KeepSourceFile(ctx, m.key, SourceFile{Path: path, Data: data, KeptAt: m.service.now()})
	if err != nil && !errors.Is(err, ErrNotFound) { // removed meanwhile
		m.warn(ctx, "svc: what a source has answered cannot be kept", path, err)
	}
}

func (m sourceMemory) AcceptSerial(ctx context.Context, serial int64) (greatest int64, err error) {
	err = m.service.store.ChangeSource(ctx, m.key, func(source *Source) (bool, error) {
		greatest = max(source.Serial, serial)
		raised := greatest > source.Serial
		source.Serial = greatest
		return raised, nil
	})
	if errors.Is(err, ErrNotFound) {
		return 0, noSource()
	}
	return greatest, err
}

func (m sourceMemory) warn(ctx context.Context, message, path string, err error) {
	m.service.config.Logger.WarnContext(ctx, message, "source", m.key.Name, "file", path, "error", err)
}
