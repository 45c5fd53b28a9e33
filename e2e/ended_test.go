package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/wire"
	"github.com/extsvc/svc/store/memstore"
)

// left is the context of a caller that leaves when it has been looked at so many times.
type left struct {
	context.Context
	leave context.CancelFunc
	looks atomic.Int32
}

func (l *left) Err() error {
	if l.looks.Add(-1) < 0 {
		l.leave()
	}
	return l.Context.Err()
}

// A caller that leaves, at any moment of any request, is no fault of the store or of a source.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	var failing atomic.Int32
	s := newSite(t, onShelf, func(c *svc.Config) {
		c.Store = memstore.New()
		c.Events.OnEvent = func(_ context.Context, e svc.Event) {
			if e.Action == event.SourceFailing {
				failing.Add(1)
			}
		}
	})
	api, ended := httpapi.New(s.Service, httpapi.Options{}), 0
	admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	for name, row := range matrix {
		method, _, _ := strings.Cut(name, " ")
		for looks := range longtest.Times(4, 12) {
			must(s.Service.Keys.RevokeAll(t.Context(), svc.Host, admin))
			keys, bearer := s.restock(), s.key("admin")
			target := httpapi.DefaultPrefix + keys.in(row.target, keyID(bearer))
			request := httptest.NewRequest(method, target, strings.NewReader(row.body))
			request.Header.Set("Content-Type", kindOf(row.target))
			request.Header.Set("Authorization", "Bearer "+bearer)
			ctx := &left{}
			ctx.Context, ctx.leave = context.WithCancel(t.Context())
			ctx.looks.Store(int32(looks))
			answer := httptest.NewRecorder()
			api.ServeHTTP(answer, request.WithContext(ctx))
			ctx.leave()
			if answer.Code == row.statuses[5] {
				continue
			}
			var problem wire.Problem
			err := json.Unmarshal(answer.Body.Bytes(), &problem)
			ended++
			if err != nil || answer.Code != http.StatusServiceUnavailable ||
				!strings.HasPrefix(problem.Detail, "the call was canceled") {
				t.Errorf("%s, after %d looks: %d %s", name, looks, answer.Code, answer.Body)
			}
		}
	}
	if failing.Load() > 0 || ended < len(matrix) {
		t.Errorf("%d sources are failing; %d calls have ended early", failing.Load(), ended)
	}
}
