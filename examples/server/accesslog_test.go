package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
)

// lockedBuffer is a buffer for a log that several write to.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Whatever is asked, by whatever method: one record, which a program can read, and no key in it.
func TestAccessLogOfHostileRequests(t *testing.T) {
	const key = "svcu_0123456789abcdef0123456789abcdefghijklmnopqrstuv"
	for name, next := range map[string]http.HandlerFunc{
		"answers": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"panics":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			var log lockedBuffer
			server := httptest.NewUnstartedServer(logged(next, slog.New(slog.NewJSONHandler(&log, nil))))
			server.Config.DisableGeneralOptionsHandler = true
			server.Start()
			requests := []string{
				"GET /", "OPTIONS *", "GET /%0d%0a%7b%22level%22:%22INFO%22%7d", "GET /%00%1b%5b31m%7f", "GET /\xff\xfe%ff", "GET /\u2028\u202e\"\\\\", "GET /" + key, "DELETE /ext/svc/me/api-keys/" + key + "%00x",
				key + " /", "X" + key + " /ext/svc", "GET /?key=" + key, "GET http://" + key + ":" + key + "@h/x", strings.Repeat("M", 8<<10) + " /", "CONNECT h:443", "GET /svcu%5F" + key[5:],
			}
			for _, request := range requests {
				conn, err := net.Dial("tcp", server.Listener.Addr().String())
				is.NoErr(err)
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer %s\r\nX-Request-Id: %s\r\n\r\n", request, key, key)
				_, _ = io.ReadAll(conn)
				_ = conn.Close()
			}
			server.Close()
			lines := strings.SplitAfter(strings.TrimSuffix(log.text.String(), "\n"), "\n")
			is.Equal(len(lines), len(requests))
			for i, line := range lines {
				var record struct{ Msg, Method, Path string }
				is.NoErr(json.Unmarshal([]byte(line), &record))
				is.Equal(record.Msg, "request")
				is.True(record.Method != "")
				if strings.Contains(line, key[5:]) || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' }) {
					t.Errorf("%.60q is logged as %.300q", requests[i], line)
				}
			}
		})
	}
}
