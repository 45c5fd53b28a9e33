package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/longtest"
)

// setting is the prefix of the environment variables that configure a doomed shop.
const setting = "SVC_EXAMPLE_TRANSACTION_"

// TestMain lets a test run this binary as the program itself, or as a shop that a test kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(setting + "DIR"); dir != "" {
		doomed(dir, os.Getenv(setting+"DB"))
	}
	programtest.Main(m, setting+"MAIN", main)
}

// The moments at which a test kills a shop.
const (
	written   = "written" // the customer's row is written, the key is not
	committed = "committed"
	delivered = "delivered" // the event is delivered, and still in the outbox
	anyMoment = "any"
)

// doomed signs customers up, two at a time, until a test kills it. When its moment comes for the
// nth time, it prints "now" and one of the two waits to be killed. It prints each customer that it
// has signed up.
func doomed(dir, db string) {
	round, moment := must(strconv.Atoi(os.Getenv(setting+"ROUND"))), os.Getenv(setting+"MOMENT")
	var left atomic.Int64
	left.Store(int64(must(strconv.Atoi(os.Getenv(setting + "NTH")))))
	here := func(at string) {
		if at == moment && left.Add(-1) == 0 {
			now(3 * time.Millisecond)
			select {}
		}
	}
	s := must(openAt(context.Background(), db, shopConfig(dir, round, here)))
	if moment == anyMoment {
		now(200 * time.Millisecond)
	}
	signUp := s.signUp
	if os.Getenv(setting+"FAULT") != "" {
		signUp = s.signUpApart
	}
	for counter := range 2 {
		go func() {
			for n := 0; ; n++ {
				customer := fmt.Sprintf("%d.%d.%d", round, counter, n)
				fmt.Println("told", customer, string(must(signUp(context.Background(), customer))))
				here(committed)
			}
		}()
	}
	time.Sleep(time.Minute) // no test is left to kill it
	os.Exit(1)
}

// now asks the test to kill this process within a time.
func now(within time.Duration) { fmt.Println("now", int64(within)) }

// signUpApart is signUp with a planted fault: two transactions.
func (s shopAt) signUpApart(ctx context.Context, customer string) (svc.Secret, error) {
	if _, err := s.db.ExecContext(ctx, `INSERT INTO customers (id) VALUES ($1)`, customer); err != nil {
		return "", err
	}
	issued, err := s.service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: customer}, svc.NewAPIKey{})
	return issued.Key, err
}

// shopConfig returns the configuration of one round's shop. The shop calls here at each moment and
// writes its events to a file.
func shopConfig(dir string, round int, here func(moment string)) svc.Config {
	log := must(os.OpenFile(filepath.Join(dir, "events"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	return svc.Config{
		Logger: slog.New(slog.DiscardHandler),
		// A shop that dies during a delivery has claimed its events for 30 s. Each round's clock is
		// a minute later, so the claim has expired.
		Now: func() time.Time {
			here(written) // issuing a key begins with a look at the clock
			return time.Now().Add(time.Duration(round) * time.Minute)
		},
		Events: svc.EventConfig{OnEvent: func(_ context.Context, event svc.Event) {
			must(fmt.Fprintln(log, event.Target.Holder.ID, event.Action, event.ID))
			here(delivered)
		}},
	}
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// TestKilled: a kill at any moment leaves one key for each customer and no other key. Each
// customer's event is delivered at least once.
func TestKilled(t *testing.T) {
	t.Parallel()
	rounds := longtest.Times(12, 60)
	inEach(t, func(t *testing.T, db string) {
		for _, problem := range killAgainAndAgain(t, db, rounds, "") {
			t.Error(problem)
		}
	})
}

// TestKilled must be able to fail.
func TestKilledFindsTwoTransactions(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		found := strings.Join(killAgainAndAgain(t, db, 4, "two transactions"), "\n")
		for _, want := range []string{"has 0 keys", "has 0 events"} {
			if !strings.Contains(found, want) {
				t.Errorf("not found: a customer who %s. Found: %s", want, found)
			}
		}
	})
}

// killAgainAndAgain returns what is wrong with a shop after many kills.
func killAgainAndAgain(t *testing.T, db string, rounds int, fault string) (problems []string) {
	t.Helper()
	dir, signedUp := t.TempDir(), map[string]string{}
	address, awaitGone := doomedAt(t, db)
	for round := range rounds {
		moment := []string{written, committed, delivered, anyMoment}[round%4]
		runAndKill(t, signedUp, "DIR="+dir, "DB="+address, fmt.Sprint("ROUND=", round), "MOMENT="+moment, "FAULT="+fault)
		awaitGone()
		reopen(t, db, svc.Config{}, func(s shopAt) {
			problems = append(problems, perCustomer("keys", customers(t, s), holders(t, s))...)
		})
	}
	var everybody []string
	reopen(t, db, svc.Config{}, func(s shopAt) {
		everybody = customers(t, s)
		for customer, key := range signedUp {
			if who, err := s.service.Authenticate(t.Context(), key); err != nil || who.ID != customer {
				problems = append(problems, fmt.Sprintf("%s was told that they are signed up, and their key is of %q: %v", customer, who.ID, err))
			}
		}
	})
	events, again := deliverRest(t, db, dir, rounds)
	problems = append(problems, perCustomer("events", everybody, events)...)
	t.Logf("killed %d times; %d customers, %d of whom were told; %d events came again", rounds, len(everybody), len(signedUp), again)
	return problems
}

// perCustomer reports customers without exactly one entry, and entries of unknown customers.
func perCustomer(what string, customers []string, have map[string]int) (problems []string) {
	have = maps.Clone(have)
	for _, customer := range customers {
		if have[customer] != 1 {
			problems = append(problems, fmt.Sprintf("customer %s has %d %s", customer, have[customer], what))
		}
		delete(have, customer)
	}
	if len(have) > 0 {
		problems = append(problems, fmt.Sprintf("%s without a customer: %v", what, have))
	}
	return problems
}

// reopen opens the shop as the next run of the program does.
func reopen(t *testing.T, db string, config svc.Config, use func(shopAt)) {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	s := must(openAt(t.Context(), db, config))
	use(s)
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// deliverRest runs the last shop until the outbox is empty. It returns the number of events of each
// customer, by event ID, and the number of repeats.
func deliverRest(t *testing.T, db, dir string, round int) (events map[string]int, again int) {
	t.Helper()
	reopen(t, db, shopConfig(dir, round, func(string) {}), func(s shopAt) {
		waiting := 1
		if !programtest.Soon(func() bool {
			read(t, s, `SELECT '', COUNT(*) FROM svc_outbox`, func(_ string, n int) { waiting = n })
			return waiting == 0
		}) {
			t.Fatalf("%d events wait for ever", waiting)
		}
	})
	text := must(os.ReadFile(filepath.Join(dir, "events")))
	events = map[string]int{}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		customer, _, _ := strings.Cut(line, " ")
		if seen[line] {
			again++
		} else {
			seen[line] = true
			events[customer]++
		}
	}
	return events, again
}

// runAndKill lets a shop sign customers up until its moment, kills it, and notes the customers that
// it reported.
func runAndKill(t *testing.T, signedUp map[string]string, settings ...string) {
	t.Helper()
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), fmt.Sprint(setting, "NTH=", 1+rand.IntN(10)))
	for _, each := range settings {
		program.Env = append(program.Env, setting+each)
	}
	program.Stderr = os.Stderr
	stdout := must(program.StdoutPipe())
	is.New(t).NoErr(program.Start())
	killed := false
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // killed; half a line counts as none
		}
		switch words := strings.Fields(line); words[0] {
		case "now":
			killed = true
			within := time.Duration(must(strconv.Atoi(words[1])))
			time.AfterFunc(rand.N(within), func() { _ = program.Process.Kill() })
		case "told":
			signedUp[words[1]] = words[2]
		}
	}
	if err := program.Wait(); !killed || err == nil || err.Error() != "signal: killed" {
		t.Fatalf("it ended before it was killed: %v", err)
	}
}
