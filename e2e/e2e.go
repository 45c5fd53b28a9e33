// Package e2e contains only tests: of the interface over real HTTP, real database files, real
// sources and real processes.
//
// A test reads the published catalogue from the directory SVC_CATALOGUES, or else from
// shared/catalogues of a parent directory. Without the catalogue the test is skipped; where CI is
// "true" it fails.
package e2e
