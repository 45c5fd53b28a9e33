package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// block returns the text of a page between a line that starts with fence and the end of the block.
func block(t *testing.T, page, fence string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), fence+"\n")
	inside, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("%s has no block %q", page, fence)
	}
	return inside
}

// TestReadmeProgram: the program in the README is the one that examples/embed compiles, runs and tests.
func TestReadmeProgram(t *testing.T) {
	is := is.New(t)
	program, err := os.ReadFile("../embed/main.go")
	is.NoErr(err)
	_, code, _ := strings.Cut(string(program), "package main\n")
	is.Equal(block(t, "README.md", "```go"), "package main\n"+code)
}

// TestReadmeCommands: the two commands to begin with stand in blocks of their own, to be copied.
func TestReadmeCommands(t *testing.T) {
	is := is.New(t)
	is.Equal(block(t, "README.md", "## Try it\n\n```sh"), "go run ./examples/server\n")
	is.Equal(block(t, "README.md", "run with\n\n```sh"), "go test work\n")
}

// TestDocumentedAnswer: the server answers its first line to try as docs/http.md shows.
func TestDocumentedAnswer(t *testing.T) {
	is := is.New(t)
	server := startServer(t, "-db", newDB(t))
	line := linesWith(block(t, "docs/http.md", "`support`:\n\n```sh"), "curl")[0]
	is.Equal(line, strings.ReplaceAll(linesWith(server.stdout.String(), "curl")[0], server.base, "http://127.0.0.1:8080"))

	answer := paste(t, "KEY="+server.key(), strings.ReplaceAll(line, "http://127.0.0.1:8080", server.base))
	var want, got bytes.Buffer
	is.NoErr(json.Compact(&want, []byte(block(t, "docs/http.md", "```json"))))
	is.NoErr(json.Compact(&got, []byte(answer)))
	is.Equal(got.String(), want.String())
}
