package policy

import "errors"

// MaxSteps is the work of one call: see [Compiler.Apart]. A step is about a nanosecond.
const MaxSteps = 1 << 30

// maxWords is the most words of the sets that one judgement or one comparison reads: 16 MB.
const maxWords = 2 << 20

// ErrTooComplex says that the work of a call exceeds its budget.
var ErrTooComplex = errors.New("the policies are too complex to compare")

// meter is a Call with a budget of steps. It ends when they are spent.
type meter struct {
	call  Call  // nil: it never ends early
	steps int64 // left
}

func (m *meter) Err() error {
	if m.call != nil {
		if err := m.call.Err(); err != nil {
			return err
		}
	}
	if m.steps < 0 {
		return ErrTooComplex
	}
	return nil
}

// spend takes steps from the budget of a call. A Call without a budget has no end of them.
func spend(call Call, steps int) {
	if m, ok := call.(*meter); ok && m.steps >= 0 {
		m.steps -= int64(steps)
	}
}

// fits reports whether the budget of a call allows n sets of numbers below limit, and spends what
// it takes to fill them. Otherwise the call ends.
func fits(call Call, n, limit int) bool {
	m, ok := call.(*meter)
	if !ok {
		return true
	}
	if words := n * ((limit + 63) / 64); words <= maxWords {
		spend(call, 8*words)
	} else {
		m.steps = -1
	}
	return m.steps >= 0
}

// Limit gives a Compiler for one call a budget of so many steps, in place of what is left.
func (c *Compiler) Limit(steps int64) {
	if m, ok := c.call.(*meter); ok {
		m.steps = steps
	}
}

// grantSteps is about what it takes to gather a policy that reaches a party.
const grantSteps = 256

// Gathers takes what it takes to gather so many grants from the budget of a Compiler for one call.
// false: the call has ended, so do not gather them.
func (c *Compiler) Gathers(grants int) bool {
	spend(c.call, grants*grantSteps)
	return !ended(c.call)
}

// Err returns why the call of a Compiler ended early: the error of its Call, or ErrTooComplex. nil:
// its results are complete.
func (c *Compiler) Err() error {
	if c.call == nil {
		return nil
	}
	return c.call.Err()
}
