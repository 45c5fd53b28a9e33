//go:build linux

package crash

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// workerVariable holds the job of a worker. It turns the test binary into one.
const workerVariable = "SVC_CRASH_WORKER"

// job describes the work of a worker.
type job struct {
	Driver  string // "sqlite" or "postgres"
	Address string // the file or URL
	Run     string // the prefix of all ids of this worker
	Clients int
	Fault   fault
	People  map[string]string // people of earlier workers to go on with, and their states

	patient bool // calls wait for an answer of the database as long as it takes
}

// worker runs operations until it is killed.
type worker struct {
	job
	service *svc.Service
	store   svc.FullStore
	api     http.Handler
	host    *hostDB
	market  *market
	pen     *pen
	gate    sync.RWMutex // locked for writing while the worker pauses
}

// work runs a worker process to its end.
func work(encoded string) error {
	w := &worker{market: &market{}, pen: &pen{file: os.NewFile(3, "ledger")}}
	if err := json.Unmarshal([]byte(encoded), &w.job); err != nil {
		return err
	}
	go w.obey()
	if err := w.open(context.Background()); err != nil {
		w.pen.line("problem", "open:", err.Error())
		return err
	}
	source := "s-" + w.Run
	if !w.run(source, string(event.SourceRegistered), "registered", func(ctx context.Context) (string, error) {
		_, err := w.service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: "https://example.com/templates", Alias: &source})
		return "", err
	}) {
		return errors.New("the source was not registered")
	}
	w.pen.line("ready")
	go w.follow()
	for n := range w.Clients - 1 {
		go newClient(w, n).run()
	}
	newClient(w, w.Clients-1).run()
	return nil
}

// obey follows the commands on standard input, and ends with the test.
func (w *worker) obey() {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "pause":
			w.gate.Lock()
		case "resume":
			w.gate.Unlock()
		}
		w.pen.line(orders.Text() + "d")
	}
	os.Exit(0)
}

func (w *worker) open(ctx context.Context) error {
	var err error
	if w.store, w.host, err = w.job.open(ctx); err != nil {
		return err
	}
	w.store = w.Fault.plant(w.store)
	w.service, err = newService(w.store, w.market, func(_ context.Context, event svc.Event) {
		if told(event) {
			w.pen.line("event", object(event.Target), string(event.Action))
		}
	}, w.Fault.keeps())
	if err == nil {
		w.api = httpapi.New(w.service, httpapi.Options{Logger: slog.New(slog.DiscardHandler)})
	}
	return err
}

const administrator = "the-administrator"

// newService returns a Service for workers and checks.
func newService(store svc.Store, market svc.Marketplace, onEvent func(context.Context, svc.Event), keep bool) (*svc.Service, error) {
	return svc.New(svc.Config{
		Store: store, Sources: svc.SourceConfig{Marketplace: market}, Events: svc.EventConfig{OnEvent: onEvent, Keep: keep}, Logger: slog.New(slog.DiscardHandler),
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("a pepper of crash tests")}}},
		Authenticator: svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			if isPerson(bearer) {
				return svc.Principal{Kind: svc.KindUser, ID: bearer, Actions: []string{"template:*"}}, nil
			}
			if bearer != administrator {
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			return svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}, nil
		}),
	})
}

// run runs an operation between its two lines in the ledger. It reports whether the Service acknowledged it.
func (w *worker) run(object, action, state string, operation func(ctx context.Context) (detail string, err error)) bool {
	w.gate.RLock()
	defer w.gate.RUnlock()
	number := w.pen.try(object, action, state)
	detail, err := operation(context.Background())
	if err == nil {
		w.pen.line("ack", number, detail)
		return true
	}
	code := string(svc.ErrorCode(err))
	if w.outcomeUnknown() && code == string(svc.CodeUnavailable) {
		w.pen.line("unsure", number, code)
	} else {
		w.pen.line("fail", number, code, err.Error())
	}
	time.Sleep(5 * time.Millisecond)
	return false
}

// outcomeUnknown reports whether a failed operation may have taken effect. With SQLite it has not:
// SQLite runs in the worker.
func (w *worker) outcomeUnknown() bool { return w.Driver == "postgres" }

// breaches writes what breaks the contract of the interface into the ledger.
type breaches struct {
	testing.TB
	pen *pen
}

func (breaches) Helper() {}

func (b breaches) Error(args ...any) { b.pen.line("problem", fmt.Sprint(args...)) }

// revoke revokes a user's key over HTTP. To check each request like that takes too long.
func (w *worker) revoke(ctx context.Context, holder, id string) error {
	checked := contract.Transport(breaches{pen: w.pen}, direct{w.api})
	err := w.as(administrator, checked).Keys.Revoke(ctx, user(holder), id)
	if errors.Is(err, svc.ErrUnavailable) {
		w.pen.line("revokefailed")
	}
	return err
}

// issueHosted issues a key in the same transaction as a row of the host.
func (w *worker) issueHosted(ctx context.Context, holder string) error {
	tx, err := w.host.BeginTx(ctx, nil)
	if err != nil {
		return hostFault(err)
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO host_rows (id) VALUES ($1)`, holder); err != nil {
		return hostFault(err)
	}
	if w.Fault == tornHost {
		err := tx.Commit()
		time.Sleep(time.Millisecond) // leaves time for a crash to show
		return errors.Join(err, w.issue(ctx, w.service, holder))
	}
	if err := w.issue(ctx, w.service.WithTx(w.host.transaction(tx)), holder); err != nil {
		return err
	}
	return hostFault(tx.Commit())
}

func (w *worker) issue(ctx context.Context, service *svc.Service, holder string) error {
	return failure(service.Keys.Issue(ctx, svc.Host, user(holder), svc.NewAPIKey{}))
}

func user(id string) svc.Identity { return svc.Identity{Kind: svc.KindUser, ID: id} }

// hostFault classifies an error of the host's own statements, which the Service never sees.
func hostFault(err error) error {
	if err == nil {
		return nil
	}
	return &svc.Error{Code: svc.CodeUnavailable, Message: "the host's transaction", Err: err}
}

// follow reads the change feed as another process does, and writes the generations into the ledger.
func (w *worker) follow() {
	ctx := context.Background()
	for since := int64(0); ; {
		changes, err := w.store.Changes(ctx, since)
		if err == nil && changes.Generation != since {
			since = changes.Generation
			w.pen.line("generation", fmt.Sprint(since))
		}
		if err := w.store.AwaitChange(ctx, since); err != nil || since == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// market is a Marketplace whose templates have the version requested last. It is asked for nothing else.
type market struct {
	svc.Marketplace
	versions sync.Map
}

func (*market) CheckURL(string) error { return nil }

func (m *market) Template(_ context.Context, _ svc.Upstream, id string) (svc.Content, error) {
	version, there := m.versions.Load(id)
	if !there {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: "no such template"}
	}
	return content(id, version.(int), version.(int)), nil
}

// hostDB is the host's own pool of connections.
type hostDB struct {
	*sql.DB
	transaction func(*sql.Tx) svc.Store
}

const hostTable = `CREATE TABLE IF NOT EXISTS host_rows (id TEXT NOT NULL PRIMARY KEY)`

func number(text string) int {
	var n int
	digits := text[strings.LastIndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })+1:]
	fmt.Sscan(digits, &n)
	return n
}

func (j job) open(ctx context.Context) (svc.FullStore, *hostDB, error) {
	store, host, err := j.openDatabase(ctx)
	if err != nil {
		return nil, nil, err
	}
	return store, host, failure(host.ExecContext(ctx, hostTable))
}

func (j job) openDatabase(ctx context.Context) (svc.FullStore, *hostDB, error) {
	if j.Driver == "postgres" {
		return j.openPostgres(ctx)
	}
	db := pool(j.Address, j.Fault.synchronous())
	host := &hostDB{db, func(tx *sql.Tx) svc.Store { return sqlstore.Tx(tx, sqlite.Dialect()) }}
	if j.Fault.synchronous() == "off" {
		store := sqlstore.New(db, db, sqlite.Dialect())
		return store, host, store.Migrate(ctx)
	}
	store, err := sqlite.Open(ctx, j.Address, sqlite.Options{Fast: j.Fault == syncNormal})
	return store, host, err
}

func (j job) openPostgres(ctx context.Context) (svc.FullStore, *hostDB, error) {
	options := postgres.Options{}
	if j.Fault == asyncWAL {
		options.SynchronousCommit = "off"
	}
	if j.patient {
		options.Timeout = -1
	}
	store, err := postgres.Open(ctx, j.Address, options)
	if err != nil {
		return nil, nil, err
	}
	return store, &hostDB{store.DB(), func(tx *sql.Tx) svc.Store { return sqlstore.Tx(tx, postgres.Dialect()) }}, nil
}

// pool opens a host's own pool of a SQLite file.
func pool(path, synchronous string) *sql.DB {
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(5000)", "foreign_keys(1)", "journal_mode(wal)", "synchronous(" + synchronous + ")",
	}}
	db := got(sql.Open("sqlite", "file:"+path+"?"+settings.Encode()))
	db.SetMaxOpenConns(1)
	return db
}

// process is a worker as the test sees it.
type process struct {
	ledger *ledger
	cmd    *exec.Cmd
	orders io.WriteCloser
	ready  <-chan struct{}
	exited chan struct{}
	killed bool
}

// start starts a worker, which ends with the test at the latest.
func (l *ledger) start(t testing.TB, j job) *process {
	t.Helper()
	j.People = l.people()
	p := &process{ledger: l, ready: l.hear("ready"), exited: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), workerVariable+"="+encode(j))
	p.cmd.ExtraFiles = []*os.File{l.writer}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a stopped worker could not notice the end of the test
	p.orders = got(p.cmd.StdinPipe())
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // a kill is an error
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the worker at once and waits for its end. A worker that has ended before is a problem.
func (p *process) kill() {
	select {
	case <-p.exited:
		if !p.killed {
			p.ledger.problem("harness: the worker has ended by itself")
		}
	default:
	}
	p.killed = true
	_ = p.cmd.Process.Kill() // may have ended
	<-p.exited
}

const patience = time.Minute

// awaitReady waits until the worker has opened its database.
func (p *process) awaitReady() error { return p.await(p.ready, "ready") }

func (p *process) await(heard <-chan struct{}, what string) error {
	select {
	case <-heard:
		return nil
	case <-p.exited:
		err := p.ledger.sync()
		return fmt.Errorf("the worker ended before it was %s: %q, %w", what, p.ledger.found(), err)
	case <-time.After(patience):
		return fmt.Errorf("the worker was not %s in %v", what, patience)
	}
}

// order makes the worker pause or resume, and waits until it has.
func (p *process) order(word string) error {
	heard := p.ledger.hear(word + "d")
	if _, err := io.WriteString(p.orders, word+"\n"); err != nil {
		return err
	}
	return p.await(heard, word+"d")
}

// stop stops the worker and waits until none of its threads runs or is inside the kernel.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		if p.stopped() {
			return nil
		}
	}
	return errors.New("the worker does not stop")
}

func (p *process) stopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
