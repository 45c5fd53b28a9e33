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

// fault is why a file of a source could not be had. reason continues a sentence that begins with the file; it holds
// nothing that the caller may not see.
type fault struct {
	code   svc.Code
	reason string
	err    error // for the log; nil: the reason says it all
}

func (f *fault) Error() string {
	if f.err == nil {
		return f.reason
	}
	return f.reason + ": " + f.err.Error()
}

func (f *fault) Unwrap() error { return f.err }

// failed is a fault of the source.
func failed(reason string, err error) error {
	return &fault{code: svc.CodeSourceFailed, reason: reason, err: err}
}

// errSlowHeaders is the cause of a request that ended because its headers did not come in time.
var errSlowHeaders = errors.New("no headers in time")

// ended explains why something that was done under ctx failed: the time was over, the caller went away, or reason.
// A fault explains itself.
func ended(ctx context.Context, reason string, err error) error {
	if _, ok := errors.AsType[*fault](err); ok {
		return err
	}
	netErr, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(context.Cause(ctx), errSlowHeaders), isNet && netErr.Timeout():
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx) // it was the time, not the caller: who asks for a cancellation must find none
		}
		return &fault{code: svc.CodeSourceTimeout, reason: "did not come in time", err: err}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errBlocked):
		return failed("is at an address that is not public, and this server does not allow it", err)
	case errors.Is(err, fs.ErrNotExist):
		return failed("is not there", err)
	}
	return failed(reason, err)
}

func badCatalog(from svc.Upstream, err error) error {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return aborted(from, err)
	}
	return sourceError(from, f.code, "its catalogue "+f.reason, f.err)
}

func badManifest(from svc.Upstream, entry svc.CatalogEntry, err error) error {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return aborted(from, err)
	}
	at := "entry " + strconv.Itoa(entry.Index) + " of the catalogue"
	if f.code == svc.CodeSourceTimeout {
		return sourceError(from, f.code, "the manifest_file of "+at+" "+f.reason, f.err)
	}
	return sourceError(from, f.code, at+" is bad: its manifest_file "+f.reason, errors.Join(svc.ErrBadEntry, f.err))
}

// brief is a cause whose text may repeat what a source said, which may be megabytes: the log gets the beginning.
type brief struct{ err error }

func (b brief) Error() string { return clip(b.err.Error(), 500) }

func (b brief) Unwrap() error { return b.err }

func sourceError(from svc.Upstream, code svc.Code, message string, err error) error {
	if err != nil {
		err = brief{err}
	}
	return &svc.Error{Code: code, Message: named(from) + ": " + message, Err: err}
}

// aborted is the answer to a caller that went away: no fault of the source.
func aborted(from svc.Upstream, err error) error {
	return fmt.Errorf("ask %s: %w", named(from), err)
}

func named(from svc.Upstream) string { return "source " + strconv.Quote(from.Source.Name) }
