package httpapi

import (
	"reflect"
	"runtime"
	"strings"
	"time"
)

// Statuses are the statuses of the codes of problems.
var Statuses = statuses

// HandlerNames are the names of the methods that serve the routes.
func HandlerNames() map[Route]string {
	names := map[Route]string{}
	for _, r := range everything.routes {
		name := runtime.FuncForPC(reflect.ValueOf(r.serve).Pointer()).Name()
		names[r.Route] = name[strings.LastIndex(name, ".")+1:]
	}
	return names
}

// QueryKeys are the keys of a query that a route knows.
func QueryKeys(of Route) []string {
	for _, r := range everything.routes {
		if r.Route == of {
			return r.query
		}
	}
	return nil
}

// KeptPages returns how many bytes of buffers are kept for pages, and lets go of them.
func KeptPages() (bytes int) {
	for {
		select {
		case b := <-pageBuffers:
			bytes += cap(b)
		default:
			return bytes
		}
	}
}

// SetClock replaces the clock by which a Handler counts requests. Call it before the first request.
func (h *Handler) SetClock(clock func() time.Duration) { h.clock = clock }

// Version is the version that the documents name.
var Version = version

// In30 makes the document of OpenAPI 3.0.
func In30() []byte { return in30(source()) }
