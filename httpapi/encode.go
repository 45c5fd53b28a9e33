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

// flushAt is the number of bytes of a list that are collected before they are sent.
const flushAt = 32 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// A page is collected whole. Its buffers have their own pool, of at most 16 MiB.
const (
	keptPages   = 8
	largestPage = 2 * pageBytes // the pool keeps no larger buffer
)

var pageBuffers = make(chan []byte, keptPages)

// appender is an answer that appends its JSON.
type appender interface{ Append([]byte) []byte }

// encoded is an appender for a value that always encodes: it has no json.RawMessage.
type encoded struct{ value any }

func (e encoded) Append(b []byte) []byte {
	body, err := encode(e.value)
	if err != nil {
		panic(err)
	}
	return append(b, bytes.TrimSuffix(body, []byte{'\n'})...)
}

// encode returns the JSON of a value and a line break, as encoding/json writes it, without HTML
// escapes.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return b.Bytes(), err
}

// send answers with a template or a key.
func send(w http.ResponseWriter, status int, answer appender) error {
	return withBuffer(func(b []byte) ([]byte, error) {
		b = append(answer.Append(b), '\n')
		start(w, status)
		_, _ = w.Write(b) // an error means that the client is gone
		return b, nil
	})
}

// sendJSON answers with any other value.
func sendJSON(w http.ResponseWriter, status int, answer any) error {
	body, err := encode(answer)
	if err != nil {
		return err
	}
	start(w, status)
	_, _ = w.Write(body)
	return nil
}

// sendList answers with rows between open and shut, and sends them as they come. When a list is too
// long for one buffer, sendList calls long before it sends the first part; long may be nil.
func sendList[R any, A appender](
	w http.ResponseWriter, open, shut string, rows iter.Seq2[R, error], answer func(R) A,
	long func() error,
) error {
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

// withBuffer lends write a pooled buffer. The buffer that write returns goes back to the pool
// unless it has grown large.
func withBuffer(write func([]byte) ([]byte, error)) error {
	pooled := buffers.Get().(*[]byte)
	b, err := write((*pooled)[:0])
	if *pooled = b; cap(b) <= 4*flushAt {
		buffers.Put(pooled)
	}
	return err
}

// withPageBuffer is withBuffer for one page of a list, which may be large.
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

// sendResult answers with the wire form of what a method of the Service has returned.
func sendResult[R, A any](w http.ResponseWriter, result R, err error, answer func(R) A) error {
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, answer(result))
}

// sendNothing answers with 204, unless the request has failed.
func sendNothing(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// orNull returns nil for "": texts that are "" in package svc are null in JSON. It allocates
// nothing for "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return new(s)
}

// timeOrNull returns nil for the zero time: "no time" in package svc is null in JSON.
func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// listed returns an empty list for nil: no list is null in JSON.
func listed(texts []string) []string { return append([]string{}, texts...) }
