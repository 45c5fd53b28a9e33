// Package hostilehttp sends random requests to a server of the HTTP interface and checks each
// answer. A 5xx or a redirect is a failure. An answer of 4xx must be a problem with a known code.
// The requests register sources at every path of the file system "any"
// ([marketplace.Config].Files).
//
// SVC_BARRAGE_TIME sets the duration ("1h"). The default is one second, or ten seconds where CI is
// "true". A failure prints SVC_BARRAGE_SEED: the same seed repeats the requests of each client, but
// not their order between clients.
package hostilehttp

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

	"github.com/extsvc/svc/internal/longtest"
)

// clients is the number of concurrent clients.
const clients = 4

// Run sends requests to the interface at base, each with one of the bearers ("" sends none).
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
						t.Errorf("SVC_BARRAGE_SEED=%d, request %d: %.600s: %v",
							seed, sent.Load(), request, err)
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
	t.Logf("SVC_BARRAGE_SEED=%d: %d requests, %d of them accepted",
		seed, sent.Load(), accepted.Load())
	if !t.Failed() && (accepted.Load() == 0 || accepted.Load() == sent.Load()) {
		t.Error("the server must accept some of the requests and refuse others")
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
	return time.Duration(longtest.Times(1, 10)) * time.Second
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

type request struct {
	method, url, body string
	header            http.Header
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %q %q", r.method, r.url, r.header, r.body)
}

// send sends a request and reports whether the server accepted it. It fails for an answer that the
// interface never gives.
func send(client *http.Client, r request) (accepted bool, err error) {
	out, err := http.NewRequest(r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		return false, err
	}
	out.Header = r.header
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
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
