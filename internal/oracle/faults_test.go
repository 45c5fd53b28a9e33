package oracle_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/longtest"
)

// The oracle notices a service that lacks one of its rules: without the rule, the oracle disagrees.
func TestTheOracleNoticesEachRule(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	documents := []func(*scene) attempt{(*scene).patchPolicy}
	for rule, draws := range map[string][]func(*scene) attempt{
		"ceiling": nil, "broken ceiling": nil, "ceiling of keys": nil, "effect of keys": nil, "grant": nil, "taken": nil, "the inactive": nil,
		"accounts": nil, "senders": nil, "public": nil, "contexts": nil, "last administrator": nil, "own denies": nil, "groups": nil, "vouching": nil,
		"activation": {(*scene).patchUser}, "narrowed keys": documents, "own narrowing": documents, // which matter in few attempts
	} {
		t.Run(rule, func(t *testing.T) {
			_, err := trials{ignored: rule, draws: draws}.run(t, 100_000) // some rules matter in one attempt of ten thousand
			is.New(t).True(err != nil)                                    // the oracle and the service disagree
		})
	}
}
