package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// What Options that are zero mean.
const (
	defaultMaxOpen     = 10
	defaultMaxIdleTime = 5 * time.Minute
	defaultTimeout     = 30 * time.Second
	connectTimeout     = 5 * time.Second
	grace              = 5 * time.Second // how much longer than the server the client waits
)

// parse reads a URL. Its errors say what is wrong and quote nothing: where a URL is malformed, anything may be the password.
func parse(url string) (*pgx.ConnConfig, error) {
	if strings.TrimSpace(url) == "" {
		return nil, errors.New("no URL is given")
	}
	config, err := pgx.ParseConfig(url)
	if fault, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return nil, fmt.Errorf("the URL cannot be parsed%s: want one like postgres://user:password@host:5432/database, or host=… dbname=… user=…", complaint(fault))
	} else if err != nil {
		return nil, errors.New("the URL cannot be understood")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	setDefault(config, "application_name", "svc")
	config.OnPgError = keepConnection
	return config, nil
}

// complaint is what the driver finds wrong, without the URL that it quotes before and the value that it may quote behind.
func complaint(fault *pgconn.ParseConfigError) string {
	text := fault.Error()
	if cause := fault.Unwrap(); cause != nil {
		text = strings.TrimSuffix(text, " ("+cause.Error()+")")
	}
	return text[strings.LastIndex(text, "`")+1:]
}

// keepConnection reports whether a connection is still good after an error. One to a server that has become a standby is
// not: its successor is found by connecting again.
func keepConnection(_ *pgconn.PgConn, fault *pgconn.PgError) bool {
	return !strings.EqualFold(fault.Severity, "FATAL") && fault.Code != readOnlyTransaction
}

func server(config *pgx.ConnConfig) string {
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

func setDefault(config *pgx.ConnConfig, name, value string) {
	if config.RuntimeParams[name] == "" {
		config.RuntimeParams[name] = value
	}
}

// commitModes are the values of synchronous_commit. The first two lose nothing.
var commitModes = []string{"on", "remote_apply", "remote_write", "local", "off"}

func (o Options) check() error {
	if o.MaxOpen < 0 {
		return fmt.Errorf("Options.MaxOpen is %d", o.MaxOpen)
	}
	if o.SynchronousCommit != "" && !slices.Contains(commitModes, o.SynchronousCommit) {
		return fmt.Errorf("Options.SynchronousCommit is %q, want one of %s", o.SynchronousCommit, strings.Join(commitModes, ", "))
	}
	return nil
}

// checkCommits refuses to write through a pooler where what is acknowledged may be lost: the setting is not ours to change.
func (o Options) checkCommits(ctx context.Context, db *sql.DB) error {
	if !o.Pooler {
		return nil
	}
	var mode string
	if err := db.QueryRowContext(ctx, "SHOW synchronous_commit").Scan(&mode); err != nil {
		return reason(err)
	}
	wanted := commitModes[:2]
	if o.SynchronousCommit != "" {
		wanted = []string{o.SynchronousCommit}
	}
	if !slices.Contains(wanted, mode) {
		return fmt.Errorf("synchronous_commit is %q, want %s: ALTER ROLE … SET synchronous_commit = %[2]s", mode, wanted[0])
	}
	return nil
}

// pool returns the connections that the options describe.
func (o Options) pool(config *pgx.ConnConfig) *sql.DB {
	config = config.Copy()
	timeout := nonZero(o.Timeout, defaultTimeout)
	if timeout > 0 {
		limit(config, timeout+grace)
	}
	var db *sql.DB
	if o.Pooler {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		db = sql.OpenDB(unprepared{stdlib.GetConnector(*config)})
	} else {
		o.set(config, timeout)
		db = stdlib.OpenDB(*config)
	}
	size := nonZero(o.MaxOpen, defaultMaxOpen)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(nonZero(o.MaxIdleTime, defaultMaxIdleTime))
	return db
}

func nonZero[T int | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// setCommits is how commits are made as durable as is asked for: a pooler may ignore what a connection starts with.
const setCommits = `SELECT set_config('synchronous_commit', '%s', false)`

// atLeastOn leaves what the server, the database or the role says, unless that is weaker.
const atLeastOn = ` WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')`

// set gives a connection its settings. What the URL says about limits of time stays.
func (o Options) set(config *pgx.ConnConfig, timeout time.Duration) {
	limit := "0" // none
	if timeout > 0 {
		limit = strconv.FormatInt(max(1, timeout.Milliseconds()), 10)
	}
	for _, name := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		setDefault(config, name, limit)
	}
	statement := fmt.Sprintf(setCommits, o.SynchronousCommit)
	if o.SynchronousCommit == "" {
		statement = fmt.Sprintf(setCommits, "on") + atLeastOn
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Exec(ctx, statement).ReadAll()
		return err
	}
}
