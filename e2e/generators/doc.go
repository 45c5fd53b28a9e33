// Package generators contains only tests: clients in Go and TypeScript that common tools generate
// from the OpenAPI documents compile and work, and linters find no fault in the documents.
//
// They take minutes of computing, so they run only with CI=true.
package generators
