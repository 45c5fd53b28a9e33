package sqlstore

import "context"

// Later is a statement whose answer nobody needs immediately. A driver may send it together with
// the next statement of its transaction, or with the commit, and so spare a round trip.
//
// [LaterOf] finds it in the context of a call of ExecContext. Drivers that do not look for it run
// the statement immediately. An empty statement asks for the answers to all that wait.
type Later struct {
	// Taken says that the driver runs the statement later. The driver sets it and returns any
	// result. It keeps the order of all statements. When the statement fails, the call that sends
	// it fails in its stead. In a Later of BeginTx it says that the driver does so for all
	// statements of the transaction.
	Taken bool
	// Check, unless nil, looks at the number of rows that the statement wrote. The driver calls it
	// before it commits, and Check's error is an error of the statement.
	Check func(rows int64) error
	// Rows, unless nil, reads the answer to a query, and closes it. The driver may call it when the
	// transaction is committed. Rows' error is an error of the query.
	Rows func(Rows) error
	// Caller is the context of the caller, in a Later of BeginTx. When it ends during the commit,
	// the driver cancels what can still be canceled, and then reports the outcome.
	Caller context.Context
}

type laterKey struct{}

// LaterOf returns the Later of a statement, or nil. A context of BeginTx has a Later when the
// driver may begin the transaction together with its first statement; then every statement of the
// transaction passes through database/sql.
func LaterOf(ctx context.Context) *Later {
	later, _ := ctx.Value(laterKey{}).(*Later)
	return later
}

// maybeLater marks the call that ctx is for.
func maybeLater(ctx context.Context, later *Later) context.Context {
	return context.WithValue(ctx, laterKey{}, later)
}
