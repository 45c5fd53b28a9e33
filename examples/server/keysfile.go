package main

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// secrets are the content of the keys file. The database does not hold them, so an attacker needs
// both files.
type secrets struct {
	Pairs   []pair   `json:"secrets"`           // the first is used, all are accepted
	Next    *pair    `json:"next,omitempty"`    // accepted, and not used yet; nil: none
	Retired []string `json:"retired,omitempty"` // versions that are no longer accepted
	Check   string   `json:"check"`             // detects damage
}

// pair is a version of the secrets.
type pair struct {
	Version    string `json:"version"`     // the version of the pepper; detects damage
	Pepper     []byte `json:"pepper"`      // of API keys: secretSize bytes in base64
	SealingKey []byte `json:"sealing_key"` // of the tokens of sources: secretSize bytes in base64
}

const secretSize = 32

func newPair() pair {
	p := pair{Pepper: make([]byte, secretSize), SealingKey: make([]byte, secretSize)}
	rand.Read(p.Pepper)
	rand.Read(p.SealingKey)
	p.Version = p.version()
	return p
}

// version returns eight bytes of a hash over the 64 random bytes of p. The result is not secret.
func (p pair) version() string {
	sum := sha256.Sum256(slices.Concat([]byte("svc example server keys"), p.Pepper, p.SealingKey))
	return hex.EncodeToString(sum[:8])
}

func (p pair) good() bool {
	return len(p.Pepper) == secretSize && len(p.SealingKey) == secretSize &&
		p.Version == p.version()
}

// accepted returns the pairs that are accepted, the used one first.
func (s secrets) accepted() []pair {
	if s.Next == nil {
		return s.Pairs
	}
	return append(slices.Clip(s.Pairs), *s.Next)
}

// check returns eight bytes of a hash over the versions and what they are for.
func (s secrets) check() string {
	var b strings.Builder
	for i, p := range s.accepted() {
		fmt.Fprintf(&b, "%s %t\n", p.Version, i >= len(s.Pairs))
	}
	b.WriteString(strings.Join(s.Retired, " "))
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}

func (s secrets) good() bool {
	bad := func(p pair) bool { return !p.good() }
	return len(s.Pairs) > 0 && !slices.ContainsFunc(s.accepted(), bad) && s.Check == s.check()
}

func (s secrets) keyConfig() (config svc.KeyConfig) {
	for _, p := range s.accepted() {
		config.Peppers = append(config.Peppers, svc.Pepper{Version: p.Version, Secret: p.Pepper})
	}
	for _, version := range s.Retired { // their lines stay: docs/howto/secrets.md says why
		config.Peppers = append(config.Peppers, svc.Pepper{Version: version, Retired: true})
	}
	return config
}

func (s secrets) sourceConfig() svc.SourceConfig {
	config := svc.SourceConfig{SealingKey: s.Pairs[0].SealingKey}
	for _, p := range s.accepted()[1:] {
		config.OldSealingKeys = append(config.OldSealingKeys, p.SealingKey)
	}
	return config
}

// sessionKeys returns the keys that seal the sign-ins of the administration page, the used one
// first. They come from the secrets, so that every server with this keys file has the same ones.
func (s secrets) sessionKeys() (keys [][]byte, err error) {
	for _, p := range s.accepted() {
		secret := slices.Concat(p.Pepper, p.SealingKey)
		key, err := hkdf.Key(sha256.New, secret, nil, "svc example server admin page", secretSize)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
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
	data, err := readFile(path)
	if err != nil {
		return secrets{}, fmt.Errorf("keys file: %w", err)
	}
	if err := checkRestored(path, repeatRestore); err != nil {
		return secrets{}, err
	}
	s, err := parseSecrets(data)
	if err != nil {
		return secrets{}, damaged(path, err)
	}
	if mode := info.Mode().Perm(); mode&othersMay(info) != 0 {
		log.Warn("other users may read or write the keys file: run chmod 600 on it",
			"file", path, "mode", mode.String())
	}
	return s, nil
}

// parseSecrets reads the content of a keys file. Files from before secrets could be rotated hold
// one pair, with its version as the check.
func parseSecrets(data []byte) (secrets, error) {
	var file struct {
		secrets
		Pepper     []byte `json:"pepper"`
		SealingKey []byte `json:"sealing_key"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return secrets{}, err
	}
	s := file.secrets
	if file.Pepper != nil && s.Pairs == nil {
		s.Pairs = []pair{{file.Check, file.Pepper, file.SealingKey}}
		s.Check = s.check()
	}
	if !s.good() {
		return secrets{}, errors.New("its parts do not fit together")
	}
	return s, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("keys file %s is damaged: %w; put the right one back"+
		" (if you remove it, all issued keys stop working)", path, err)
}

// existingSecrets reads the keys file, which must exist.
func existingSecrets(path string, log *slog.Logger) (s secrets, made bool, err error) {
	s, err = readSecrets(path, log)
	return s, false, err
}

// ensureSecrets reads the keys file. It creates the file if that does not exist, and then made is
// true. If several processes create it at the same time, all read the file of the first.
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
