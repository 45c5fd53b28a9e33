package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// TestCommands does what the sections of testdata/commands.txt say, each in a folder of its own.
func TestCommands(t *testing.T) {
	script := string(must(os.ReadFile("testdata/commands.txt")))
	for _, section := range strings.Split(script, "\n== ")[1:] {
		title, lines, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			t.Chdir(t.TempDir())
			p := player{T: t}
			for line := range strings.Lines(lines) {
				if word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); word != "" && word[0] != '#' {
					p.do(word, rest)
				}
			}
		})
	}
}

// player does the lines of a script.
type player struct {
	*testing.T
	command, out, before string // before: what the command before the last one printed
}

func (p *player) do(word, rest string) {
	p.Helper()
	switch word {
	case "serve":
		s := startServer(p.T, "-db", "svc.db")
		p.Setenv("SVC_KEY", s.key())
		p.Setenv("URL", s.base+"/ext/svc")
	case "key":
		p.Setenv("SVC_KEY", issueKey(p.T, "-db", "svc.db", "-user", rest))
	case "file":
		name, text, _ := strings.Cut(rest, " ")
		is.New(p).NoErr(os.WriteFile(name, []byte(text), 0o600))
	case "save": // what the last command printed
		is.New(p).NoErr(os.WriteFile(rest, []byte(p.out), 0o600))
	case "files":
		wantFiles(p.T, ".", strings.Fields(rest)...)
	case ">":
		p.command, p.before = rest, p.out
		p.out = does(p.T, p.words(rest)...)
	case "!":
		args, said, _ := strings.Cut(rest, " => ")
		code, why, _ := strings.Cut(said, " ")
		exits(p.T, must(strconv.Atoi(code)), why, p.words(args)...)
	default:
		p.check(word, rest)
	}
}

// words are those of a line, with variables, \n, and ” around some with spaces.
func (p *player) words(line string) (words []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(os.ExpandEnv(line), -1) {
		words = append(words, strings.ReplaceAll(strings.Trim(word, "'"), `\n`, "\n"))
	}
	return words
}

// check checks what the last command printed.
func (p *player) check(how, want string) {
	p.Helper()
	good := false
	switch how {
	case "=": // all of it
		good = p.out == want+"\n"
	case "~":
		good = regexp.MustCompile(`(?m)^` + want).MatchString(p.out)
	case "has":
		good = strings.Contains(p.out, want)
	case "lacks":
		good = !strings.Contains(p.out, want)
	case "same":
		good = p.out == p.before
	default:
		p.Fatalf("%s is no word of a script", how)
	}
	if !good {
		p.Errorf("%s: %s %s: it prints\n%s", p.command, how, want, p.out)
	}
}
