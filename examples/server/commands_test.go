package main

import (
	"cmp"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/testscript"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// TestCommands does what the sections of testdata/commands.txt say, each in a folder of its own.
func TestCommands(t *testing.T) {
	testscript.Run(t, "testdata/commands.txt", func(t *testing.T, values map[string]string, lines []string) {
		t.Chdir(t.TempDir())
		p := player{T: t}
		for name, value := range values {
			if strings.Contains(value, "$POSTGRES") {
				p.Setenv("POSTGRES", pgtest.Database(t))
			}
			if strings.Contains(value, "$POOLED") {
				p.Setenv("POOLED", pgtest.Pooled(t))
			}
			p.Setenv(name, value)
		}
		for _, line := range lines {
			p.Log(line)
			word, rest, _ := strings.Cut(line, " ")
			p.do(word, rest)
		}
	})
}

// player does the lines of a script.
type player struct {
	*testing.T
	server               *running
	command, out, before string    // before: what the command before the last one printed
	input                io.Reader // of the next command, which is a process of its own
}

func (p *player) do(word, rest string) {
	p.Helper()
	first, more, _ := strings.Cut(rest, " ")
	switch word {
	case "serve":
		p.server = startServer(p.T, append([]string{"-db", "svc.db"}, p.words(rest)...)...)
		p.before, p.out = p.out, p.server.stdout.String()
		p.Setenv("URL", p.server.base+"/ext/svc")
		if key := p.server.key(); key != "" {
			p.Setenv("SVC_KEY", key)
		}
	case "stop":
		is.New(p).NoErr(p.server.stop(p.T))
	case "asks":
		request := append(strings.SplitN(expanded(more), " ", 3), "")
		p.before, p.out = p.out, p.server.wants(p.T, must(strconv.Atoi(first)), os.Getenv("SVC_KEY"), request[0], request[1], request[2])
	case "key":
		p.Setenv("SVC_KEY", issueKey(p.T, "-db", "svc.db", "-user", rest))
	case "set":
		p.Setenv(expanded(first), expanded(more))
	case "take", "keep":
		found := regexp.MustCompile(more).FindStringSubmatch(p.out)
		if found == nil {
			p.Fatalf("%s: it prints no %s: %s", p.command, more, p.out)
		}
		if p.Setenv(first, found[len(found)-1]); word == "keep" {
			p.out = found[len(found)-1]
		}
	case "input":
		p.input = strings.NewReader(rest)
	case "sql":
		execute(p.T, "svc.db", expanded(rest))
	case ">", "!", "?":
		p.runs(word, rest)
	default:
		if !p.changesFiles(word, rest) {
			p.check(word, rest)
		}
	}
}

// changesFiles does what a word does with a file. It returns false when the word is another.
func (p *player) changesFiles(word, rest string) bool {
	p.Helper()
	first, more, _ := strings.Cut(rest, " ")
	switch word {
	case "file":
		is.New(p).NoErr(os.WriteFile(first, []byte(strings.ReplaceAll(more, `\n`, "\n")), 0o600))
	case "save": // what the last command printed
		is.New(p).NoErr(os.WriteFile(rest, []byte(p.out), 0o600))
	case "copy":
		is.New(p).NoErr(os.WriteFile(more, must(os.ReadFile(first)), 0o600))
	case "remove":
		is.New(p).NoErr(os.Remove(rest))
	case "files":
		wantFiles(p.T, ".", strings.Fields(rest)...)
	default:
		return false
	}
	return true
}

func (p *player) runs(word, rest string) {
	p.Helper()
	args, said, _ := strings.Cut(rest, " => ")
	code, why, _ := strings.Cut(cmp.Or(expanded(said), "0"), " ")
	want := must(strconv.Atoi(code))
	if word == "!" && p.input == nil {
		exits(p.T, want, why, p.words(args)...)
		return
	}
	p.command, p.before = args, p.out
	switch {
	case p.input != nil:
		cmd := command(p.T, p.words(args)...)
		cmd.Stdin, p.input = p.input, nil
		text, _ := cmd.CombinedOutput()
		is.New(p).Equal(cmd.ProcessState.ExitCode(), want)
		p.out = string(text)
		p.check("has", why)
	case word == ">":
		p.out = does(p.T, p.words(args)...)
	default:
		var stdout output
		err := run(p.Context(), p.words(args), &stdout, &output{})
		if p.out = stdout.String(); exitCode(err, &output{}) != want || !strings.Contains(err.Error(), why) {
			p.Errorf("%s: %v, want %s", args, err, said)
		}
	}
}

// expanded replaces variables, which may have others in them.
func expanded(text string) string { return os.ExpandEnv(os.ExpandEnv(text)) }

// words are those of a line, with variables, \n, and ” around some with spaces.
func (p *player) words(line string) (words []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(expanded(line), -1) {
		words = append(words, strings.ReplaceAll(strings.Trim(word, "'"), `\n`, "\n"))
	}
	return words
}

// check checks what the last command printed.
func (p *player) check(how, want string) {
	p.Helper()
	want = expanded(want)
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
	case "logs", "hides":
		good = strings.Contains(p.server.stderr.String(), want) == (how == "logs")
	case "is": // what a file has
		good = p.out == string(must(os.ReadFile(want)))
	default:
		p.Fatalf("%s is no word of a script", how)
	}
	if !good {
		p.Errorf("%s: %s %s: it prints\n%s", p.command, how, want, p.out)
	}
}
