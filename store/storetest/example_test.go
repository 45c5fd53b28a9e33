package storetest_test

import (
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/storetest"
)

// The author of a store has this test, with the store's own constructor. Package memstore runs it.
func ExampleRun() {
	TestStore := func(t *testing.T) {
		storetest.Run(t, func(*testing.T) svc.Store {
			return memstore.New() // or your own; t.Cleanup releases it
		})
	}
	_ = TestStore // go test calls it
}
