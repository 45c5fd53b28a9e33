package main

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"time"
)

// requestID is the header by which a client can name a request to whoever reads the log.
const requestID = "X-Request-Id"

// apiKey is a key that was pasted into a path, or where the method belongs, by mistake.
var apiKey = regexp.MustCompile(`(svc[us]_)\w+`)

func withoutKeys(text string) string { return apiKey.ReplaceAllString(text, "$1***") }

// logged logs every request that next serves: nothing of its headers, its query or its body, because secrets may be
// there. It gives each an id, which next may replace.
func logged(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &recorder{ResponseWriter: w}
		start := time.Now()
		w.Header().Set(requestID, rand.Text())
		defer func() { // also when the answer is cut off by a panic
			log.InfoContext(r.Context(), "request",
				"method", withoutKeys(r.Method), "path", withoutKeys(r.URL.Path), "status", answer.status, "bytes", answer.bytes,
				"duration", time.Since(start), "request_id", w.Header().Get(requestID))
		}()
		next.ServeHTTP(answer, r)
	})
}

// recorder notes what an answer is while it is written.
type recorder struct {
	http.ResponseWriter
	status int // 0: none yet
	bytes  int64
}

func (r *recorder) WriteHeader(status int) {
	if r.status < http.StatusOK {
		r.status = status // one of 1xx is not the last
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status < http.StatusOK {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach what is wrapped.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
