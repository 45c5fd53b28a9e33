//go:build race

package policytest

const raced = true // everything takes ten times as long
