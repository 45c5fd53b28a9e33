package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/wire"
)

// let is what a request was let through with.
type let struct {
	by       svc.Principal
	decision *svc.Decision // nil: nothing was decided
	answer   *answer       // to the request; nil: there is none, and no handler
	handler  *Handler      // the one that let it through
}

type letKey struct{}

// Protect authenticates requests to next, a handler of the host. It passes a request to next if the
// Service accepts its bearer, or its session with [Options].Principal; next reads the caller with
// [PrincipalFrom]. Protect answers all other requests as the interface does: 401, 403 for a page of
// another origin, 429, or 503 when it cannot check the bearer or the session. It checks no rights:
// [Handler.Require] does.
func (h *Handler) Protect(next http.Handler) http.Handler {
	return h.guard(next, func(*Handler, *http.Request, svc.Principal) (*svc.Decision, error) {
		return nil, nil
	})
}

// Require returns a middleware that authenticates as [Handler.Protect], and then decides
// ([svc.Service.Decide]) whether the caller may do action on the bank of the request. It passes the
// request on if so; next reads the decision with [DecisionFrom]. Otherwise the answer is 403. A
// bank that cannot be one, such as "", is 400.
//
// bank is called once for each request that is authenticated, from several goroutines concurrently.
// Nil: the bank "*", on which only what holds for every bank counts. Require panics when action is
// empty or a pattern.
func (h *Handler) Require(
	action string, bank func(r *http.Request) string,
) func(next http.Handler) http.Handler {
	if action == "" || strings.Contains(action, "*") {
		panic("httpapi: Require needs one action, and no pattern: " + action)
	}
	decide := func(h *Handler, r *http.Request, by svc.Principal) (*svc.Decision, error) {
		on := "*"
		if bank != nil {
			on = bank(r)
		}
		decision, err := h.service.Decide(r.Context(), by, action, on, svc.Context{})
		if err == nil && !decision.Allowed() {
			err = &svc.Error{Code: svc.CodeForbidden, Message: "you may not do " + action + " here"}
		}
		return &decision, err
	}
	return func(next http.Handler) http.Handler { return h.guard(next, decide) }
}

// decide decides about a caller. Nil: there is no decision.
type decide func(h *Handler, r *http.Request, by svc.Principal) (*svc.Decision, error)

// guard passes a request to next if the caller is known and decide has no error. No principal that
// is in the context already counts.
func (h *Handler) guard(next http.Handler, decide decide) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{
			ResponseWriter: w, Observation: Observation{Began: time.Now(), Route: r.Pattern},
		}
		passed, ok := h.letIn(a, r, decide)
		if !ok {
			return
		}
		passed.answer, passed.handler = a, h
		r = r.WithContext(context.WithValue(r.Context(), letKey{}, passed))
		if h.options.Observer == nil {
			next.ServeHTTP(w, r)
			return
		}
		a.Err = errHandlerPanicked // until it returns
		defer func() {
			a.Route, a.RequestID = r.Pattern, w.Header().Get(inbound.RequestIDHeader)
			h.options.Observer.Observe(r.Context(), h.observed(a))
		}()
		next.ServeHTTP(a.toHost(), r)
		if !a.begun {
			a.Status = http.StatusOK // net/http sends it for a handler that wrote nothing
		}
		switch {
		case a.Status < http.StatusInternalServerError:
			a.Err = nil
		case a.Err == errHandlerPanicked:
			a.Err = fmt.Errorf("the host's handler answered %d", a.Status)
		}
	})
}

// answered notes what a handler of the host answers by WriteError, and logs the cause of a fault.
func (h *Handler) answered(a *answer, r *http.Request, problem wire.Problem, err error) {
	a.Code = svc.Code(problem.Code)
	if problem.Status < http.StatusInternalServerError {
		return
	}
	a.Err = err
	o := h.observed(a)
	o.Route, o.Status = r.Pattern, problem.Status
	o.RequestID = h.mask(a.Header().Get(inbound.RequestIDHeader))
	h.log(r, o)
}

var errHandlerPanicked = errors.New("the host's handler panicked")

// letIn returns the caller and the decision, or answers with a problem, also when a function of the
// host panics.
func (h *Handler) letIn(a *answer, r *http.Request, decide decide) (passed let, ok bool) {
	defer func() {
		if !ok {
			h.report(a, r)
		}
	}()
	defer h.recover(a, r)
	err := h.in(a, r, func(h *Handler) (err error) {
		if passed.by, err = h.admit(a, r); err == nil {
			passed.decision, err = decide(h, r, passed.by)
		}
		return err
	})
	if err != nil {
		h.fail(a, r, err)
	}
	return passed, err == nil
}

// PrincipalFrom returns the principal of a request that [Handler.Protect] or [Handler.Require] let
// through, or of [WithPrincipal]. false: there is none.
func PrincipalFrom(ctx context.Context) (svc.Principal, bool) {
	passed, ok := ctx.Value(letKey{}).(let)
	return passed.by, ok
}

// DecisionFrom returns the decision of a request that [Handler.Require] let through: it has the
// parameters that apply. false: the request did not pass Require.
func DecisionFrom(ctx context.Context) (svc.Decision, bool) {
	passed, _ := ctx.Value(letKey{}).(let)
	if passed.decision == nil {
		return svc.Decision{}, false
	}
	return *passed.decision, true
}

// WithPrincipal returns a context in which [PrincipalFrom] finds by, for tests of the host's own
// handlers. [Handler.Protect] and [Handler.Require] trust no principal of a context.
func WithPrincipal(ctx context.Context, by svc.Principal) context.Context {
	return context.WithValue(ctx, letKey{}, let{by: by})
}

// hostAnswer is the answer of a handler of the host.
type hostAnswer struct{ *answer }

// flushed and hijacked are answers that the host's ResponseWriter can flush, or hand over as well:
// handlers ask for these interfaces to choose what they do.
type (
	flushed  struct{ hostAnswer }
	hijacked struct{ flushed }
)

// toHost returns the answer with what the host's ResponseWriter can do.
func (a *answer) toHost() http.ResponseWriter {
	if _, can := a.ResponseWriter.(http.Hijacker); can {
		return hijacked{flushed{hostAnswer{a}}}
	}
	if _, can := a.ResponseWriter.(http.Flusher); can {
		return flushed{hostAnswer{a}}
	}
	return hostAnswer{a}
}

// begin records the status of the answer: the first one, as net/http sends no other.
func (a hostAnswer) begin(status int) {
	if !a.begun {
		a.begun, a.Status = true, status
	}
}

func (a hostAnswer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // else an early hint
		a.begin(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a hostAnswer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.answer.Write(p)
}

// FlushError is for [http.ResponseController].
func (a hostAnswer) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if err == nil {
		a.begin(http.StatusOK)
	}
	return err
}

// Flush implements [http.Flusher].
func (a flushed) Flush() { _ = a.FlushError() }

// Hijack implements [http.Hijacker]. It fails with HTTP/2, and the handler then answers.
func (a hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}
