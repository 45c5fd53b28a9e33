package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// A backup is a zip archive with a SQLite database, whatever the kind of the original, with the
// keys file, and with a manifest that says what the others must be.
const (
	manifestName = "manifest.json"
	databaseName = "svc.db"
	secretsName  = "svc.keys"

	backupFormat  = "svc backup"
	backupVersion = 1

	mostKeys = 1 << 20 // bytes of a keys file or a manifest
)

type manifest struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	MadeAt  time.Time `json:"made_at"`
	Files   []member  `json:"files"`
}

// member is a file of a backup.
type member struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// memberOf reads a file to the end.
func memberOf(ctx context.Context, name string, file io.Reader) (member, error) {
	sum := sha256.New()
	size, err := io.Copy(sum, inTime{ctx, file})
	return member{Name: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

// writeArchive writes a backup of the files, which it reads twice.
func writeArchive(ctx context.Context, out io.Writer, files map[string]io.ReadSeeker) error {
	m := manifest{Format: backupFormat, Version: backupVersion, MadeAt: time.Now().UTC()}
	for _, name := range []string{secretsName, databaseName} {
		one, err := memberOf(ctx, name, files[name])
		if err == nil {
			_, err = files[name].Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
		m.Files = append(m.Files, one)
	}
	archive := zip.NewWriter(out)
	described, err := archive.Create(manifestName)
	if err == nil {
		err = json.NewEncoder(described).Encode(m)
	}
	for _, one := range m.Files {
		var to io.Writer
		if err == nil {
			to, err = archive.Create(one.Name)
		}
		if err == nil {
			_, err = io.Copy(to, inTime{ctx, files[one.Name]})
		}
	}
	return errors.Join(err, archive.Close())
}

// archive is a backup to read.
type archive struct {
	*zip.ReadCloser
	path  string
	files map[string]member
}

// openArchive opens a backup and reads its manifest.
func openArchive(path string) (*archive, error) {
	reader, err := zip.OpenReader(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("backup: %w", err)
	} else if err != nil {
		return nil, notWhole(path, err)
	}
	a := &archive{ReadCloser: reader, path: path, files: map[string]member{}}
	if err := a.readManifest(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func notWhole(path string, err error) error {
	return fmt.Errorf("%s is not a whole backup: %w: use another one", path, err)
}

func (a *archive) readManifest() error {
	file, err := a.Open(manifestName)
	if err != nil {
		return notWhole(a.path, errors.New("it has no manifest"))
	}
	defer file.Close()
	var m manifest
	if err := json.NewDecoder(io.LimitReader(file, mostKeys)).Decode(&m); err != nil {
		return notWhole(a.path, err)
	}
	if m.Format != backupFormat {
		return notWhole(a.path, errors.New("another program has made it"))
	}
	if m.Version > backupVersion {
		return fmt.Errorf("%s is a backup of a newer program: use that program", a.path)
	}
	for _, one := range m.Files {
		a.files[one.Name] = one
	}
	return nil
}

// extract writes a file of the backup to out, and checks that it is as it was.
func (a *archive) extract(ctx context.Context, name string, out io.Writer) error {
	want, listed := a.files[name]
	file, err := a.Open(name)
	if err != nil || !listed {
		return notWhole(a.path, errors.New("it has no file "+name))
	}
	defer file.Close()
	limited := io.LimitReader(file, want.Size+1)
	target := &failing{Writer: out}
	have, err := memberOf(ctx, name, io.TeeReader(limited, target))
	if ctx.Err() != nil {
		return err
	} else if target.err != nil {
		return target.err
	} else if err != nil {
		return notWhole(a.path, err)
	}
	if have != want {
		return notWhole(a.path, errors.New(name+" is not as it was"))
	}
	return nil
}

// failing is a writer that keeps its error: a full disk is no fault of the backup.
type failing struct {
	io.Writer
	err error
}

func (w *failing) Write(p []byte) (n int, err error) {
	n, w.err = w.Writer.Write(p)
	return n, w.err
}

// readKeys returns the keys file of the backup.
func (a *archive) readKeys(ctx context.Context) ([]byte, error) {
	if a.files[secretsName].Size > mostKeys {
		return nil, notWhole(a.path, errors.New("its keys file is too large"))
	}
	var keys bytes.Buffer
	err := a.extract(ctx, secretsName, &keys)
	return keys.Bytes(), err
}

// inTime is a reader that fails when the context has ended.
type inTime struct {
	ctx context.Context
	io.Reader
}

func (r inTime) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// writeWhole writes a new file, for its owner only, and makes it durable. When it fails, it leaves
// no file, which would be in the way of the next try.
func writeWhole(path string, write func(file *os.File) error) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}
