package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	retries      = 3                      // of one request, at most
	firstPause   = 100 * time.Millisecond // doubled from one try to the next, and drawn up to that
	longestPause = 30 * time.Second       // that a server can ask for
	longestAsked = 365 * 24 * time.Hour   // whatever Retry-After says
)

// retry says whether to send a request again after that many tries before, and when.
func retry(r request, err error, tries int) (pause time.Duration, again bool) {
	if r.method() != http.MethodGet && r.key == "" || tries >= retries {
		return 0, false
	}
	pause = rand.N(firstPause << tries)
	if answer, ok := errors.AsType[*StatusError](err); ok {
		again = answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusServiceUnavailable
		return max(pause, answer.RetryAfter), again && answer.RetryAfter <= longestPause
	}
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return pause, errors.Is(err, errUnreachable) && !distrusted && !errors.Is(err, errSilent)
}

// lasts reports whether ctx goes on for longer than that, as far as is known.
func lasts(ctx context.Context, pause time.Duration) bool {
	end, ends := ctx.Deadline()
	return ctx.Err() == nil && (!ends || time.Until(end) > pause)
}

// wait returns after a pause, or false when ctx ends before.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retryAfter is how long an answer asks to wait, in seconds or until a date (RFC 9110, section 10.2.3); 0: it does not.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestAsked/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date")) // the server's clock, which at is of
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), longestAsked)
}

var errSilent = errors.New("the server was silent for too long")

// patience ends a request whose server is silent for too long.
type patience struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	limit time.Duration // negative: none
}

func newPatience(ctx context.Context, limit time.Duration) patience {
	ctx, end := context.WithCancelCause(ctx)
	return patience{ctx, end, limit}
}

// watch waits for the server until stop is called.
func (p patience) watch() (stop func()) {
	if p.limit < 0 {
		return func() {}
	}
	timer := time.AfterFunc(p.limit, func() { p.end(errSilent) })
	return func() { timer.Stop() }
}

// reason is why something failed: err, unless that is because the server was silent.
func (p patience) reason(err error) error {
	if context.Cause(p.ctx) == errSilent {
		return errSilent
	}
	return err
}

// patientBody is the body of an answer, each part of which is waited for.
type patientBody struct {
	io.ReadCloser
	patience
}

func (b *patientBody) Read(p []byte) (int, error) {
	defer b.watch()()
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.reason(err)
	}
	return n, err
}

func (b *patientBody) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}
