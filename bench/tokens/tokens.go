// Package tokens contains only benchmarks. They compare the verification of keys with libraries
// that verify opaque tokens. See ../README.md.
package tokens
