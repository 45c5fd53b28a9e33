package bench_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
)

const (
	rush      = 64                     // callers whose slowest issues count
	rushTime  = 2 * time.Second        // how long they issue
	listening = 16                     // processes that follow the changes
	metered   = 1000                   // issues whose processor time is measured
	followers = "svc_bench_follow"     // the application_name of processes that follow
	calm      = 500 * time.Millisecond // until processes have nothing more to do
)

// BenchmarkIssueOverNetwork compares 16 concurrent issuers with a hand-written INSERT of the same
// rows, over connections of 1 ms. Each key has its own holder.
func BenchmarkIssueOverNetwork(b *testing.B) {
	s := siteOf(b, postgresEngine, small)
	address := delayed(b, s.place)
	service, store := opened(b, address)
	defer closed(b, service, store)
	h := newHand(b, address)
	ctx := b.Context()
	compare(b, side{name: "hand",
		call: func() error { return atOnce(func(int) error { return h.issue(ctx) }) },
	}, side{name: "service",
		call: func() error { return atOnce(func(int) error { return issueToNewHolder(ctx, service) }) },
	})
}

// BenchmarkRush compares how long the slowest of 100 issues takes when 64 callers issue at once,
// with the same INSERT of as many callers on as many connections.
func BenchmarkRush(b *testing.B) {
	s := siteOf(b, postgresEngine, small)
	service, store := opened(b, s.place)
	defer closed(b, service, store)
	h := newHand(b, s.place)
	best := [2]float64{math.Inf(1), math.Inf(1)}
	for b.Loop() {
		for i, issue := range []func() error{
			func() error { return h.issue(b.Context()) },
			func() error { return issueToNewHolder(b.Context(), service) },
		} {
			best[i] = min(best[i], rushP99(b, issue))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(best[0], "ms-p99-hand")
	b.ReportMetric(best[1], "ms-p99-service")
	b.ReportMetric(best[1]/best[0], "x-hand")
}

// rushP99 returns the ms that the slowest of 100 calls takes.
func rushP99(b *testing.B, issue func() error) float64 {
	b.Helper()
	took := make([][]time.Duration, rush)
	end := time.Now().Add(rushTime)
	err := together(rush, func(i int) error {
		for time.Now().Before(end) {
			began := time.Now()
			if err := issue(); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return float64(all[len(all)*99/100].Microseconds()) / 1000
}

// hand inserts keys by one hand-written statement.
type hand struct {
	insert *sql.Stmt
	key    svc.APIKey
}

func newHand(b *testing.B, address string) hand {
	b.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(issuers)
	db.SetMaxIdleConns(issuers)
	insert, err := db.Prepare(insertKey)
	if err != nil {
		b.Fatal(err)
	}
	keys, err := makeKeys(b.Context(), 1, ofPrincipal)
	if err != nil {
		b.Fatal(err)
	}
	return hand{insert, keys[0].APIKey}
}

// issue inserts a key for a user that has none.
func (h hand) issue(ctx context.Context) error {
	k := h.key
	_, err := h.insert.ExecContext(ctx, rand.Text(), k.Holder.Kind, fmt.Sprint("holder-", holders.Add(1)), k.Prefix,
		k.Description, k.Hash, k.Pepper, k.CreatedAt.UnixMicro(), nil, nil, 0, nil, k.ScopingPolicyID, k.Seal)
	return err
}

// BenchmarkListeners compares the processor time of an issue with 16 processes that follow the
// changes and with one. It counts these processes, their connections, and the connections of the
// issuer.
func BenchmarkListeners(b *testing.B) {
	s := siteOf(b, postgresEngine, small)
	address := s.place + "&application_name=" + followers
	service, store := opened(b, address)
	defer closed(b, service, store)
	one, all := math.Inf(1), math.Inf(1)
	for b.Loop() {
		one = min(one, costWith(b, s, service, address, 1))
		all = min(all, costWith(b, s, service, address, listening))
	}
	b.ReportMetric(one, "µs-one")
	b.ReportMetric(all, "µs-all")
	b.ReportMetric(all/one, "x-one")
	b.ReportMetric(0, "ns/op")
}

// costWith returns the µs of processor time of an issue while so many processes follow.
func costWith(b *testing.B, s *site, service *svc.Service, address string, processes int) float64 {
	b.Helper()
	pids := []int{os.Getpid()}
	for range processes {
		c, err := startChild("follow", address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.end()
		var ready string
		if err := c.hear(&ready); err != nil {
			b.Fatal(err)
		}
		pids = append(pids, c.command.Process.Pid)
	}
	time.Sleep(calm)
	rows, err := s.bare.read.Query(`SELECT pid FROM pg_stat_activity WHERE application_name = $1`, followers)
	if err != nil {
		b.Fatal(err)
	}
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			b.Fatal(err)
		}
		pids = append(pids, pid)
	}
	before := processorTime(b, pids)
	for range metered {
		if err := issueToNewHolder(b.Context(), service); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(calm)
	return float64((processorTime(b, pids) - before).Nanoseconds()) / metered / 1000
}

// processorTime returns the processor time of processes since their starts.
func processorTime(b *testing.B, pids []int) (sum time.Duration) {
	b.Helper()
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			b.Skip("NOT MEASURED: ", err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
			var ns int64
			if err == nil {
				_, err = fmt.Sscan(string(text), &ns)
			}
			if err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(ns)
		}
	}
	return sum
}

// followInChild follows the changes of a database until its input ends.
func followInChild(args []string) error {
	store, err := postgres.Open(context.Background(), args[0], postgres.Options{})
	if err != nil {
		return err
	}
	service, err := svc.New(config(store))
	if err != nil {
		return err
	}
	_, _ = service.Authenticate(context.Background(), strings.Repeat("x", 40)) // it may follow only from now on
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
	}
	return service.Close()
}

func opened(b *testing.B, address string) (*svc.Service, *postgres.Store) {
	b.Helper()
	store, err := postgres.Open(b.Context(), address, postgres.Options{MaxOpen: issuers})
	if err != nil {
		b.Fatal(err)
	}
	service, err := svc.New(config(store))
	if err != nil {
		b.Fatal(err)
	}
	return service, store
}

func closed(b *testing.B, service *svc.Service, store *postgres.Store) {
	b.Helper()
	if err := service.Close(); err != nil {
		b.Error(err)
	}
	if err := store.Close(); err != nil {
		b.Error(err)
	}
}

var holders atomic.Int64

// issueToNewHolder issues a key for a user that has none.
func issueToNewHolder(ctx context.Context, service *svc.Service) error {
	holder := svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("holder-", holders.Add(1))}
	_, err := service.Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{})
	return err
}
