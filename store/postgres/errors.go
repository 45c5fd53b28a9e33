package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/extsvc/svc"
)

// readOnlyTransaction is the SQLSTATE of a write to a server that cannot write, mostly a standby.
const readOnlyTransaction = "25006"

// classify recognizes temporary errors, transactions that the server rolled back because of others,
// and taken keys. It returns nil for every other error, such as a wrong password: an operator must
// fix those.
func classify(err error) error {
	if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting &&
		hasState(err, "55000") { // the database accepts no connections at present
		return svc.ErrUnavailable
	}
	if fault, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return meaning(fault.SQLState())
	}
	if unreachable(err) {
		return svc.ErrUnavailable
	}
	return nil
}

// meaning returns the meaning of a SQLSTATE (PostgreSQL's manual, appendix A).
func meaning(state string) error {
	switch state {
	case "40001", "40P01": // serialization failure, deadlock
		return svc.ErrChanged
	case "23505": // unique violation
		return svc.ErrExists
	case readOnlyTransaction,
		"25P03",          // the transaction was idle for too long
		"40003",          // the outcome of the statement is unknown
		"55P03", "57014", // the wait for a lock, or the statement, took too long
		"57P01", "57P02", "57P03", // the server shuts down, has crashed, or starts
		"57P05", // the session was idle for too long
		"58030": // the disk fails
		return svc.ErrUnavailable
	}
	if len(state) == 5 {
		switch state[:2] {
		case "08", "53": // the connection broke; the disk, memory or connections are exhausted
			return svc.ErrUnavailable
		}
	}
	return nil
}

// hasState reports whether an error of the server has one of these SQLSTATEs.
func hasState(err error, states ...string) bool {
	fault, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(states, fault.Code)
}

// unreachable reports whether a connection broke or could not be made, also because the pool is
// closed.
func unreachable(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, puddle.ErrClosedPool)
}

// reason returns why there is no connection. It drops the driver's text about the database and the
// server, which the caller adds in its own words.
func reason(err error) error {
	means := classify(err)
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok {
		err = fault
	} else if fault, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = fault.Unwrap()
	}
	if means != nil {
		return fmt.Errorf("%w: %w", means, err)
	}
	return err
}
