package httpapi

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
	"sync"
	"time"
)

const contentType = "application/json"

// flushAt is how many bytes of a list are gathered before they are sent.
const flushAt = 32 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Pages are gathered whole, and their buffers are kept apart: at most 16 MiB of them.
const (
	keptPages   = 8
	largestPage = 2 * pageBytes // as large as one is kept
)

var pageBuffers = make(chan []byte, keptPages)

// appender is an answer that writes itself.
type appender interface{ Append([]byte) []byte }

// send answers with one JSON value.
func send(w http.ResponseWriter, status int, answer appender) error {
	return withBuffer(func(b []byte) ([]byte, error) {
		b = append(answer.Append(b), '\n')
		start(w, status)
		_, _ = w.Write(b) // a client that is gone needs no answer
		return b, nil
	})
}

// sendJSON answers with a value that encoding/json writes.
func sendJSON(w http.ResponseWriter, status int, answer any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		return err
	}
	start(w, status)
	_, _ = w.Write(body.Bytes())
	return nil
}

// sendList answers with rows between open and shut, as they come. long is called before anything of a list is sent that is not yet
// known to its end; nil: nothing is.
func sendList[R any, A appender](w http.ResponseWriter, open, shut string, rows iter.Seq2[R, error], answer func(R) A, long func() error) error {
	return withBuffer(func(b []byte) ([]byte, error) {
		b, sent, between := append(b, open...), false, ""
		for row, err := range rows {
			if err != nil {
				return b, err
			}
			b = answer(row).Append(append(b, between...))
			if between = ","; len(b) >= flushAt {
				if !sent && long != nil {
					if err := long(); err != nil {
						return b, err
					}
				}
				if !sent {
					start(w, http.StatusOK)
				}
				if _, err := w.Write(b); err != nil {
					return b, nil // the client is gone
				}
				b, sent = b[:0], true
			}
		}
		if !sent {
			start(w, http.StatusOK)
		}
		_, _ = w.Write(append(append(b, shut...), '\n'))
		return b, nil
	})
}

// withBuffer lends a pooled buffer; what write returns is kept for the next, unless it has grown large.
func withBuffer(write func([]byte) ([]byte, error)) error {
	pooled := buffers.Get().(*[]byte)
	b, err := write((*pooled)[:0])
	if *pooled = b; cap(b) <= 4*flushAt {
		buffers.Put(pooled)
	}
	return err
}

// withPageBuffer is withBuffer for a page of a list, which may be large.
func withPageBuffer(write func([]byte) ([]byte, error)) error {
	var b []byte
	select {
	case b = <-pageBuffers:
	default:
	}
	b, err := write(b[:0])
	if cap(b) <= largestPage {
		select {
		case pageBuffers <- b:
		default:
		}
	}
	return err
}

func start(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
}

func sendNothing(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// orNull is nil for "", for texts that are "" inside and null outside. Nothing is allocated for those.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	text := s
	return &text
}

// timeOrNull is nil for the zero time, which stands for none inside and is null outside.
func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
