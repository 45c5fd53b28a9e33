// Package testscript runs tests that are written as lines of a file.
package testscript

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Section is a part of a file, below a line "== TITLE".
type Section struct {
	Title string
	Lines []string // without indentation, empty lines and those that begin with "#"
}

// Sections returns the sections of a file in their order. It ignores the text above the first one.
func Sections(t testing.TB, file string) []Section {
	t.Helper()
	return sections(read(t, file))
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sections(text string) (all []Section) {
	for _, part := range strings.Split("\n"+text, "\n== ")[1:] {
		title, rest, _ := strings.Cut(part, "\n")
		s := Section{Title: title}
		for line := range strings.Lines(rest) {
			line = strings.TrimLeft(strings.TrimSuffix(line, "\n"), " ")
			if line != "" && line[0] != '#' {
				s.Lines = append(s.Lines, line)
			}
		}
		all = append(all, s)
	}
	return all
}

// Run runs each section of a file as a subtest: once for each of its lines "with A=B | C=D", with
// these values, or once without values. The lines that it passes on are the others.
func Run(
	t *testing.T, file string,
	section func(t *testing.T, values map[string]string, lines []string),
) {
	t.Helper()
	run(t, Sections(t, file), section)
}

var continued = regexp.MustCompile(`\n +`)

// RunContinued is [Run] for files in which a line that begins with a space continues the one before.
// The lines above the first section are the first ones of each.
func RunContinued(
	t *testing.T, file string,
	section func(t *testing.T, values map[string]string, lines []string),
) {
	t.Helper()
	all := sections("== \n" + continued.ReplaceAllString(read(t, file), " "))
	for i := range all[1:] {
		all[1+i].Lines = slices.Concat(all[0].Lines, all[1+i].Lines)
	}
	run(t, all[1:], section)
}

func run(
	t *testing.T, all []Section,
	section func(t *testing.T, values map[string]string, lines []string),
) {
	for _, s := range all {
		var lines, passes []string
		for _, line := range s.Lines {
			if values, is := strings.CutPrefix(line, "with "); is {
				passes = append(passes, values)
			} else {
				lines = append(lines, line)
			}
		}
		for _, pass := range append(passes, "")[:max(1, len(passes))] {
			values := map[string]string{}
			for _, pair := range strings.Split(pass, " | ") {
				if name, value, is := strings.Cut(pair, "="); is {
					values[name] = value
				}
			}
			t.Run(s.Title+" "+pass, func(t *testing.T) { section(t, values, lines) })
		}
	}
}
