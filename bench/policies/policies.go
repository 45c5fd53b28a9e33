// Package policies contains only benchmarks. They compare a decision of this project with other
// policy engines on the same policies, and with two look-ups in Go maps. See README.md.
package policies
