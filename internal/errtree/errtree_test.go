package errtree_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/errtree"
)

func TestParts(t *testing.T) {
	is := is.New(t)
	whole, plain := errors.New("whole"), errors.New("plain")
	isWhole := func(err error) bool { return err == whole }
	wrapped := fmt.Errorf("wrapped: %w", plain)
	joined := errors.Join(wrapped, fmt.Errorf("%w and %w", whole, plain), fmt.Errorf("%w", whole))
	is.Equal(slices.Collect(errtree.Parts(joined, isWhole)), []error{wrapped, whole, plain, whole})
	is.Equal(slices.Collect(errtree.Parts(nil, isWhole)), nil)

	doubled := plain
	for range 64 {
		doubled = errors.Join(doubled, doubled)
	}
	parts := slices.Collect(errtree.Parts(doubled, isWhole))
	is.True(len(parts) > 0 && len(parts) < 10_000) // of 2^64
	is.Equal(slices.Collect(errtree.Parts(empty{}, isWhole)), []error{empty{}})
	wide := errors.Join(slices.Repeat([]error{plain}, 20_000)...)
	is.Equal(len(slices.Collect(errtree.Parts(wide, isWhole))), 10_000-1) // one visit is to wide
}

// empty joins no errors.
type empty struct{}

func (empty) Error() string   { return "empty" }
func (empty) Unwrap() []error { return nil }
