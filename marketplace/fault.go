package marketplace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"

	"github.com/extsvc/svc"
)

// fault is the reason why the Client cannot read a file of a source. The text of reason continues a
// sentence that begins with the file. It contains only what the caller may see.
type fault struct {
	code   svc.Code
	reason string
	err    error // for the log; nil: the log needs only the reason
	// misplaced: there is no such file, so the source's address may be wrong.
	misplaced bool
}

func (f *fault) Error() string {
	if f.err == nil {
		return f.reason
	}
	return f.reason + ": " + f.err.Error()
}

func (f *fault) Unwrap() error { return f.err }

// newFault returns a fault with CodeSourceFailed.
func newFault(reason string, err error) error {
	return &fault{code: svc.CodeSourceFailed, reason: reason, err: err}
}

// newMisplaced returns a fault with CodeSourceFailed of a file that is not there.
func newMisplaced(reason string, err error) error {
	return &fault{code: svc.CodeSourceFailed, reason: reason, err: err, misplaced: true}
}

// errSlowHeaders is the cancellation cause of a request without headers within HeaderTimeout.
var errSlowHeaders = errors.New("no headers in time")

// explain interprets an error of an operation under ctx. It returns err itself if that is a fault,
// and ctx's error if the caller cancelled ctx. Otherwise it returns a fault: a timeout, a cause
// that it recognizes in err, or reason.
func explain(ctx context.Context, reason string, err error) error {
	if _, ok := errors.AsType[*fault](err); ok {
		return err
	}
	netErr, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded),
		errors.Is(context.Cause(ctx), errSlowHeaders),
		errors.Is(context.Cause(ctx), errTooSlow),
		isNet && netErr.Timeout():
		if errors.Is(err, context.Canceled) {
			// A timeout ended the request, not the caller: err must not wrap context.Canceled.
			err = context.Cause(ctx)
		}
		return &fault{code: svc.CodeSourceTimeout, reason: "did not arrive in time", err: err}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errBlocked):
		const hidden = "is at an address that is not public, and this server does not allow it"
		return newFault(hidden, err)
	case errors.Is(err, fs.ErrNotExist):
		return newMisplaced("does not exist", err)
	}
	return newFault(reason, err)
}

func badCatalog(at place, err error) error {
	from := at.from
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return cancelledError(from, err)
	}
	return sourceError(from, f.code, "its catalogue "+f.reason+at.named(catalogFile, f), f.err)
}

func badManifest(place place, entry svc.CatalogEntry, err error) error {
	from := place.from
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return cancelledError(from, err)
	}
	named := place.named(entry.ManifestFile, f)
	at := "entry " + strconv.Itoa(entry.Index) + " of the catalogue"
	if f.code == svc.CodeSourceTimeout {
		return sourceError(from, f.code, "the manifest_file of "+at+" "+f.reason+named, f.err)
	}
	message := at + " is bad: its manifest_file " + f.reason + named
	return sourceError(from, f.code, message, errors.Join(svc.ErrBadEntry, f.err))
}

// brief shortens the text of an error for the log. The text can repeat megabytes of a source's
// answer.
type brief struct{ err error }

func (b brief) Error() string { return clip(b.err.Error(), 500) }

func (b brief) Unwrap() error { return b.err }

func sourceError(from svc.Upstream, code svc.Code, message string, err error) error {
	if err != nil {
		err = brief{err}
	}
	return &svc.Error{Code: code, Message: sourceName(from) + ": " + message, Err: err}
}

// cancelledError returns the error for a caller that cancelled its ctx. The source is not at fault.
func cancelledError(from svc.Upstream, err error) error {
	return fmt.Errorf("ask %s: %w", sourceName(from), err)
}

func sourceName(from svc.Upstream) string { return "source " + strconv.Quote(from.Source.Name) }
