package bench_test

import (
	"context"
	"errors"
	"testing"

	"github.com/extsvc/svc"
)

const (
	issuers    = 16
	keysAnBout = 4 // keys that an issuer issues in a row
)

// BenchmarkIssuers compares 16 concurrent issuers with the same keys in one transaction each, which
// the driver commits one after the other.
func BenchmarkIssuers(b *testing.B) {
	for _, e := range allEngines {
		b.Run(e.name, func(b *testing.B) {
			s := siteOf(b, e, small)
			ctx := b.Context()
			var fresh []svc.IssuedKey
			floor := side{name: "floor",
				before: func(calls int) (err error) {
					fresh, err = makeKeys(ctx, calls*issuers*keysAnBout, ofPrincipal)
					return err
				},
				call: func() error {
					keys := fresh[:issuers*keysAnBout]
					fresh = fresh[len(keys):]
					return atOnce(func(i int) error { return s.bare.issue(ctx, keys[i].APIKey) })
				},
			}
			service := side{name: "service", call: func() error {
				return atOnce(func(int) error {
					_, err := s.service.Keys.Issue(ctx, svc.Host, principal, svc.NewAPIKey{})
					return err
				})
			}}
			if err := s.issuesAll(ctx, service); err != nil {
				b.Fatal(err)
			}
			compare(b, floor, service)
		})
	}
}

// issuesAll checks that concurrent issuers issue every key.
func (s *site) issuesAll(ctx context.Context, service side) error {
	const count = `SELECT COUNT(*) FROM svc_api_keys`
	var before, after int
	err := s.bare.read.QueryRowContext(ctx, count).Scan(&before)
	err = errors.Join(err, service.call(), s.bare.read.QueryRowContext(ctx, count).Scan(&after))
	return errors.Join(err, equal(after-before, issuers*keysAnBout))
}

// atOnce calls issue from 16 goroutines, some times each, with another number each time.
func atOnce(issue func(i int) error) error {
	return together(issuers, func(issuer int) error {
		var err error
		for i := range keysAnBout {
			err = errors.Join(err, issue(issuer*keysAnBout+i))
		}
		return err
	})
}
