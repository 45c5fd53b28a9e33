package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/extsvc/svc"
)

// secrets are the content of the keys file. The database does not hold them, so an attacker needs
// both files.
type secrets struct {
	Pepper     []byte `json:"pepper"`      // of API keys: secretSize bytes in base64
	SealingKey []byte `json:"sealing_key"` // of the tokens of sources: secretSize bytes in base64
	Check      string `json:"check"`       // detects damage; it is also the version of the pepper
}

const secretSize = 32

func newSecrets() secrets {
	s := secrets{Pepper: make([]byte, secretSize), SealingKey: make([]byte, secretSize)}
	rand.Read(s.Pepper)
	rand.Read(s.SealingKey)
	s.Check = s.check()
	return s
}

// check returns eight bytes of a hash over the 64 random bytes of s. The result is not secret.
func (s secrets) check() string {
	sum := sha256.Sum256(slices.Concat([]byte("svc example server keys"), s.Pepper, s.SealingKey))
	return hex.EncodeToString(sum[:8])
}

func (s secrets) keyConfig() svc.KeyConfig {
	return svc.KeyConfig{Peppers: []svc.Pepper{{Version: s.Check, Secret: s.Pepper}}}
}

// readSecrets reads the keys file. It refuses a damaged file: with other secrets, the API keys and
// tokens in the database are useless.
func readSecrets(path string, log *slog.Logger) (secrets, error) {
	info, err := os.Stat(path)
	if err != nil {
		return secrets{}, fmt.Errorf("keys file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return secrets{}, fmt.Errorf("keys file %s must be a regular file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return secrets{}, fmt.Errorf("keys file: %w", err)
	}
	if err := checkRestored(path); err != nil {
		return secrets{}, err
	}
	var s secrets
	if err := json.Unmarshal(data, &s); err != nil {
		return secrets{}, damaged(path, err)
	}
	if len(s.Pepper) != secretSize || len(s.SealingKey) != secretSize || s.Check != s.check() {
		return secrets{}, damaged(path, errors.New("its parts do not fit together"))
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		log.Warn("other users may read or write the keys file: run chmod 600 on it",
			"file", path, "mode", mode.String())
	}
	return s, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("keys file %s is damaged: %w; put the right one back"+
		" (if you remove it, all issued keys stop working)", path, err)
}

// ensureSecrets reads the keys file. It creates the file if that does not exist, and then made is
// true. If several processes create it at once, all read the file of the first.
func ensureSecrets(path string, log *slog.Logger) (s secrets, made bool, err error) {
	s, err = readSecrets(path, log)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, false, err
	}
	if made, err = makeSecrets(path); err != nil {
		return secrets{}, false, fmt.Errorf("make keys file: %w", err)
	}
	s, err = readSecrets(path, log)
	return s, made, err
}

// makeSecrets creates a keys file at path unless one exists. It writes a draft and then links it to
// path, so the file appears whole and durable, or not at all.
func makeSecrets(path string) (made bool, err error) {
	dir := filepath.Dir(path)
	draft, err := os.CreateTemp(dir, ".svc-*.keys") // with mode 0600
	if err != nil {
		return false, err
	}
	defer os.Remove(draft.Name())
	if err := writeSecrets(draft); err != nil {
		return false, err
	}
	err = os.Link(draft.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	return err == nil, syncDir(dir)
}

func writeSecrets(file *os.File) error {
	text, err := json.MarshalIndent(newSecrets(), "", "  ")
	if err == nil {
		_, err = file.Write(append(text, '\n'))
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
