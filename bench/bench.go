// Package bench has no code, only benchmarks: what a call of the service costs beside the bare driver call that does the
// same. See README.md.
package bench
