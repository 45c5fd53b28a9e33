package marketplace_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// speech is what a source sends on a connection, from its first byte. The source then closes the
// connection.
type speech func(conn net.Conn)

// rawSource is a source on loopback that sends raw bytes. It answers well until turn changes that.
type rawSource struct {
	net.Listener
	good speech

	mu   sync.Mutex
	bad  speech // nil: good
	open int    // connections
}

func newRawSource(t testing.TB, good speech) *rawSource {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSource{Listener: listener, good: good}
	t.Cleanup(func() { _ = listener.Close() })
	go s.accept()
	return s
}

func (s *rawSource) accept() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		say := s.opened()
		go func() {
			defer s.closed()
			defer conn.Close()
			say(conn)
		}()
	}
}

func (s *rawSource) opened() speech {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	if s.bad != nil {
		return s.bad
	}
	return s.good
}

func (s *rawSource) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// turn makes the source send this speech from now on; nil: answer well.
func (s *rawSource) turn(bad speech) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad = bad
}

// alone waits until no client is connected.
func (s *rawSource) alone(t *testing.T) {
	t.Helper()
	until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.open == 0
	})
}

// heard reads the head of a request.
func heard(conn net.Conn) string {
	lines, head := bufio.NewReader(conn), ""
	for {
		line, err := lines.ReadString('\n')
		if head += line; err != nil || strings.TrimSpace(line) == "" {
			return head
		}
	}
}

// say answers a request with these bytes.
func say(parts ...string) speech {
	return then(strings.Join(parts, ""), func(net.Conn) {})
}

// then answers a request with these bytes and continues with another speech.
func then(text string, next speech) speech {
	answer := []byte(text) // while it is said nothing is allocated: TestMemoryOfHostileAnswers counts
	return func(conn net.Conn) {
		heard(conn)
		_, _ = conn.Write(answer)
		next(conn)
	}
}

// forEver repeats these bytes as fast as the client reads them.
func forEver(text string) speech {
	again := []byte(strings.Repeat(text, max(1, 64<<10/len(text))))
	return func(conn net.Conn) {
		for {
			if _, err := conn.Write(again); err != nil {
				return
			}
		}
	}
}

// dripping repeats these bytes slowly.
func dripping(text string) speech {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// silence lasts until the client hangs up.
func silence(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// reset ends a connection like a process that dies.
func reset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

// ok is the head of an answer.
func ok(headers ...string) string { return okAs("application/json", headers...) }

func okAs(kind string, headers ...string) string {
	return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + kind + "\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

// moved is a redirect.
func moved(location string) string {
	return "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: " + location + "\r\n\r\n"
}

func length(n int) string { return fmt.Sprintf("Content-Length: %d", n) }

const chunked, gzipped = "Transfer-Encoding: chunked", "Content-Encoding: gzip"

func chunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }

// zipped is one member of a gzip file.
func zipped(body string) string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return b.String()
}
