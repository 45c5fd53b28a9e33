package sqltest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// Tenants are the services of the tenants of a store, until the test ends.
type Tenants struct {
	*svc.Tenants
	t *testing.T
}

// NewTenants makes the services.
func NewTenants(t *testing.T, store svc.TenantStore, config svc.Config) Tenants {
	t.Helper()
	tenants, err := svc.NewTenants(svc.TenantsConfig{Store: store, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tenants.Close() })
	return Tenants{tenants, t}
}

// Accepts authenticates a key of a tenant.
func (in Tenants) Accepts(tenant string, key svc.Secret) error {
	return in.Use(in.t.Context(), tenant, func(s *svc.Service) error {
		_, err := s.Authenticate(in.t.Context(), string(key))
		return err
	})
}

// Code is that of the error of Accepts for a key that does not exist.
func (in Tenants) Code(tenant string) svc.Code {
	return svc.ErrorCode(in.Accepts(tenant, "svcu_x"))
}

var alice = svc.Identity{Kind: svc.KindUser, ID: "alice"}

// Issue issues a key to a user of a tenant.
func (in Tenants) Issue(tenant string) (issued svc.IssuedKey) {
	in.t.Helper()
	checks{in.t}.NoErr(in.Use(in.t.Context(), tenant, func(s *svc.Service) (err error) {
		issued, err = s.Keys.Issue(in.t.Context(), svc.Host, alice, svc.NewAPIKey{})
		return err
	}))
	return issued
}

// Revoke revokes a key of Issue.
func (in Tenants) Revoke(tenant string, issued svc.IssuedKey) {
	in.t.Helper()
	checks{in.t}.NoErr(in.Use(in.t.Context(), tenant, func(s *svc.Service) error {
		return s.Keys.Revoke(in.t.Context(), svc.Host, alice, issued.ID)
	}))
}

// UseMany makes so many tenants, and uses each with several goroutines.
func (in Tenants) UseMany(many int) {
	in.t.Helper()
	var all sync.WaitGroup
	for i := range many {
		name := fmt.Sprint("t", i)
		_, err := in.Create(in.t.Context(), name)
		checks{in.t}.NoErr(err)
		for range 4 {
			all.Go(func() {
				for range 5 {
					if code := in.Code(name); code != svc.CodeUnauthenticated {
						in.t.Error(code)
					}
				}
			})
		}
	}
	all.Wait()
}

// ExpectEvent waits for an event of a user of a tenant.
func ExpectEvent(t *testing.T, events <-chan svc.Event, tenant, user string) {
	t.Helper()
	is := checks{t}
	select {
	case e := <-events:
		is.Equal(e.Tenant, tenant)
		is.Equal(e.Target.ID, user)
	case <-time.After(time.Minute):
		t.Fatal("the event is not delivered")
	}
}
