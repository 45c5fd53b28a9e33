package svc

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of failure an [Error] is. Codes are stable: they are the "code" of the HTTP answers too.
type Code string

// The codes of every error that a [Service] method returns.
const (
	CodeInvalid         Code = "invalid_request"        // the request itself is wrong; Field says where
	CodeUnauthenticated Code = "unauthenticated"        // no credential, or one that is not good any more
	CodeForbidden       Code = "forbidden"              // a known caller who may not do this
	CodeNotFound        Code = "not_found"              // no such thing, or not the caller's to see
	CodeExists          Code = "already_exists"         // the id or name is taken
	CodeLimit           Code = "limit_reached"          // there are as many of these as are allowed
	CodeEdited          Code = "edited_locally"         // an update would overwrite local edits; Fields names them
	CodePrecondition    Code = "precondition_failed"    // the thing is not what the caller has seen of it
	CodeKeyReused       Code = "idempotency_key_reused" // the idempotency key came with another request before, or issued a key that was revoked since
	CodeSourceMoved     Code = "source_moved"           // a source is not where a template was installed from, and was not re-bound
	CodeChanged         Code = "changed_meanwhile"      // somebody else changed the same thing; try again
	CodeSourceFailed    Code = "source_failed"          // a source could not be reached or answered badly
	CodeSourceTimeout   Code = "source_timeout"         // a source did not answer in time
	CodeUnavailable     Code = "unavailable"            // the store cannot be reached just now; try again later
	CodeInternal        Code = "internal"               // a fault of this service; Err says which
)

// What a [Store] returns, wrapped or not, for the outcomes that the Service must tell apart. Anything else is a fault.
var (
	// ErrNotFound: no row has that key.
	ErrNotFound = errors.New("not found")
	// ErrExists: another row has that key; nothing was written.
	ErrExists = errors.New("already exists")
	// ErrChanged: the row changed while it was being changed, and the store gave up; nothing was written.
	ErrChanged = errors.New("changed meanwhile")
	// ErrUnavailable: the store cannot be reached or cannot write just now; a later try may succeed.
	ErrUnavailable = errors.New("unavailable")
)

// ErrBadEntry is in the tree of a [Marketplace]'s error where one entry of a catalogue, or its manifest, is bad: the source works.
var ErrBadEntry = errors.New("bad entry")

// ErrUnauthenticated is what an [Authenticator] returns for a bearer that it does not accept.
var ErrUnauthenticated = errors.New("unauthenticated")

// Error is what every [Service] method returns when it fails. Several faults of one request come joined ([errors.Join]); the
// first one's code is that of the whole.
type Error struct {
	Code    Code
	Field   string   // what is wrong: a JSON pointer (RFC 6901, "/name") or a parameter's name ("bank"); "" when it is no single one
	Message string   // a sentence for the caller: safe to show, holds no secret
	Fields  []string // CodeEdited: the names of the fields edited here, in the order of [Content]
	Err     error    // the cause, for the log and never for the caller; nil when there is none
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Message)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// ErrorCode returns the code of the first [Error] in err's tree, [CodeInternal] when there is none, and "" for nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

func invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: message}
}

func notFound(message string) *Error { return &Error{Code: CodeNotFound, Message: message} }

func taken(field, message string) *Error {
	return &Error{Code: CodeExists, Field: field, Message: message}
}

// fault turns what a store or a host's function returned, and no rule of ours explains, into an Error.
// An Error passes through as it is.
func fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	err = fmt.Errorf("%s: %w", doing, err)
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeUnavailable, Message: "the service cannot reach its store just now, try again later", Err: err}
	case errors.Is(err, ErrChanged):
		return &Error{Code: CodeChanged, Message: "this was changed by somebody else at the same time, try again", Err: err}
	}
	return &Error{Code: CodeInternal, Message: "an unexpected fault, see the server's log", Err: err}
}
