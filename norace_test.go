//go:build !race

package svc_test

const raced = false
