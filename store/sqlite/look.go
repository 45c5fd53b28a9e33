package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"

	"github.com/extsvc/svc/internal/background"
)

// looker tells whether anything was committed to the file, by any process. It has its own
// connection, because what a connection says of commits holds for that connection only.
type looker struct {
	path string
	db   *sql.DB

	slow background.SingleFlight[uint64]

	mu      sync.RWMutex
	version uint64 // the answer of the last look
	conn    *sql.Conn
	stmt    driver.Stmt  // PRAGMA data_version
	said    int64        // by ask, last
	index   *indexHeader // nil: it cannot be read here
	header  indexHeader  // as it was last
	closed  bool
}

// look returns a number that differs from an earlier one when any process, this one included, has
// committed in between. It takes some nanoseconds where it can read the index of the write-ahead
// log, and else some microseconds, which concurrent callers share.
func (l *looker) look() (uint64, error) {
	l.mu.RLock()
	version, same := l.version, l.index != nil && l.index.read() == l.header
	l.mu.RUnlock()
	if same {
		return version, nil
	}
	return l.slow.Do(func() (uint64, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		moved, err := l.moved()
		if moved {
			l.version++
		}
		return l.version, err
	})
}

// moved reports whether there was a commit since the last time. true at first, and after an error.
func (l *looker) moved() (bool, error) {
	if l.closed {
		return true, sql.ErrConnDone
	}
	if l.conn == nil {
		return true, l.open()
	}
	if before := l.header; l.readIndex() {
		return l.header != before, nil
	}
	said, err := l.dataVersion()
	if err != nil {
		return true, errors.Join(err, l.hangUp())
	}
	moved := said != l.said
	l.said = said
	return moved, nil
}

// open connects and takes the first look.
func (l *looker) open() (err error) {
	if l.conn, err = l.db.Conn(context.Background()); err != nil {
		return err
	}
	err = l.conn.Raw(func(conn any) error {
		l.stmt, err = conn.(driver.ConnPrepareContext).PrepareContext(
			context.Background(), "PRAGMA data_version")
		return err
	})
	if err == nil {
		l.said, err = l.dataVersion()
	}
	if err != nil {
		return errors.Join(err, l.hangUp())
	}
	// The connection has opened the index by now, and keeps it open.
	l.index = findIndex(l.path)
	l.readIndex()
	return nil
}

// readIndex reads the header of the index if it can, from now on.
func (l *looker) readIndex() bool {
	if l.index == nil {
		return false
	}
	if l.header = l.index.read(); l.header == (indexHeader{}) {
		l.index = nil
	}
	return l.index != nil
}

// dataVersion is a number that SQLite changes with each commit of another connection
// (https://sqlite.org/pragma.html#pragma_data_version).
func (l *looker) dataVersion() (version int64, err error) {
	rows, err := l.stmt.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	var row [1]driver.Value
	if err = rows.Next(row[:]); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	version, _ = row[0].(int64)
	return version, errors.Join(err, rows.Close())
}

// hangUp gives up the connection. The next look opens another.
func (l *looker) hangUp() (err error) {
	if l.stmt != nil { // SQLite does not close a connection with statements
		err = l.stmt.Close()
	}
	err = errors.Join(err, l.conn.Close())
	l.conn, l.stmt, l.index = nil, nil, nil
	return err
}

func (l *looker) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var err error
	if l.conn != nil {
		err = l.hangUp()
	}
	return errors.Join(err, l.db.Close())
}
