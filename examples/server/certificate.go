package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificates gives each connection the certificate that is in the files at that time: a renewal
// needs no restart.
type certificates struct {
	files tlsConfig
	log   *slog.Logger

	mu      sync.Mutex
	looked  time.Time // when the files were looked at last
	changed [2]time.Time
	current *tls.Certificate
}

// readCertificates reads the files for the first time.
func readCertificates(files tlsConfig, log *slog.Logger) (*certificates, error) {
	c := &certificates{files: files, log: log}
	c.looked = time.Now()
	return c, c.read()
}

// read reads the files, if they have changed.
func (c *certificates) read() error {
	var changed [2]time.Time
	for i, name := range []string{c.files.Cert, c.files.Key} {
		file, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("tls.cert_file and tls.key_file: %w", err)
		}
		changed[i] = file.ModTime()
	}
	if c.current != nil && changed == c.changed {
		return nil
	}
	read, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil { // half of a renewal: the next look finds both
		return fmt.Errorf("tls.cert_file and tls.key_file: %w", err)
	}
	if c.current != nil {
		c.log.Info("the certificate was renewed")
	}
	c.current, c.changed = &read, changed
	return nil
}

// reload reads the files now. A nil c has none.
func (c *certificates) reload() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = time.Now()
	return c.read()
}

// get is the GetCertificate of a server. Without a new certificate that can be read, the last one
// stays.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= looksApart {
		c.looked = now
		if err := c.read(); err != nil {
			c.log.Warn("cannot renew the certificate: the last one stays", "error", err)
		}
	}
	return c.current, nil
}
