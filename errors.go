package svc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc/internal/errtree"
	"github.com/extsvc/svc/internal/etag"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/limits"
)

// Code names the kind of an [Error]. Codes are stable: compare them, not texts. They are also the
// "code" of HTTP answers; docs/reference/errors.md lists the status of each.
type Code string

// The codes of every error that a [Service] method returns. A refusal wrote nothing, unless the
// comment of the method says so. Every method can return CodeUnavailable and CodeInternal, every
// method with a caller CodeInvalid and CodeForbidden, and every method that writes CodeChanged and
// CodeReadOnly: comments of methods name the others, and what is particular.
const (
	CodeInvalid Code = "invalid_request" // the request is wrong; Field says where
	// CodeUnauthenticated: the request has no credential, or one that is not accepted (any longer).
	CodeUnauthenticated Code = "unauthenticated"
	CodeForbidden       Code = "forbidden" // the caller is known but may not do this
	CodeNotFound        Code = "not_found" // it does not exist, or the caller may not see it
	// CodeExists: the id or name is taken, or the API key has a successor. Of several concurrent
	// callers, one gets it.
	CodeExists Code = "already_exists"
	// CodeLimit: the allowed number of these things is reached: [KeyConfig].MaxPerHolder or one of
	// package limits.
	CodeLimit   Code = "limit_reached"
	CodeInUse   Code = "policy_in_use"  // attached, or narrows an account or a key
	CodeBuiltin Code = "policy_builtin" // a built-in policy cannot be changed or deleted
	// CodeLastAdministrator: no active user would have every administrative right any longer.
	CodeLastAdministrator Code = "last_administrator"
	CodeReadOnly          Code = "read_only" // writes are off: [Config].ReadOnly
	// CodeTooComplex: to judge, compare or answer this would take more than about a second, or some
	// megabytes. Write or ask about less at a time, or make the policies simpler.
	CodeTooComplex Code = "too_complex"
	CodeEdited     Code = "edited_locally" // an update would overwrite local edits, which Fields names
	// CodePrecondition: the thing has changed since the caller read it; for an update, the source
	// may have another revision than the one reviewed. Read it again, then decide.
	CodePrecondition Code = "precondition_failed"
	// CodeKeyReused: the idempotency key came with another request before, or the API key that the
	// first request issued is revoked.
	CodeKeyReused Code = "idempotency_key_reused"
	// CodeSourceMoved: a source has another address than the one a template was installed from. The
	// template was not re-bound.
	CodeSourceMoved Code = "source_moved"
	// CodeChanged: another caller changed the same thing at the same time: try again. In a
	// transaction of the host, first roll back.
	CodeChanged       Code = "changed_meanwhile"
	CodeSourceFailed  Code = "source_failed"  // a source cannot be reached, or its answer is bad
	CodeSourceTimeout Code = "source_timeout" // a source did not answer in time
	// CodeUnavailable: the store cannot be reached now, ctx has ended, or the host's Authenticator
	// cannot decide. Try again later. When a connection broke during a commit, the change may have
	// happened.
	CodeUnavailable Code = "unavailable"
	// CodeInternal: a fault of this service, of its store or of a function of the host, named by
	// Err. [ErrorCode] also returns it for an error without an Error.
	CodeInternal Code = "internal"
)

// The errors to compare with [errors.Is]. Each stands for the [Error] of one code. For the other
// codes compare [ErrorCode].
//
// A [Store] returns four of them, wrapped or not: ErrNotFound for no row with that key; ErrExists
// for another row with that key and ErrChanged for a row that another writer changed at the same
// time, both without a write; ErrUnavailable when it cannot be reached or cannot write now. Any
// other error of a store is CodeInternal for the caller, and only the log has its text.
//
// An [Authenticator] returns ErrUnauthenticated for a bearer that it does not accept. The text of a
// wrapping error is lost.
var (
	ErrInvalid         = errors.New("invalid request")
	ErrUnauthenticated = errors.New("unauthenticated")
	ErrForbidden       = errors.New("forbidden")
	ErrNotFound        = errors.New("not found")
	ErrExists          = errors.New("already exists")
	ErrChanged         = errors.New("changed meanwhile")
	ErrUnavailable     = errors.New("unavailable")
)

var sentinels = map[Code]error{
	CodeInvalid: ErrInvalid, CodeUnauthenticated: ErrUnauthenticated, CodeForbidden: ErrForbidden,
	CodeNotFound: ErrNotFound, CodeExists: ErrExists, CodeChanged: ErrChanged,
	CodeUnavailable: ErrUnavailable,
}

// Error is the error of every [Service] method.
//
// Several faults of one request are joined ([errors.Join]): [Errors] returns each, and the first
// has the code of the whole. [errors.Is] finds the error of the code, such as [ErrNotFound], and
// also the cause, such as [context.Canceled].
//
// Show callers only Field and Message. The Error method adds the text of Err, masked when it held a
// secret, for the log.
type Error struct {
	Code Code
	// Field is the wrong part: a JSON pointer (RFC 6901, "/name") or the name of a parameter
	// ("bank"). "": not one single part. A pointer repeats keys of the caller's own JSON: it may be
	// as long as the request, and hold a secret that the caller pasted there.
	Field string
	// Message is a sentence for the caller, without a full stop at its end and without a secret.
	// With CodeInvalid its subject is the Field: "is required".
	Message string
	Fields  []string // those edited locally that conflict, in the order of [Content]; of CodeEdited
	Err     error    // the cause, for the log and never for the caller; nil: none
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

// Is reports whether target stands for the code of e: [ErrNotFound] for CodeNotFound.
func (e *Error) Is(target error) bool {
	sentinel, has := sentinels[e.Code]
	return has && sentinel == target
}

// noRow reports whether a store found no row. An Error is not the store's, but an answer already.
func noRow(err error) bool { return !isAnswer(err) && errors.Is(err, ErrNotFound) }

// rowExists reports whether a store found another row with the key.
func rowExists(err error) bool { return !isAnswer(err) && errors.Is(err, ErrExists) }

func isAnswer(err error) bool {
	_, is := errors.AsType[*Error](err)
	return is
}

// sentence returns the plain name of the field and the message: "members.0 is unknown". It does
// not undo the escapes of a pointer (~0, ~1).
func (e *Error) sentence() string {
	return strings.ReplaceAll(strings.TrimPrefix(e.Field, "/"), "/", ".") + " " + e.Message
}

// firstMessage returns the text of the first error, with its field.
func firstMessage(err error) string {
	first, is := errors.AsType[*Error](err)
	if !is {
		return "it cannot be read"
	}
	return first.Field + " " + first.Message
}

// Errors returns every [Error] in err's tree, in order, not copies; nil when it has none. It looks
// into joined and wrapped errors ([errors.Join], fmt's %w), 10,000 at most, but not at the cause of
// an Error.
func Errors(err error) (all []*Error) {
	for one := range parts(err) {
		if e, is := one.(*Error); is {
			all = append(all, e)
		}
	}
	return all
}

// MapFields returns err with other Fields: field returns the new one of each of its Errors,
// "/template/name" for "/name" for example. The Errors themselves stay as they are. Texts that
// wrapped them, and other errors joined with them, are left out. An err without an Error is
// returned unchanged.
func MapFields(err error, field func(*Error) string) error {
	all := Errors(err)
	if all == nil {
		return err
	}
	for i, e := range all {
		moved := *e
		moved.Field = field(e)
		all[i] = &moved
	}
	return joined(all)
}

// under puts a prefix before the pointers of copies of errors.
func under(prefix string, err error) error {
	return MapFields(err, func(e *Error) string { return prefix + e.Field })
}

// joined returns nil for no errors, a single error as it is, and several joined.
func joined(errs []*Error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(lists.Map(errs, func(e *Error) error { return e })...)
}

// parts returns what a tree of errors joins, in order: each Error, and each other error that
// neither joins errors nor wraps an Error. It does not look below an Error: its cause is for the
// log.
func parts(err error) iter.Seq[error] {
	return errtree.Parts(err, func(err error) bool {
		_, is := err.(*Error)
		return is
	})
}

// ErrorCode returns the code of the first [Error] in err's tree: CodeInternal when it has none, and
// "" when err is nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// hostError is an error of a function of the host. It hides an [*Error], which is about something
// else, such as another server that the function has asked. errors.Is still finds its causes.
type hostError struct{ error }

func (e hostError) Is(target error) bool { return errors.Is(e.error, target) }

// Invalid returns an [Error] of CodeInvalid about a field, also for a host's own checks. Callers
// see the message: the rest of a sentence that begins with the field, without a full stop and a
// secret, as "must be at most 10".
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: message}
}

func notFound(message string) *Error { return &Error{Code: CodeNotFound, Message: message} }

// forbidden refuses a known caller. The message may name the missing action, but no row of others.
func forbidden(message string) *Error { return &Error{Code: CodeForbidden, Message: message} }

func taken(field, message string) *Error {
	return &Error{Code: CodeExists, Field: field, Message: message}
}

// tooComplex refuses what exceeds the budget of a request. then says what to do.
func tooComplex(then string, err error) *Error {
	return &Error{
		Code:    CodeTooComplex,
		Message: "this exceeds the work or the answer that one request may cause: " + then,
		Err:     err,
	}
}

var errReadOnly error = &Error{Code: CodeReadOnly, Message: "this server is read-only at present"}

// lacks answers a call that needs an optional role of the store.
func lacks(role string) *Error {
	return &Error{Code: CodeInternal, Message: "the store has no " + role}
}

// auditRole is what a store of [Service.WithTx] may lack. New has checked its own store.
const auditRole = "audit records (svc.AuditStore)"

// doing is fault for many errors.
func doing(what string) func(error) error {
	return func(err error) error { return fault(what, err) }
}

// fault makes an Error of an unexpected error of a store or of a host's function. It returns nil
// and an Error as they are, so layers may call it twice; the innermost doing stands.
//
// doing and the text of err reach the log only. An expected ErrNotFound or ErrExists must be
// handled before fault, or it becomes CodeInternal. The errors of contexts are those of the caller's:
// a function that sets its own time returns ErrUnavailable when that is over.
func fault(doing string, err error) error {
	if err == nil || isAnswer(err) {
		return err
	}
	err = fmt.Errorf("%s: %w", doing, err)
	code, message := CodeInternal, "an unexpected fault: see the server's log"
	switch {
	case errors.Is(err, ErrUnavailable):
		code, message = CodeUnavailable, "the service cannot reach its store now: try again later"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code, message = CodeUnavailable, "the call was canceled, or its time is over: try again later"
	case errors.Is(err, policy.ErrTooComplex):
		return tooComplex("change or ask about less at a time, or make the policies simpler", err)
	case errors.Is(err, ErrChanged):
		code, message = CodeChanged, "another caller changed this at the same time: try again"
	case noRow(err), rowExists(err):
		err = errors.New(err.Error()) // an unexpected outcome is none for the caller
	}
	return &Error{Code: code, Message: message, Err: err}
}

// roundUp returns the first time at or after t that a row can have. Stores compare microseconds: a
// bound that was cut off there would include records before Since and lose some before Until.
func roundUp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Microsecond - 1).Truncate(time.Microsecond)
}

// checker collects what is wrong with a request, in the order of its calls. Its zero value works.
// Each request has its own: it is not safe for concurrent use.
type checker struct {
	errs     []*Error
	full     bool             // errs holds limits.Errors: stop looking for more
	endless  bool             // errs has no limit
	compiler *policy.Compiler // for requests with policies
}

func (c *checker) ok() bool { return len(c.errs) == 0 }

func (c *checker) err() error { return joined(c.errs) }

func (c *checker) add(field, message string) { c.check(Invalid(field, message)) }

// check adds a problem, unless it is nil or the checker is full.
func (c *checker) check(problem *Error) {
	if problem == nil || c.full {
		return
	}
	if c.errs = append(c.errs, problem); len(c.errs) == limits.Errors && !c.endless {
		c.full = true
		c.errs = append(c.errs, Invalid("",
			fmt.Sprintf("there may be more errors: only the first %d are listed", limits.Errors)))
	}
}

// id refuses an id that cannot stand in a path. It also refuses an API key in the wrong place: the
// Service would store the key, or show it, as the name of a thing. A key of another system looks
// like any name, so id cannot notice it.
func (c *checker) id(field, id string) {
	if c.lookup(field, id); token.Whole(id) {
		c.add(field, "must not be an API key")
	}
}

// lookup is id for a thing that the Service only reads. It accepts an API key, which finds nothing.
func (c *checker) lookup(field, id string) {
	if problem := text.IDProblem(id, limits.IDLength); problem != "" {
		c.add(field, problem)
	}
}

// year refuses a time that some stores cannot compare.
func (c *checker) year(field string, t time.Time) {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		c.add(field, "must lie in the years 0 to 9999")
	}
}

// optionalID is lookup for an id that may be "".
func (c *checker) optionalID(field, id string) {
	if id != "" {
		c.lookup(field, id)
	}
}

// document returns a policy document without white space, checked by parse. A fault that
// parse finds has its place in the document: the pointer continues at. The result shares no memory
// with raw. With an error it is of no use.
func (c *checker) document(
	at string, raw json.RawMessage, parse func([]byte) error,
) json.RawMessage {
	// A missing document is no empty one: without statements, a policy would silently give nothing.
	if len(raw) == 0 {
		c.add(at, "is required")
		return nil
	}
	compact, err := strictjson.Compact(raw, limits.Nesting)
	if err == nil {
		err = parse(compact)
	}
	c.refused(at, err)
	return compact
}

// size refuses a document beyond the limits of a document, unless it is the stored one.
func (c *checker) size(at string, document, stored []byte, check func([]byte) error) {
	if !bytes.Equal(document, stored) {
		c.refused(at+"/document", check(document))
	}
}

// refused adds what a parser of a document found. Its text is for the caller: it says what is wrong
// and where, and has no secret.
func (c *checker) refused(at string, err error) {
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		c.add(at+wrong.Pointer, wrong.Detail)
	} else if err != nil {
		c.add(at, err.Error())
	}
}

// foreign is id for a name from another system: a bank, a channel, a topic, a sender. The name may
// contain slashes.
func (c *checker) foreign(field, name string) {
	if c.lookupForeign(field, name); token.Whole(name) {
		c.add(field, "must not be an API key")
	}
}

// lookupForeign is foreign for a thing that the Service only reads.
func (c *checker) lookupForeign(field, name string) {
	if problem := text.NameProblem(name, limits.IDLength); problem != "" {
		c.add(field, problem)
	}
}

func (c *checker) text(field, s string, limit int) {
	if problem := text.Problem(s, limit); problem != "" {
		c.add(field, problem)
	}
}

// optionalText is text for what is written: as id, it refuses an API key in the wrong place.
func (c *checker) optionalText(field string, s *string, limit int) {
	if s != nil && token.Whole(*s) {
		c.add(field, "must not be an API key")
	} else if s != nil {
		c.text(field, *s, limit)
	}
}

// checkID returns an Error about field unless id can stand in a path.
func checkID(field, id string) error {
	if problem := text.IDProblem(id, limits.IDLength); problem != "" {
		return Invalid(field, problem)
	}
	return nil
}

// possibleID returns id, or "" for one that nothing has: a store may be unable to look it up.
func possibleID(id string) string {
	if text.IDProblem(id, limits.IDLength) != "" {
		return ""
	}
	return id
}

// quote shows a caller's own value in a message.
func quote(s string) string { return strconv.Quote(s) }

// count refuses a negative number.
func (c *checker) count(field string, n int) {
	if n < 0 {
		c.add(field, "must not be negative")
	}
}

// idempotencyHeader is the HTTP header of an idempotency key
// (draft-ietf-httpapi-idempotency-key-header), and the Field of errors about the key.
const idempotencyHeader = "Idempotency-Key"

func (c *checker) idempotencyKey(key string) {
	if len(key) > limits.IdempotencyKeyLength || !text.Visible(key) {
		c.add(idempotencyHeader, "must be 1 to 255 visible ASCII characters")
	}
}

// TextPatch is a new value for a text that may be null. A nil Value means null. A nil *TextPatch in
// a patch leaves the text as it is.
type TextPatch struct{ Value *string }

func equalText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// AnyETag matches every existing template and row of access.
const AnyETag = etag.Any

// unlessMatches refuses a row that has none of the ETags in ifMatch. tag "": there is no row,
// which no condition matches. Without ETags, or with the ETag of the row, it returns nil.
func unlessMatches(name, tag string, ifMatch []string) error {
	if len(ifMatch) == 0 || tag != "" && etag.Matches(tag, ifMatch) {
		return nil
	}
	return &Error{
		Code:    CodePrecondition,
		Message: "the " + name + " has changed since you read it: read it again",
	}
}

// keyReused refuses an idempotency key that stands for another request, or for an answer that is of
// no use any longer.
func keyReused(message string) *Error {
	return &Error{Code: CodeKeyReused, Field: idempotencyHeader, Message: message}
}
