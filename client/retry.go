package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	retries      = 3                      // of one request, at most
	firstPause   = 100 * time.Millisecond // upper bound of the random pause; doubles with each try
	longestPause = 30 * time.Second       // a longer Retry-After prevents the retry
	longestAsked = 365 * 24 * time.Hour   // upper bound of StatusError.RetryAfter
)

// retry says whether to send a request again after a failed try, and after which pause.
func retry(r request, err error, tries int) (pause time.Duration, again bool) {
	if r.method() != http.MethodGet && r.key == "" || tries >= retries {
		return 0, false
	}
	pause = rand.N(firstPause << tries)
	if answer, ok := errors.AsType[*StatusError](err); ok {
		again = answer.Status == http.StatusTooManyRequests ||
			answer.Status == http.StatusServiceUnavailable
		return max(pause, answer.RetryAfter), again && answer.RetryAfter <= longestPause
	}
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return pause, errors.Is(err, errUnreachable) && !distrusted && !errors.Is(err, errSilent)
}

// lasts reports whether the deadline of ctx, if any, is after the pause.
func lasts(ctx context.Context, pause time.Duration) bool {
	end, ends := ctx.Deadline()
	return !ends || time.Until(end) > pause
}

// wait returns true after a pause, or false when ctx ends first.
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

// retryAfter returns the wait that an answer asks for, as seconds or as a date (RFC 9110, section
// 10.2.3). 0: none.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	seconds, err := strconv.ParseUint(text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestAsked/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date")) // by the server's clock, as at is
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), longestAsked)
}

var errSilent = errors.New("the server was silent for too long")

// patience ends a request when the server is silent for too long.
type patience struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	limit time.Duration // negative: no limit
}

// watch ends the request after the limit unless stop is called first.
func (p patience) watch() (stop func()) {
	if p.limit < 0 {
		return func() {}
	}
	timer := time.AfterFunc(p.limit, func() { p.end(errSilent) })
	return func() { timer.Stop() }
}

// reason returns errSilent if the silence of the server has caused err, else err. The HTTPClient may
// also have a limit.
func (p patience) reason(err error) error {
	_, connecting := errors.AsType[*net.OpError](err)
	late, is := errors.AsType[net.Error](err)
	if context.Cause(p.ctx) == errSilent ||
		p.ctx.Err() == nil && is && late.Timeout() && !connecting {
		return errSilent
	}
	return err
}

// patientBody is the body of an answer; the limit of its patience applies to each Read.
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
