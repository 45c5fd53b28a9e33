package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/extsvc/svc"
)

// A caller may leave at any time, and callers with short deadlines leave all the time. The driver
// would close their connections, and all others would wait for new ones. So a statement whose caller
// has left gets a moment to end. Then the server is asked to cancel it. Only a server that does not
// answer either loses the connection. A pooler is not asked, because PgBouncer 1.18 to 1.20 may exit
// at a request to cancel: until the connection ends, when the driver asks, most statements have ended.
const (
	cancelDelay  = 50 * time.Millisecond // from the end of the context to the request to cancel
	cancelAnswer = time.Second           // from the end of the context to the end of the connection
)

// watcher interrupts a statement whose context ends.
type watcher struct {
	left   ctxwatch.Handler // the caller has left
	silent ctxwatch.Handler // the server has not answered in time
	now    ctxwatch.Handler // that of the context that has ended
}

func (o Options) newWatcher(conn *pgconn.PgConn) ctxwatch.Handler {
	w := &watcher{silent: &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}}
	if o.Pooler {
		w.left = &pgconn.DeadlineContextWatcherHandler{
			Conn: conn.Conn(), DeadlineDelay: cancelAnswer,
		}
	} else {
		w.left = &pgconn.CancelRequestContextWatcherHandler{
			Conn: conn, CancelRequestDelay: cancelDelay, DeadlineDelay: cancelAnswer,
		}
	}
	return w
}

// HandleCancel implements ctxwatch.Handler.
func (w *watcher) HandleCancel(ctx context.Context) {
	if w.now = w.left; isSilence(ctx) {
		w.now = w.silent
	}
	w.now.HandleCancel(ctx)
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (w *watcher) HandleUnwatchAfterCancel() { w.now.HandleUnwatchAfterCancel() }

// isSilence reports whether a context has ended because the server did not answer in time.
func isSilence(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), svc.ErrUnavailable)
}
