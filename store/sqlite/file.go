package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/extsvc/svc"
)

// file is the file of a Store. When it is removed or replaced, connections keep what is then
// without a name, and nobody else ever sees what they commit. So they commit nothing more.
type file struct {
	path   string
	writes bool // connections may write to it

	mu     sync.Mutex
	real   string      // path, without symbolic links
	opened fs.FileInfo // nil: nothing was

	lost atomic.Pointer[used] // by the connection whose commit was refused last; nil: none was since
}

// check returns an error when path no longer leads to the file that was opened first. Before that, it
// is [checkLog] and [checkUse].
func (f *file) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened == nil {
		return cmp.Or(checkLog(f.path), checkUse(f.path, f.writes))
	}
	if now, err := os.Stat(f.real); err != nil || !os.SameFile(now, f.opened) {
		return errMoved
	}
	return nil
}

// checkLog refuses a file that is missing or empty while its write-ahead log has commits: SQLite
// would take it for a new one, and delete the log. A process that makes a file writes to it before
// it writes to the log. So the log is looked at first.
func checkLog(path string) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	log, err := os.Stat(path + "-wal")
	if err != nil || log.Size() == 0 {
		return nil
	}
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.Size() == 0 {
		return fmt.Errorf("the file is missing or empty, but its write-ahead log %s-wal has commits: "+
			"put the file back, or move the log away", path)
	}
	return nil
}

var errMoved = fmt.Errorf("%w: the file was removed or replaced while it was open: "+
	"move it back, or restart this process", svc.ErrUnavailable)

// connected remembers the file that a connection has opened. Before, it may have been another: an
// overlay file system copies a file that is opened to write.
func (f *file) connected() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened == nil {
		if f.real, err = filepath.EvalSymlinks(f.path); err == nil {
			f.opened, err = os.Stat(f.real)
		}
	}
	return err
}

// watch makes a connection refuse to commit once one of the files that it uses is another or gone.
func (f *file) watch(conn driver.Conn) {
	uses := used{}
	uses[0].path, uses[0].found = f.real, f.opened // the others are there by the first commit
	uses[1].path, uses[2].path = f.real+"-wal", f.real+"-shm"
	conn.(sqlite.HookRegisterer).RegisterCommitHook(func() (refuse int32) {
		if uses.same() {
			f.lost.Store(nil)
			return 0
		}
		lost := uses
		f.lost.Store(&lost)
		return 1
	})
}

// used are the files that a connection uses: the database, its write-ahead log and the index of that.
type used [3]struct {
	path  string
	found fs.FileInfo // nil: none yet
}

// same reports whether the files are those that it has found first.
func (u *used) same() bool {
	for i := range u {
		now, err := os.Lstat(u[i].path)
		if u[i].found == nil && err == nil {
			u[i].found = now
		} else if u[i].found != nil && (err != nil || !os.SameFile(now, u[i].found)) {
			return false
		}
	}
	return true
}

// checkCommits returns an error when the last commit was refused and would be again.
func (f *file) checkCommits() error {
	lost := f.lost.Load()
	if lost == nil {
		return nil
	}
	if again := *lost; !again.same() {
		return errMoved
	}
	f.lost.CompareAndSwap(lost, nil)
	return nil
}

// connector makes connections to a file.
type connector struct {
	driver.Connector
	file *file
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.file.check(); err != nil {
		return nil, err
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.file.connected(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", svc.ErrUnavailable, err), conn.Close())
	}
	c.file.watch(conn)
	return conn, nil
}

// Changes implements [svc.ChangeStore], and with it svc.Service.Ping.
func (s *Store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	if err := cmp.Or(s.file.check(), s.file.checkCommits()); err != nil {
		return svc.StoreChanges{}, fmt.Errorf("read changes: %w", err)
	}
	return s.Store.Changes(ctx, since)
}
