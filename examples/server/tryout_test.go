package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
)

// demoAnswers are parts of the answers to the lines that the first start prints, in their order: the lines of
// testdata/demo-answers.txt.
func demoAnswers() (all [][]string) {
	for line := range strings.Lines(string(must(os.ReadFile("testdata/demo-answers.txt")))) {
		all = append(all, strings.Split(strings.TrimSpace(line), " … "))
	}
	return all
}

// needCurl skips the test on a machine without curl.
func needCurl(t *testing.T) {
	t.Helper()
	programtest.Need(t, "curl", "the lines that the server prints")
}

func linesWith(text, prefix string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// paste runs a printed line in a shell that has the printed key.
func paste(t *testing.T, key, line string) string {
	t.Helper()
	answer, err := exec.CommandContext(t.Context(), "sh", "-c", key+"\n"+line).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return string(answer)
}

func TestPrintedLinesWorkAsPrinted(t *testing.T) {
	t.Parallel()
	needCurl(t)
	onBoth(t, func(t *testing.T, flags []string) {
		is := is.New(t)
		server := startServer(t, flags...)
		key, lines := linesWith(server.stdout.String(), "KEY=svcu_"), linesWith(server.stdout.String(), "curl ")
		is.Equal(len(key), 1)
		answers := demoAnswers()
		is.Equal(len(lines), len(answers)) // an answer to expect for each line
		for i, line := range lines {
			answer := paste(t, key[0], line)
			for _, part := range answers[i] {
				if !strings.Contains(answer, part) {
					t.Errorf("%s\nanswered %swhich lacks %s", line, answer, part)
				}
			}
		}
		checkLog(t, server.stderr.String(), len(lines))
		command := "KEY=$(" + word(os.Args[0]) + " key -db " + word(flags[1])
		if len(flags) > 2 {
			command += " -keys " + flags[3]
		}
		is.True(strings.Contains(server.stdout.String(), command+" -user admin)\n"))
		server.wants(t, 200, issueKey(t, append(flags, "-user", "alice")...), "GET", "/ext/svc/me/api-keys", "")
	})
}

// checkLog checks that the log has every request and no secret.
func checkLog(t *testing.T, log string, atLeast int) {
	t.Helper()
	is := is.New(t)
	is.True(strings.Count(log, "msg=\"svc: request\"") >= atLeast)
	is.True(regexp.MustCompile(`method=POST route="POST /ext/svc/admin/template-sources" status=201 request_id=\w+ took=`).MatchString(log))
	secret := regexp.MustCompile(`svc[us]_|Bearer|telegram|laptop`)
	is.Equal(secret.FindString(log), "") // no key, no query, no body
}

func TestPrintedLinesArePasteable(t *testing.T) {
	is := is.New(t)
	server := startServer(t, "-db", newDB(t))
	for _, line := range linesWith(server.stdout.String(), "# ") {
		is.Equal(regexp.MustCompile("[^A-Za-z0-9 .,:#]").FindString(line), "") // interactive zsh takes comments for commands
	}
}

func TestOwnAccessIsTriedToo(t *testing.T) {
	t.Parallel()
	needCurl(t)
	is := is.New(t)
	server := startServer(t, "-db", newDB(t), "-bundle", writeFile(t, "bundle.json", smallBundle))
	key, lines := linesWith(server.stdout.String(), "KEY=svcu_"), linesWith(server.stdout.String(), "curl ")
	is.Equal(len(key), 1)
	is.True(len(lines) > 10)
	for _, line := range lines {
		answer := paste(t, key[0], line)
		if strings.Contains(answer, `"type":"about:blank"`) || answer == "" {
			t.Errorf("%s\nanswered %s", line, answer)
		}
	}
}

func TestWord(t *testing.T) {
	is := is.New(t)
	is.Equal(word("data/svc.db"), "data/svc.db")
	is.Equal(word("my data/it's.db"), `'my data/it'\''s.db'`)
	is.Equal(word(""), "''")
}
