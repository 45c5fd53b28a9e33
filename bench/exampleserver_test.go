package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/httpapi"
)

// BenchmarkExampleServer compares examples/server, as it starts, with a server process that sends
// the same bytes with the same headers from memory. It measures the processor time of both, on one
// real connection and on 16.
func BenchmarkExampleServer(b *testing.B) {
	s := siteOf(b, sqliteEngine, read)
	if _, err := reader(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	if _, err := s.service.Keys.RevokeAll(b.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "reader"}); err != nil {
		b.Fatal(err)
	}
	example, key, err := startExample(b, s.place)
	if err != nil {
		b.Fatal(err)
	}
	const admin = httpapi.DefaultPrefix + "/admin/"
	for _, p := range append(decisions(),
		pair{name: "own-keys", path: httpapi.DefaultPrefix + "/me/api-keys", inARow: 2000},
		pair{name: "template", path: admin + "templates/" + templateID(1), inARow: 2000},
		pair{name: "templates-1000", path: admin + "templates", inARow: 16},
	) {
		for _, connections := range []int{1, 16} {
			b.Run(fmt.Sprint(p.name, "/connections-", connections), func(b *testing.B) { p.compareExample(b, example, key, connections) })
		}
	}
}

// process is a server whose processor time the system tells.
type process struct {
	server
	id int
}

// spent returns the processor time of all threads. Threads of a Go program rarely end.
func (p *process) spent() (all time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.id))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(err, errors.New("NOT MEASURED: needs /proc of Linux"))
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return 0, err
		}
		var ns int64
		if _, err := fmt.Sscan(string(text), &ns); err != nil {
			return 0, err
		}
		all += time.Duration(ns)
	}
	return all, nil
}

// startExample starts examples/server over a SQLite file, and makes a key of the reader.
func startExample(b *testing.B, place string) (p *process, key string, err error) {
	program := filepath.Join(scratch, "example-server")
	if said, err := exec.Command("go", "-C", "../examples", "build", "-o", program, "./server").CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("%w: %s", err, said)
	}
	log, failed := os.Create(filepath.Join(scratch, "example-server.log"))
	command := exec.Command(program, "-db", place, "-addr", "127.0.0.1:0")
	command.Stderr = log
	out, err := command.StdoutPipe()
	if err := errors.Join(failed, err, command.Start()); err != nil {
		return nil, "", err
	}
	b.Cleanup(func() {
		err := errors.Join(command.Process.Signal(os.Interrupt), command.Wait(), log.Close())
		if err != nil {
			b.Error(err)
		}
	})
	p = &process{id: command.Process.Pid}
	greeting, err := bufio.NewReader(out).ReadString('\n')
	_, p.address, _ = strings.Cut(strings.TrimSpace(greeting), "http://")
	made, failed := exec.Command(program, "key", "-db", place, "-user", "reader").Output()
	return p, strings.TrimSpace(string(made)), errors.Join(err, failed)
}

// startRepeater starts a server that repeats an answer.
func startRepeater(answer []byte) (*process, error) {
	file := filepath.Join(scratch, "answer")
	if err := os.WriteFile(file, answer, 0o600); err != nil {
		return nil, err
	}
	c, err := startChild("repeat", file)
	if err != nil {
		return nil, err
	}
	p := &process{server: server{child: c}, id: c.command.Process.Pid}
	return p, c.hear(&p.address)
}

// repeatInChild answers every request with the answer in a file, until its input ends.
func repeatInChild(args []string) error {
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	answer.Header.Del("Date")
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
	}))
	fmt.Println(listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (p pair) compareExample(b *testing.B, example *process, key string, connections int) {
	askers := func(of *process) (all []*asker) {
		for range connections {
			a, err := of.asker(p.request(context.Background(), p.path, key), http.StatusOK)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = a.Close() })
			all = append(all, a)
		}
		return all
	}
	askers(example)
	time.Sleep(4 * quiet) // until the Service has read what it caches
	asked := askers(example)
	bare, err := startRepeater(asked[0].answer)
	if err != nil {
		b.Fatal(err)
	}
	requests := max(1, p.inARow/connections)
	asking := func(name string, of *process, all []*asker) measure.Side {
		return measure.Side{Name: name, Clock: of.spent, Call: func() error {
			return together(connections, func(i int) error { return all[i].ask(requests) })
		}}
	}
	sides := []measure.Side{asking("bare", bare, askers(bare)), asking("service", example, asked)}
	costs := measure.Alternate(b, sides, []int{1, 1})
	each := float64(connections * requests)
	p.report(b, []float64{costs[0] / each, costs[1] / each})
	if err := bare.end(); err != nil {
		b.Fatal(err)
	}
}
