package httpapi

import (
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/rate"
)

// Allowance is [svc.Allowance], so that stores can give it without importing this package.
type Allowance = svc.Allowance

// RatedKeys is the number of keys with a rate whose requests a Handler counts in memory, at most:
// some 10 MiB. Beyond that, a new key takes the place of a key that has little to wait for, which
// then has its whole burst again.
const RatedKeys = 1 << 17

// The header fields of draft-ietf-httpapi-ratelimit-headers-11, both Lists of Structured Fields
// (RFC 9651). RateLimit-Policy has the burst of the rate (q), and the seconds in which a burst
// becomes available again, rounded up (w). RateLimit has the requests that the key may make at the
// same time (r), and the seconds, rounded up, until it may make one more (t).
const (
	limitHeader  = "Ratelimit" // in the canonical form of package http
	policyHeader = "Ratelimit-Policy"
)

// count counts a request by the rate of the caller's key, if it has one, and returns an error when
// the rate does not allow the request. A request that has passed Protect is counted already.
func (h *Handler) count(a *answer, r *http.Request, by svc.Principal) error {
	limit := by.Rate()
	if limit == (svc.Rate{}) {
		return nil
	}
	if before, ok := PrincipalFrom(r.Context()); ok && before.KeyID() == by.KeyID() {
		return nil
	}
	left := h.take(r, by.KeyID(), limit)
	a.rated = true
	showRate(a.Header(), rate.Rate(limit).Bounded(), left)
	if left.Refused {
		return tooMany(left.Next)
	}
	return nil
}

// take asks the host's KeyRate. It counts in memory when there is none, and when it fails.
func (h *Handler) take(r *http.Request, keyID string, limit svc.Rate) svc.Allowance {
	if h.options.KeyRate != nil {
		left, err := h.options.KeyRate(r, keyID, limit)
		if err == nil {
			return left
		}
		if !inbound.Left(r) {
			h.options.Logger.ErrorContext(r.Context(),
				"svc: cannot ask KeyRate, will count the request in this process",
				slog.String("api_key", keyID), slog.Any("error", h.withoutKeys(err)))
		}
	}
	key := rate.KeyOf(h.tenant, keyID)
	return svc.Allowance(h.rates.Take(key, rate.Rate(limit), time.Since(h.start)))
}

// tooMany returns the error for a caller that must wait.
func tooMany(wait time.Duration) error {
	return refuse(codeLimited, "too many requests: try again later",
		"Retry-After", strconv.FormatInt(seconds(wait), 10))
}

// seconds rounds up, to at least 1.
func seconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// showRate adds the header fields: the host may have set others.
func showRate(header http.Header, limit rate.Rate, left svc.Allowance) {
	window := float64(limit.Burst) / limit.PerSecond
	window = max(1, math.Ceil(window-1e-6)) // without the error of the division
	var space [64]byte
	text := append(space[:0], `"key";q=`...)
	text = strconv.AppendInt(text, int64(limit.Burst), 10)
	text = append(text, ";w="...)
	text = strconv.AppendInt(text, int64(window), 10)
	end := len(text)
	text = append(text, `"key";r=`...)
	text = strconv.AppendInt(text, int64(max(0, left.Remaining)), 10)
	text = append(text, ";t="...)
	text = strconv.AppendInt(text, seconds(left.Next), 10)
	both := string(text)
	values := []string{both[:end], both[end:]}
	addHeader(header, policyHeader, values[:1:1])
	addHeader(header, limitHeader, values[1:])
}

// addHeader is [http.Header.Add] without an allocation, if the header has no such field yet.
func addHeader(header http.Header, name string, values []string) {
	if there := header[name]; len(there) > 0 {
		values = append(there, values...)
	}
	header[name] = values
}
