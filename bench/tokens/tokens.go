// Package tokens has no code, only benchmarks: verifying keys beside libraries that verify opaque tokens. See ../README.md.
package tokens
