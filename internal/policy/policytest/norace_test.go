//go:build !race

package policytest

const raced = false
