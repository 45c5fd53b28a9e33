// Package barrage sends requests at random to a server of the HTTP interface, and wants each to be answered as the interface says: never
// by a fault, never by a redirect, every failure by a problem of a known code. Only tests use it.
//
// SVC_BARRAGE_TIME says for how long ("1h"); it is a second otherwise, and ten where CI is "true". A failure prints the SVC_BARRAGE_SEED by
// which the same requests are made again, though not in the same order between clients.
package barrage

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clients is how many send at once.
const clients = 4

// Run sends requests to the interface at base, each by one of the bearers ("" is none).
func Run(t *testing.T, client *http.Client, base string, bearers ...string) {
	t.Helper()
	seed := seed(t)
	var sent, accepted atomic.Int64
	var once sync.Once
	var all sync.WaitGroup
	stop := time.Now().Add(duration(t))
	for i := range clients {
		all.Go(func() {
			m := &maker{rand.New(rand.NewPCG(seed, uint64(i)))}
			for !t.Failed() && time.Now().Before(stop) {
				request := m.request(base, bearers)
				ok, err := send(client, request)
				if err != nil {
					once.Do(func() {
						t.Errorf("SVC_BARRAGE_SEED=%d, request %d: %.600s: %v", seed, sent.Load(), request, err)
					})
					return
				}
				if sent.Add(1); ok {
					accepted.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("SVC_BARRAGE_SEED=%d: %d requests, %d of them accepted", seed, sent.Load(), accepted.Load())
	if !t.Failed() && (accepted.Load() == 0 || accepted.Load() == sent.Load()) {
		t.Error("these requests show nothing")
	}
}

func duration(t *testing.T) time.Duration {
	t.Helper()
	if asked := os.Getenv("SVC_BARRAGE_TIME"); asked != "" {
		d, err := time.ParseDuration(asked)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if os.Getenv("CI") == "true" {
		return 10 * time.Second
	}
	return time.Second
}

func seed(t *testing.T) uint64 {
	t.Helper()
	asked := os.Getenv("SVC_BARRAGE_SEED")
	if asked == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(asked, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// request is what is sent.
type request struct {
	method, url, body string
	header            http.Header
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %q %q", r.method, r.url, r.header, r.body)
}

// send reports whether a request was accepted; an answer that none may have is an error.
func send(client *http.Client, r request) (accepted bool, err error) {
	out, err := http.NewRequest(r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		return false, err
	}
	out.Header = r.header
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := direct.Do(out)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	return response.StatusCode < 300, check(r.method, response, body)
}
