package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// The defaults of Options, and the limits of connecting and waiting.
const (
	defaultMaxOpen     = 10
	defaultMaxIdleTime = 5 * time.Minute
	defaultTimeout     = 30 * time.Second
	connectTimeout     = 5 * time.Second
	grace              = 5 * time.Second // the client waits so much longer than the server
)

const urlForms = "one like postgres://user:password@host:5432/database, with % as %25, " +
	"or host=… dbname=… user=…"

// parse reads a URL. Its errors say what is wrong but quote nothing: any part of a malformed URL
// may be the password.
func parse(url string) (*pgx.ConnConfig, error) {
	if strings.TrimSpace(url) == "" {
		return nil, errors.New("no URL is given: want " + urlForms)
	}
	config, err := pgx.ParseConfig(url)
	if fault, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return nil, fmt.Errorf("the URL cannot be parsed%s: want %s", complaint(fault), urlForms)
	} else if err != nil {
		return nil, errors.New("the URL cannot be parsed: want " + urlForms)
	}
	if err := checkNames(config); err != nil {
		return nil, err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	setDefault(config, "application_name", "svc")
	config.RuntimeParams["client_encoding"] = utf8 // poolers know it
	config.OnPgError = keepConnection
	config.OnNotice = note
	return config, nil
}

// checkNames refuses names with control characters, such as a variable that ends in a line break.
func checkNames(config *pgx.ConnConfig) error {
	names := maps.Clone(config.RuntimeParams)
	if names == nil {
		names = map[string]string{}
	}
	names["host"], names["database"], names["user"] = config.Host, config.Database, config.User
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if strings.ContainsFunc(names[name], unicode.IsControl) {
			return fmt.Errorf("the %s of the URL, or of a PG… variable, must have no control "+
				"characters, such as a line break", name)
		}
	}
	return nil
}

// complaint returns the driver's reason, without the URL before it and the value that may follow
// it.
func complaint(fault *pgconn.ParseConfigError) string {
	text := fault.Error()
	if cause := fault.Unwrap(); cause != nil {
		text = strings.TrimSuffix(text, " ("+cause.Error()+")")
	}
	return text[strings.LastIndex(text, "`")+1:]
}

// keepConnection reports whether a connection is still good after an error. When the server has
// become a standby, the connection is not: connecting again finds the new primary.
func keepConnection(_ *pgconn.PgConn, fault *pgconn.PgError) bool {
	return !strings.EqualFold(fault.Severity, "FATAL") && fault.Code != readOnlyTransaction
}

// nameDatabase adds to an error what was being done with which database.
func nameDatabase(err *error, doing string, config *pgx.ConnConfig) {
	if *err != nil {
		server := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
		*err = fmt.Errorf("%sPostgreSQL database %q on %s: %w", doing, config.Database, server, *err)
	}
}

func setDefault(config *pgx.ConnConfig, name, value string) {
	if config.RuntimeParams[name] == "" {
		config.RuntimeParams[name] = value
	}
}

// commitModes are the values of synchronous_commit. The first two lose no acknowledged write.
var commitModes = []string{"on", "remote_apply", "remote_write", "local", "off"}

func (o Options) check() error {
	if o.MaxOpen < 0 {
		return fmt.Errorf("Options.MaxOpen is %d: set it to 0 or more", o.MaxOpen)
	}
	if o.SynchronousCommit != "" && !slices.Contains(commitModes, o.SynchronousCommit) {
		return fmt.Errorf("Options.SynchronousCommit is %q, want one of %s",
			o.SynchronousCommit, strings.Join(commitModes, ", "))
	}
	return nil
}

const utf8 = "UTF8"

// checkSettings refuses connections on which acknowledged writes may be lost, or whose texts the
// driver cannot read or reads changed: the Store does not change the settings of a pooler or of a
// host's pool. It refuses a database that cannot keep every text.
func (o Options) checkSettings(ctx context.Context, db *sql.DB) error {
	commits := commitModes[:2]
	if o.SynchronousCommit != "" {
		commits = []string{o.SynchronousCommit}
	}
	var kept, commit, encoding, bytes, digits string
	err := db.QueryRowContext(ctx, `SELECT current_setting('server_encoding'),
		current_setting('synchronous_commit'), current_setting('client_encoding'),
		current_setting('bytea_output'), current_setting('extra_float_digits')`).
		Scan(&kept, &commit, &encoding, &bytes, &digits)
	if err != nil {
		return reason(err)
	}
	if kept != utf8 {
		return fmt.Errorf("the database has the encoding %s: "+
			"CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", kept)
	}
	for _, setting := range []struct {
		name, value string
		wanted      []string
	}{
		{"synchronous_commit", commit, commits},
		{"client_encoding", encoding, []string{utf8}},
		{"bytea_output", bytes, []string{"hex"}},
		{"extra_float_digits", digits, []string{"1", "2", "3"}}, // below, numbers are rounded
	} {
		if !slices.Contains(setting.wanted, setting.value) {
			return fmt.Errorf("%s is %q, want %s: ALTER ROLE … SET %[1]s = %[3]s, or change"+
				" the URL that sets it", setting.name, setting.value, setting.wanted[0])
		}
	}
	return nil
}

// pool returns a pool with the settings of the options.
func (o Options) pool(config *pgx.ConnConfig) *sql.DB {
	config = config.Copy()
	timeout := cmp.Or(o.Timeout, defaultTimeout)
	if timeout > 0 {
		limit(config, timeout+grace)
	}
	if o.Pooler {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	} else {
		o.set(config, timeout)
	}
	config.BuildContextWatcherHandler = o.newWatcher
	db := sql.OpenDB(connector{Connector: &dialer{Connector: stdlib.GetConnector(*config)}})
	size := cmp.Or(o.MaxOpen, defaultMaxOpen)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(cmp.Or(o.MaxIdleTime, defaultMaxIdleTime))
	return db
}

// setCommits sets the durability of commits by a statement, because a pooler may ignore the
// settings of a new connection.
const setCommits = `SELECT set_config('synchronous_commit', '%s', false)`

// setTexts sets how the server writes what a URL may ask for as text.
const setTexts = `; SET bytea_output TO hex; SET extra_float_digits TO 1`

// atLeastOn keeps the setting of the server, the database or the role, unless it is weaker than
// "on".
const atLeastOn = ` WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')`

// planOnly keeps the server from compiling statements, which takes it longer than any of them.
// Tables without statistics seem large to its planner, and then it compiles each read of changes.
const planOnly = `; SET jit TO off`

// set gives a connection its settings. Time limits and jit in the URL take precedence.
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
	statement += setTexts
	if config.RuntimeParams["jit"] == "" {
		statement += planOnly
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Exec(ctx, statement).ReadAll()
		return err
	}
}
