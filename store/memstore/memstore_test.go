package memstore_test

import (
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) svc.Store { return memstore.New() })
}

func TestTenants(t *testing.T) {
	storetest.RunTenants(t, func(*testing.T) svc.TenantStore { return memstore.NewTenants() })
}
