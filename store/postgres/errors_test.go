package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/extsvc/svc"
)

// foreign is the error of another driver.
type foreign string

func (f foreign) Error() string    { return "a fault" }
func (f foreign) SQLState() string { return string(f) }

func TestStatesMean(t *testing.T) {
	for states, want := range map[string]error{
		"08000 08001 08003 08004 08006 08P01":       svc.ErrUnavailable,
		"53000 53100 53200 53300 53400":             svc.ErrUnavailable,
		"57P01 57P02 57P03 57P05 57014 25P03 55P03": svc.ErrUnavailable,
		"25006 40003 58030":                         svc.ErrUnavailable,
		"40001 40P01":                               svc.ErrChanged,
		"23505":                                     svc.ErrExists,
		"23503 42P01 42501 22021 28P01 28000 3D000": nil,
		"40002 57P04 25P02 0A000 XX000 XX001 99999": nil,
		"53 08 5310 531000":                         nil,
	} {
		for state := range strings.FieldsSeq(states) {
			for _, err := range []error{&pgconn.PgError{Code: state}, foreign(state)} {
				if have := classify(fmt.Errorf("a statement: %w", err)); have != want {
					t.Errorf("%s means %v, want %v", state, have, want)
				}
			}
		}
	}
}

func TestBrokenConnectionsMean(t *testing.T) {
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, os.ErrDeadlineExceeded,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		&net.DNSError{Err: "no such host", Name: "db"},
	} {
		if have := classify(fmt.Errorf("a statement: %w", err)); have != svc.ErrUnavailable {
			t.Errorf("%v means %v", err, have)
		}
	}
	for _, err := range []error{errors.New("a fault"), os.ErrNotExist} {
		if have := classify(err); have != nil {
			t.Errorf("%v means %v", err, have)
		}
	}
}
