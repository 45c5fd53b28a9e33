package adminpage

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// running is a check for updates of the server's templates in this process, or
// how the last one ended.
type running struct {
	now         bool
	done, total int    // the templates compared so far
	problem     string // why it has no result
}

// checked is the report of the last check that is complete. Its zero value is that of no check.
type checked struct {
	svc.UpdateReport
	at time.Time
}

// problem returns why the check has nothing about a source; "": it has.
func (c *checked) problem(source svc.SourceKey) string {
	for _, s := range c.Sources {
		if s.Source == source {
			return s.Problem
		}
	}
	return ""
}

// checks are the checks of tenants in this process. The Service keeps their reports.
type checks struct {
	mu sync.Mutex
	of map[int64]running // by the tenant's number
}

// maxChecks is how many tenants are remembered.
const maxChecks = 64

// last returns a tenant's last check.
func (c *checks) last(tenant int64) running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[tenant]
}

// change replaces it by what edit makes of it. Beyond maxChecks, that of another tenant goes.
func (c *checks) change(tenant int64, edit func(*running)) (before running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, kept := range c.of {
		if len(c.of) < maxChecks {
			break
		}
		if !kept.now {
			delete(c.of, other)
		}
	}
	before = c.of[tenant]
	next := before
	edit(&next)
	c.of[tenant] = next
	return before
}

// lastCheck returns the last check of any process that is complete.
func (v *visit) lastCheck() (last checked, err error) {
	last.UpdateReport, last.at, err = v.h.service.Templates.LastCheck(v.r.Context(), v.by)
	if code := svc.ErrorCode(err); code == svc.CodeNotFound || code == svc.CodeForbidden {
		return checked{}, nil
	}
	return last, err
}

// patience is how long a page waits for a check, and maxCheck how long a check may take.
const (
	patience = time.Second
	maxCheck = 10 * time.Minute
)

// check asks all sources in the background, and keeps the result for the lists. It waits a moment
// for it. Of two concurrent checks, the second waits for nothing.
func (v *visit) check() error {
	if err := v.need(action.TemplateAdmin); err != nil {
		return err
	}
	tenant := v.h.service.Tenant().Number
	if v.h.checks.change(tenant, func(r *running) { r.now, r.done, r.total = true, 0, 0 }).now {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), maxCheck)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		v.h.asked(ctx, v.by)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
	case <-v.r.Context().Done():
	}
	return nil
}

// asked asks all sources of the server, and keeps how that ended.
func (h *Handler) asked(ctx context.Context, by svc.Principal) {
	tenant := h.service.Tenant().Number
	err, problem := h.ask(ctx, by, tenant), ""
	if err != nil {
		h.options.Logger.Warn("svc: admin page cannot check for updates", "error", err)
		problem = "The check was not completed. Try again."
	}
	h.checks.change(tenant, func(r *running) { r.now, r.problem = false, problem })
}

// ask asks all sources of the server. The Service keeps what they say. It does so in the
// background, where a panic of the host's functions, which check manifests, would end the process.
func (h *Handler) ask(ctx context.Context, by svc.Principal, tenant int64) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			h.options.Logger.Error("svc: admin page panicked", "error", err,
				"stack", string(debug.Stack()))
		}
	}()
	ask := func(ctx context.Context, service *svc.Service) error {
		_, err := service.Templates.CheckUpdates(ctx, by, func(done, total int) {
			h.checks.change(tenant, func(r *running) { r.done, r.total = done, total })
		})
		return err
	}
	if h.tenants == nil {
		return ask(ctx, h.service)
	}
	return h.tenants.UseContext(ctx, h.tenant, ask) // the request may end before
}

// checkView says how the last check went.
type checkView struct {
	Running     bool
	Done, Total int // templates, while it runs
	// Asked of Sources have answered. Failed are others: the first maxListed.
	Asked, Sources int
	Failed         []failedSource
	More           int
	Problem        string
}

type failedSource struct {
	Source svc.SourceKey
	Reason string
}

func (c checkView) failed() bool { return c.Problem != "" || c.Failed != nil }

// checkShown prepares a check for the page that comes after it: done is "checked" there.
func (v *visit) checkShown(last checked, done string) (view checkView) {
	own := v.h.checks.last(v.h.service.Tenant().Number)
	view = checkView{Running: own.now, Done: own.done, Total: own.total}
	if own.now || done != "checked" {
		return view
	}
	view.Problem = own.problem
	for _, s := range last.Sources {
		if s.Problem != "" {
			view.Failed = append(view.Failed, failedSource{s.Source, s.Problem})
		}
	}
	view.Sources = len(last.Sources)
	view.Asked = view.Sources - len(view.Failed)
	view.Failed, view.More = head(view.Failed, maxListed)
	return view
}
