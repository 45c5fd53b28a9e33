// Package errtree walks the errors that an error joins.
package errtree

import (
	"errors"
	"iter"
)

// maxErrors limits the errors of a tree that Parts visits. A tree of n errors that each join the
// one before twice has 2^n paths, and a host's function may return such a tree.
const maxErrors = 10_000

// Parts returns what a tree of errors joins ([errors.Join], fmt's %w), in order: each error that is
// whole, and each other error that neither joins errors nor wraps a whole one. It does not look
// below a whole error. It returns err itself when it finds none of them, and nothing for nil.
func Parts(err error, whole func(error) bool) iter.Seq[error] {
	return func(yield func(error) bool) {
		left, none := maxErrors, true
		visit(err, whole, &left, func(part error) bool {
			none = false
			return yield(part)
		})
		if none && err != nil {
			yield(err)
		}
	}
}

// visit calls yield with the parts of a tree. It returns false once yield has returned false or
// nothing is left.
func visit(tree error, whole func(error) bool, left *int, yield func(error) bool) bool {
	for err := tree; err != nil; err = errors.Unwrap(err) {
		if *left--; *left < 0 {
			return false
		}
		if whole(err) {
			return yield(err)
		}
		if joined, is := err.(interface{ Unwrap() []error }); is {
			for _, one := range joined.Unwrap() {
				if !visit(one, whole, left, yield) {
					return false
				}
			}
			return true
		}
	}
	return tree == nil || yield(tree)
}
