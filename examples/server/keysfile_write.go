package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
)

// makeSecrets creates a keys file at path, whole and durable, unless one exists.
func makeSecrets(path string) (made bool, err error) {
	text, err := secrets{Pairs: []pair{newPair()}}.text()
	if err != nil {
		return false, err
	}
	return makeText(path, text)
}

// changeSecrets replaces the keys file by what change makes of it, whole and durable, or not at
// all. The draft is a lock: of two concurrent changes, one fails. The file keeps its owner.
func changeSecrets(path string, log *slog.Logger, change func(s *secrets) error) error {
	path, err := filepath.EvalSymlinks(path) // the file is replaced, and not a link to it
	if err != nil {
		return fmt.Errorf("keys file: %w", err)
	}
	draft, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keys file: another command changes it;"+
			" if none does, one was cut off: remove %s.new", path)
	} else if err != nil {
		return fmt.Errorf("keys file: %w", err)
	}
	if err := replaceSecrets(draft, path, log, change); err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	// From the renaming on, the name of the draft may be that of another command's.
	return syncDir(filepath.Dir(path))
}

// replaceSecrets writes what change makes of the keys file into draft, closes it, and renames it to
// path.
func replaceSecrets(
	draft *os.File, path string, log *slog.Logger, change func(s *secrets) error,
) error {
	s, err := readSecrets(path, log)
	if err == nil {
		err = change(&s)
	}
	if err == nil {
		err = sameOwner(draft, path)
	}
	if err != nil {
		return errors.Join(err, draft.Close())
	}
	if err := writeSecrets(draft, s); err != nil {
		return fmt.Errorf("keys file: %w", err)
	}
	if err := os.Rename(draft.Name(), path); err != nil {
		return fmt.Errorf("keys file: %w", err)
	}
	return nil
}

// text returns s with its check, as a keys file has it.
func (s secrets) text() (string, error) {
	s.Check = s.check()
	text, err := json.MarshalIndent(s, "", "  ")
	return string(text) + "\n", err
}

// writeSecrets writes s, and closes the file.
func writeSecrets(file *os.File, s secrets) error {
	text, err := s.text()
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir makes the names in a directory durable. Windows does so itself and refuses to sync one.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
