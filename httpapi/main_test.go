package httpapi_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

func TestMain(m *testing.M) {
	longtest.AtOnce(4 * runtime.GOMAXPROCS(0)) // some wait for deadlines of connections
	os.Exit(m.Run())
}
