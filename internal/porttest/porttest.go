// Package porttest finds addresses for programs that tests start.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Free returns an address on which nothing listens. Systems give higher ports to connections, and
// to listeners that ask for any. So none of these takes the port before the program listens.
func Free(t testing.TB) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
