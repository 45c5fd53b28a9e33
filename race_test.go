//go:build race

package svc_test

const raced = true // sync.Pool forgets at random
