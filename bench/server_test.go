package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/store/sqlite"
)

// server is a separate process that answers both sides of all pairs.
type server struct {
	*child
	address string
}

// startServer starts a server over a SQLite file, with a Service of that variant.
func startServer(place, variant string) (*server, error) {
	c, err := startChild("serve", place, variant)
	if err != nil {
		return nil, err
	}
	s := &server{child: c}
	return s, c.hear(&s.address)
}

// spent returns the server's processor time so far.
func (s *server) spent() (time.Duration, error) {
	var ns int64
	err := s.tell()
	return time.Duration(ns), errors.Join(err, s.hear(&ns))
}

// quiet is the time over which a server must be idle.
const quiet = 250 * time.Millisecond

// settle waits until the server is almost idle.
func (s *server) settle(b *testing.B) {
	b.Helper()
	before, err := s.spent()
	for range 100 {
		time.Sleep(quiet)
		now, failed := s.spent()
		if err = errors.Join(err, failed); err != nil {
			b.Fatal(err)
		}
		if now-before < quiet/10 {
			return
		}
		before = now
	}
	b.Fatal("the server does not come to rest")
}

// serveInChild serves pairs until its input ends. For each line of input it prints the processor
// time of this process.
func serveInChild(args []string) error {
	store, err := sqlite.Open(context.Background(), args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	service, err := svc.New(variants[args[1]](config(store)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	host := &http.Server{Handler: handlers(service)}
	go func() { served <- host.Serve(listener) }()
	fmt.Println(listener.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		took, err := measure.Processor()
		if err != nil {
			return err
		}
		fmt.Println(took.Nanoseconds())
	}
	err = host.Close()
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return errors.Join(err, service.Close(), store.Close())
}

// asker repeats one request on a connection that it keeps.
type asker struct {
	net.Conn
	request []byte
	answer  []byte // as long as each answer
	status  string // the first line of each answer
}

func (s *server) asker(r *http.Request, status int) (*asker, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return nil, err
	}
	if _, err := conn.Write(text.Bytes()); err != nil {
		return nil, err
	}
	a := &asker{Conn: conn, request: text.Bytes()}
	var first bytes.Buffer
	answer, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &first)), nil)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != status {
		return nil, errors.Join(err, fmt.Errorf("status %d", answer.StatusCode))
	}
	a.answer = first.Bytes()
	a.status, _, _ = strings.Cut(first.String(), "\n")
	return a, nil
}

// ask sends the request some times. All answers have the same length.
func (a *asker) ask(times int) error {
	if err := a.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	for range times {
		if _, err := a.Write(a.request); err != nil {
			return err
		}
		if _, err := io.ReadFull(a, a.answer); err != nil {
			return err
		}
		if !bytes.HasPrefix(a.answer, []byte(a.status)) {
			return fmt.Errorf("the answer begins with %.20q", a.answer)
		}
	}
	return nil
}
