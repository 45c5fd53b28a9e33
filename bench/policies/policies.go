// Package policies has no code, only benchmarks: what a decision costs in this project, in other policy engines that are
// given the same policies, and in two look-ups in Go maps. See docs/performance.md.
package policies
