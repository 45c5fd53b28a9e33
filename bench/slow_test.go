package bench_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/httpapi"
)

const (
	slowClients = 500
	slowStep    = time.Second // between two bytes of a request, and two reads of an answer
	quickReads  = 2000        // requests timed together
	quickAtOnce = 2
)

// BenchmarkSlowClients compares the time to read a template, for the slowest of 100, with and
// without 500 slow connections. Half of these never end their request. The other half reads a list
// of 1,000 templates so slowly that it never ends.
func BenchmarkSlowClients(b *testing.B) {
	s := siteOf(b, sqliteEngine, read)
	key, err := reader(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	for _, variant := range slices.Sorted(maps.Keys(variants)) {
		b.Run("store"+variant, func(b *testing.B) {
			server, err := startServer(s.place, variant)
			if err != nil {
				b.Fatal(err)
			}
			alone, beside := math.Inf(1), math.Inf(1)
			for b.Loop() {
				alone = min(alone, server.p99(b, key))
				slow, err := startChild("be slow", server.address, key)
				if err != nil {
					b.Fatal(err)
				}
				slow.expect(b, slowClients)
				server.settle(b) // it has begun its answers and can send no more
				beside = min(beside, server.p99(b, key))
				if err := slow.tell(); err != nil {
					b.Fatal(err)
				}
				slow.expect(b, slowClients) // until the end
				if err := slow.end(); err != nil {
					b.Fatal(err)
				}
				server.settle(b) // until it has noticed that they are gone
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(alone, "µs-p99-alone")
			b.ReportMetric(beside, "µs-p99-beside-slow")
			b.ReportMetric(beside/alone, "x-alone")
			if err := server.end(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// expect checks the number of open connections that the child reports.
func (c *child) expect(b *testing.B, want int64) {
	b.Helper()
	var open int64
	if err := c.hear(&open); err != nil || open != want {
		b.Fatal(open, " slow connections are open ", err)
	}
}

// p99 returns the µs that the slowest of 100 readers of a template waits for its answer.
func (s *server) p99(b *testing.B, key string) float64 {
	b.Helper()
	one := pair{path: httpapi.DefaultPrefix + "/admin/templates/" + templateID(1)}
	took := make([][]time.Duration, quickAtOnce)
	err := together(quickAtOnce, func(i int) error {
		a, err := s.asker(one.request(b.Context(), one.path, key), http.StatusOK)
		if err != nil {
			return err
		}
		for range quickReads / quickAtOnce {
			began := time.Now()
			if err := a.ask(1); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
		return a.Close()
	})
	if err != nil {
		b.Fatal(err)
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return float64(all[len(all)*99/100].Nanoseconds()) / 1000
}

// beSlowInChild opens slow connections. It prints the number of open ones when all are slow, and
// for each line of its input.
func beSlowInChild(args []string) error {
	var open atomic.Int64
	slow := make(chan error, slowClients)
	for i := range slowClients {
		conn, err := net.Dial("tcp", args[0])
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // otherwise much of an answer would be under way
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		open.Add(1)
		go func() {
			defer open.Add(-1)
			time.Sleep(time.Duration(i) * slowStep / slowClients) // so that they do not all move at once
			head := "GET " + httpapi.DefaultPrefix + "/admin/templates HTTP/1.1\r\nHost: " + args[0] + "\r\nAuthorization: Bearer " + args[1] + "\r\n"
			if i%2 == 0 {
				trickle(conn, head, slow)
			} else {
				sip(conn, head, slow)
			}
		}()
	}
	for range slowClients {
		if err := <-slow; err != nil {
			return err
		}
	}
	fmt.Println(open.Load())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(open.Load())
	}
	return nil
}

// trickle sends a request byte by byte, until it cannot.
func trickle(conn net.Conn, head string, slow chan<- error) {
	_, err := io.WriteString(conn, head+"X-Slow: ")
	for slow <- err; err == nil; _, err = io.WriteString(conn, "s") {
		time.Sleep(slowStep)
	}
}

// sip reads the answer to a request bit by bit, until it cannot.
func sip(conn net.Conn, head string, slow chan<- error) {
	_, err := io.WriteString(conn, head+"\r\n")
	var sip [64]byte
	if err == nil {
		_, err = io.ReadFull(conn, sip[:])
	}
	for slow <- err; err == nil; _, err = io.ReadFull(conn, sip[:]) {
		time.Sleep(slowStep)
	}
}
