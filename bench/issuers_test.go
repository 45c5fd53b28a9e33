package bench_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

const (
	issuers    = 16
	keysAnBout = 4 // keys that an issuer issues in a row
	farAway    = time.Millisecond
)

// issuing is a case of BenchmarkIssuers. A further axis is a field here and a loop there.
type issuing struct {
	engine
	distance time.Duration // that a connection adds to a round trip
	audit    bool          // the Service writes a record of each key
	revokes  bool          // each second call revokes a key in place of issuing one
	by       issuer
}

type issuer string

const (
	byHost issuer = "host"
	byOne  issuer = "one key"   // an administrator's, for other users
	byMany issuer = "many keys" // each for its own user
)

func (c issuing) String() string {
	return fmt.Sprintf("%s/distance=%v/audit=%v/revokes=%v/by=%s", c.name, c.distance, c.audit, c.revokes, c.by)
}

// BenchmarkIssuers compares 16 concurrent issuers with one bare INSERT of the same row for each
// key, over as many connections. The INSERT has no limit of keys, no generation and no
// notification. Callers with keys are those of the server of package examples: their users have rows.
func BenchmarkIssuers(b *testing.B) {
	for _, c := range []issuing{
		{engine: sqliteEngine}, {engine: sqliteEngine, audit: true},
		{engine: postgresEngine}, {engine: postgresEngine, audit: true},
		{engine: postgresEngine, distance: farAway}, {engine: postgresEngine, distance: farAway, audit: true},
		{engine: postgresEngine, audit: true, revokes: true},
		{engine: postgresEngine, distance: farAway, audit: true, revokes: true},
	} {
		for _, c.by = range []issuer{byHost, byOne, byMany} {
			if c.audit && !c.revokes || c.by == byHost {
				b.Run(c.String(), c.run)
			}
		}
	}
}

func (c issuing) run(b *testing.B) {
	w, ctx := newWorld(b, c.engine, size{keys: issuers * 64, perUser: 1}), b.Context()
	insert := c.bareInsert(b, w)
	service := w.service
	if c.audit || c.distance > 0 {
		service = c.service(b, w)
	}
	callers := c.callers(b, w, service)
	var next atomic.Int64                     // each key has another holder, since a holder has a limit of keys
	issued := make(chan svc.IssuedKey, 1<<12) // a larger one costs its garbage collection
	compare(b, measure.Side{Name: "insert", Call: func() error { return atOnce(func(int) error { return insert(ctx) }) }},
		measure.Side{Name: "service", Call: func() error {
			return atOnce(func(int) error {
				n := int(next.Add(1))
				by, holder := callers[n%len(callers)], svc.Identity{Kind: svc.KindUser, ID: userID(n % len(w.issued))}
				switch c.by {
				case byHost:
					holder.ID = rand.Text()
				case byMany:
					holder = svc.Me
				}
				if n%2 == 1 {
					select {
					case key := <-issued:
						return service.Keys.Revoke(ctx, by, key.Holder, key.ID)
					default:
					}
				}
				key, err := service.Keys.Issue(ctx, by, holder, svc.NewAPIKey{})
				if c.revokes && err == nil {
					issued <- key
				}
				return err
			})
		}})
}

// BenchmarkProcesses compares the same number of keys, issued by one administrator's key through two
// and four Services at once, with one Service. Each has a store and 16 issuers of its own, as processes
// that share a database have. They share this process: its processors are the limit where there are few.
func BenchmarkProcesses(b *testing.B) {
	const most = 4
	for _, distance := range []time.Duration{0, farAway} {
		c := issuing{engine: postgresEngine, distance: distance, audit: true, by: byOne}
		b.Run(c.String(), func(b *testing.B) {
			w, ctx := newWorld(b, c.engine, size{keys: issuers * 64, perUser: 1}), b.Context()
			var services []*svc.Service
			var callers []svc.Principal
			for range most {
				services = append(services, c.service(b, w))
				callers = append(callers, c.callers(b, w, services[len(services)-1])[0])
			}
			issue := func(service int) error {
				holder := svc.Identity{Kind: svc.KindUser, ID: rand.Text()}
				return failure(services[service].Keys.Issue(ctx, callers[service], holder, svc.NewAPIKey{}))
			}
			check(services[0].Access.Apply(ctx, svc.Host, svc.Bundle{}))
			var sides []measure.Side
			for _, n := range []int{1, 2, most} {
				sides = append(sides, measure.Side{Name: fmt.Sprint(n), Call: func() error {
					return together(n*issuers, func(i int) error {
						for range most * keysAnBout / n {
							if err := issue(i % n); err != nil {
								return err
							}
						}
						return nil
					})
				}})
			}
			costs := alternate(b, sides, measure.Alike)
			b.ReportMetric(costs[1]/costs[0], "x-2-by-1")
			b.ReportMetric(costs[2]/costs[0], "x-4-by-1")
		})
	}
}

// BenchmarkManyIssuers compares the slowest hundredth of the calls of 64 callers at once with the
// median of one caller.
func BenchmarkManyIssuers(b *testing.B) {
	const many = 64
	for _, c := range []issuing{
		{engine: sqliteEngine, audit: true, by: byMany}, {engine: postgresEngine, audit: true, by: byMany},
		{engine: postgresEngine, distance: farAway, audit: true, by: byMany},
	} {
		b.Run(c.String(), func(b *testing.B) {
			w, ctx := newWorld(b, c.engine, size{keys: many, perUser: 1}), b.Context()
			service := c.service(b, w)
			callers := c.callers(b, w, service)
			var alone, crowded []time.Duration
			for b.Loop() {
				for range 4 {
					for _, at := range []struct {
						callers int
						took    *[]time.Duration
					}{{1, &alone}, {many, &crowded}} {
						took, keys := make([]time.Duration, at.callers), make([]svc.IssuedKey, at.callers)
						err := together(at.callers, func(i int) (err error) {
							began := time.Now()
							keys[i], err = service.Keys.Issue(ctx, callers[i], svc.Me, svc.NewAPIKey{})
							took[i] = time.Since(began)
							return err
						})
						for i, key := range keys { // a holder has a limit of keys
							err = errors.Join(err, service.Keys.Revoke(ctx, callers[i], svc.Me, key.ID))
						}
						if err != nil {
							b.Fatal(err)
						}
						*at.took = append(*at.took, took...)
					}
				}
			}
			slices.Sort(alone)
			slices.Sort(crowded)
			median, late := alone[len(alone)/2], crowded[len(crowded)*99/100]
			b.ReportMetric(float64(median.Microseconds()), "µs-p50-of-one")
			b.ReportMetric(float64(late.Microseconds()), "µs-p99-of-64")
			b.ReportMetric(float64(late)/float64(median), "x-p99-by-p50")
			b.ReportMetric(0, "ns/op") // of a round: means nothing
		})
	}
}

// service returns a Service of the case over the database of a world, with a store of its own.
func (c issuing) service(b *testing.B, w *world) *svc.Service {
	store := get(c.open(c.reach(b, w.place)))
	with := config(store)
	with.Events.Keep = c.audit
	with.Users.AreRows = c.by == byMany
	service := get(svc.New(with))
	b.Cleanup(func() { _ = errors.Join(service.Close(), store.Close()) })
	return service
}

func (c issuing) callers(b *testing.B, w *world, service *svc.Service) (callers []svc.Principal) {
	keys := w.issued
	switch c.by {
	case byHost:
		return []svc.Principal{svc.Host}
	case byOne:
		keys = keys[:1]
		admin := svc.Attachment{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: userID(0)}}
		check(service.Access.Apply(b.Context(), svc.Host, svc.Bundle{Attachments: []svc.Attachment{admin}}))
	}
	for _, key := range keys {
		callers = append(callers, get(service.Authenticate(b.Context(), string(key.Key))))
	}
	return callers
}

// bareInsert returns the INSERT that the Service itself runs for a key, alone and committed, each
// time with another id. Its holder is nobody else's: it soon has more keys than it may issue.
func (c issuing) bareInsert(b *testing.B, w *world) func(context.Context) error {
	r := &recorder{}
	var issued svc.IssuedKey
	steps, err := r.of(func() (err error) {
		holder := svc.Identity{Kind: svc.KindUser, ID: "bare"}
		issued, err = w.recorded(b, r).service.Keys.Issue(b.Context(), svc.Host, holder, svc.NewAPIKey{})
		return err
	})
	at := slices.IndexFunc(steps, func(s step) bool { return strings.Contains(s.text, "INSERT INTO svc_api_keys") })
	if err != nil || at < 0 {
		b.Fatal("no INSERT of a key: ", err)
	}
	id := slices.Index(steps[at].args, any(issued.ID))
	write, read := c.connect(c.reach(b, w.place), nil)
	b.Cleanup(func() { _ = errors.Join(read.Close(), write.Close()) })
	insert := get(write.Prepare(steps[at].text))
	return func(ctx context.Context) error {
		args := slices.Clone(steps[at].args)
		args[id] = rand.Text()
		return failure(insert.ExecContext(ctx, args...))
	}
}

// atOnce calls issue from all issuers, some times each.
func atOnce(issue func(issuer int) error) error {
	return together(issuers, func(issuer int) error {
		for range keysAnBout {
			if err := issue(issuer); err != nil {
				return err
			}
		}
		return nil
	})
}

// reach returns an address of the same database at the case's distance: that of a proxy, which ends
// with the benchmark.
func (c issuing) reach(b *testing.B, place string) string {
	if c.distance == 0 {
		return place
	}
	to := get(url.Parse(place))
	proxy, server := get(net.Listen("tcp", "127.0.0.1:0")), to.Host
	b.Cleanup(func() { _ = proxy.Close() })
	go func() {
		for {
			client, err := proxy.Accept()
			if err != nil {
				return
			}
			if conn, err := net.Dial("tcp", server); err == nil {
				go carry(conn, client, c.distance/2)
				go carry(client, conn, c.distance/2)
			}
		}
	}()
	to.Host = proxy.Addr().String()
	return to.String()
}

// carry copies a stream until it ends. Each piece arrives late.
func carry(to io.WriteCloser, from io.Reader, late time.Duration) {
	type piece struct {
		bytes []byte
		at    time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			_, _ = to.Write(p.bytes) // the reader ends when the connection does
		}
	}()
	defer close(pieces)
	for {
		bytes := make([]byte, 16<<10)
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		pieces <- piece{bytes[:n], time.Now().Add(late)}
	}
}
