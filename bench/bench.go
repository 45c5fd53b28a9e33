// Package bench contains only benchmarks. They compare the cost of a call of the Service with the
// bare driver call that does the same. See README.md.
package bench
