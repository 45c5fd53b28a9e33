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
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/store/sqlite"
)

// server is a process of its own that answers both sides of all pairs.
type server struct {
	*child
	address string
}

func startServer(path, key string) (*server, error) {
	c, err := startChild("serve", path, key)
	if err != nil {
		return nil, err
	}
	s := &server{child: c}
	return s, c.hear(&s.address)
}

// spent returns what the server took of the processor so far.
func (s *server) spent() (time.Duration, error) {
	var ns int64
	err := s.tell()
	return time.Duration(ns), errors.Join(err, s.hear(&ns))
}

// serveInChild serves pairs until its input ends, and prints for each line of it what this process took of the processor.
func serveInChild(args []string) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	service, err := svc.New(config(store))
	if err != nil {
		return err
	}
	handler, err := handlers(ctx, service, args[1])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	host := &http.Server{Handler: handler}
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

// asker asks for one thing again and again on a connection that it keeps.
type asker struct {
	net.Conn
	request []byte
	answer  []byte // as long as each of them
}

func (s *server) asker(path, key string) (*asker, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	a := &asker{Conn: conn, request: []byte("GET " + path + " HTTP/1.1\r\nHost: " + s.address + "\r\nAuthorization: Bearer " + key + "\r\n\r\n")}
	if _, err := conn.Write(a.request); err != nil {
		return nil, err
	}
	var first bytes.Buffer
	answer, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &first)), nil)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return nil, err
	}
	a.answer = first.Bytes()
	return a, nil
}

// ask asks some times. All answers have the same length.
func (a *asker) ask(times int) error {
	for range times {
		if _, err := a.Write(a.request); err != nil {
			return err
		}
		if _, err := io.ReadFull(a, a.answer); err != nil {
			return err
		}
		if !bytes.HasPrefix(a.answer, []byte("HTTP/1.1 200 OK\r\n")) {
			return fmt.Errorf("the answer begins with %.20q", a.answer)
		}
	}
	return nil
}
