// Package e2e has no code, only tests: of the interface over real HTTP, real database files, real sources and real
// processes.
//
// The published catalogue is looked for in shared/catalogues of a directory above this one, or in the directory that
// SVC_CATALOGUES names; its test is skipped without it, unless CI is "true".
package e2e
