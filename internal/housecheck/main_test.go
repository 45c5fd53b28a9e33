// Package housecheck_test checks the text of the project: its shape, its pages, its comments and its tests. The package has tests
// alone. Each changes to the root folder itself, so that Go runs it again when a file there has changed.
package housecheck_test

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
