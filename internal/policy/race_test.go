//go:build race

package policy_test

const raced = true // times mean nothing
