package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// block returns the README's lines between a line that starts with fence and the end of the block.
func block(t *testing.T, fence string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), fence+"\n")
	inside, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("the README has no block %q", fence)
	}
	return inside
}

// TestReadmeProgram: the program in the README equals the tested program of examples/embed.
func TestReadmeProgram(t *testing.T) {
	is := is.New(t)
	program, err := os.ReadFile("../embed/main.go")
	is.NoErr(err)
	_, code, _ := strings.Cut(string(program), "package main\n")
	is.Equal(block(t, "```go"), "package main\n"+code)
}

// TestReadmeCommands: each of the first two commands has a block of its own, ready to copy.
func TestReadmeCommands(t *testing.T) {
	is := is.New(t)
	is.Equal(block(t, "## Try it\n\n```sh"), "go run ./examples/server\n")
	is.Equal(block(t, "run with\n\n```sh"), "go test work\n")
}

// TestReadmeAnswer: the server answers the first line as the README shows.
func TestReadmeAnswer(t *testing.T) {
	is := is.New(t)
	server := startServer(t, "-db", newDB(t))
	line := linesWith(block(t, "`support`:\n\n```sh"), "curl")[0]
	is.Equal(line, strings.ReplaceAll(linesWith(server.stdout.String(), "curl")[0], server.base, "http://127.0.0.1:8080"))

	answer := paste(t, "KEY="+server.key(), strings.ReplaceAll(line, "http://127.0.0.1:8080", server.base))
	var want, got bytes.Buffer
	is.NoErr(json.Compact(&want, []byte(block(t, "```json"))))
	is.NoErr(json.Compact(&got, []byte(answer)))
	is.Equal(got.String(), want.String())
}
