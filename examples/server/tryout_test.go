package main

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode"

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
	inEach(t, func(t *testing.T, flags []string) {
		is, server := parallel(t), startServer(t, flags...)
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
		command := "KEY=$(" + word(os.Args[0]) + " key -db " + word(flags[1]) + " -keys " + flags[3]
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

// hostile has an escape sequence, a C1 control, a line that looks like one of ours, and characters that turn others or are not seen.
const hostile = "x\x1b[1A\x1b[2K\u009b31m\r\nroot\tadmin\u202e\u200b\U000e0041"

// No command for people prints what a terminal obeys, whoever has written it into a row.
func TestNoRowControlsATerminal(t *testing.T) {
	t.Parallel()
	quoted := string(must(json.Marshal(hostile)))
	statement := `{"effect": "allow", "actions": [` + quoted + `], "banks": [` + quoted + `, "b"], "llm_model": ` + quoted + `}`
	policy := `{"version": "2026-03-24", "statements": [` + statement + `]}`
	bank := `{"version": "2026-03-24", "public_access": {"overrides": [{"scope": "topic", "value": ` + quoted + `, "actions": ["bank:recall"]}]}}`
	bundle := func(more string) string {
		return writeFile(t, "bundle.json", `{"users": [{"id": "u", "display_name": `+quoted+`, "email": `+quoted+`}],
			"groups": [{"id": "g", "display_name": `+quoted+`}],
			"service_accounts": [{"id": "a", "owner_user_id": "u", "display_name": `+quoted+`}],
			"policies": [{"id": "p", "display_name": `+quoted+`, "document": `+policy+`}],
			"bank_policies": [{"bank_id": "b", "document": `+bank+`}],
			"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "u"}`+more+`]}`)
	}
	db := []string{"-db", newDB(t)}
	is.New(t).NoErr(startServer(t, db...).stop(t))
	does(t, append(db, "apply", bundle(""))...)
	does(t, append(db, "key", "issue", "-user", "u", "-description", hostile)...)
	tests := writeFile(t, "tests.json", `{"tests": [{"user_id": "u", "action": `+quoted+`, "bank": "b", "allowed": false}]}`)
	changed := bundle(`, {"policy_id": "p", "principal_type": "group", "principal_id": "g"}`)
	shown := 0
	for _, args := range [][]string{
		{"user", "list"}, {"user", "show", "u"}, {"group", "list"}, {"group", "show", "g"}, {"account", "list"},
		{"account", "show", "a"}, {"policy", "list"}, {"policy", "show", "p"}, {"attachment", "list"}, {"bank", "list"},
		{"bank", "show", "b"}, {"key", "list"}, {"audit"}, {"lint", "-known", "y"}, {"who-can", "-bank", "b"},
		{"what-can", "-user", "u"}, {"why", "-user", "u", "-bank", "b", "-action", hostile}, {"test", tests},
		{"diff", "-prune", writeFile(t, "empty.json", `{"users": [{"id": "u"}]}`)}, {"diff", changed},
		{"apply", writeFile(t, "wrong.json", `{`+quoted+`: 1}`)},
	} {
		var stdout, stderr output
		exitCode(run(t.Context(), append(db, args...), &stdout, &stderr), &stderr)
		text := stdout.String() + stderr.String()
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && (unicode.In(r, unicode.Cc, unicode.Cf))
		}); i >= 0 || strings.Contains(stdout.String(), "\nroot") {
			t.Errorf("%s: %q", args, text)
		}
		if strings.Contains(text, `x\u001b[1A`) {
			shown++
		}
	}
	is.New(t).True(shown >= 12)
}

// diagnosed returns the files of the archive that a command line writes.
func diagnosed(t *testing.T, args ...string) (parts map[string]string, whole []byte) {
	t.Helper()
	var out bytes.Buffer
	is.New(t).NoErr(run(t.Context(), append(args, "diagnose", "-"), &out, io.Discard))
	archive := must(zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len())))
	parts = map[string]string{}
	for _, file := range archive.File {
		parts[file.Name] = string(must(io.ReadAll(must(file.Open()))))
	}
	return parts, out.Bytes()
}

// The archive has figures, and no secret, key, pepper or token in any of its bytes.
func TestDiagnosis(t *testing.T) {
	inEach(t, func(t *testing.T, flags []string) {
		is, db, keys := is.New(t), flags[1], flags[3]
		s := startServer(t, flags...)
		key := s.key()
		s.wants(t, 201, key, "POST", "/ext/svc/admin/template-sources",
			`{"url":"`+s.base+`/catalogue","alias":"a","auth_token":"token-of-a-source"}`)
		if isPostgres(db) {
			address := must(url.Parse(db))
			address.User = url.UserPassword(address.User.Username(), "password-of-the-database")
			db = address.String()
		}
		t.Setenv("SVC_KEY", key)
		t.Setenv("PGPASSWORD", "password-of-the-environment")
		t.Setenv("SVC_SOURCES_USER_AGENT", "agent password-of-the-environment "+key)
		parts, whole := diagnosed(t, "-db", db, "-keys", keys, "-addr", strings.TrimPrefix(s.base, "http://"))
		var figures struct {
			Rows      map[string]int64
			Migration int
			Service   string
		}
		is.NoErr(json.Unmarshal([]byte(parts["database.json"]), &figures))
		is.Equal([]int64{figures.Rows["svc_users"], figures.Rows["svc_api_keys"]}, []int64{3, 1})
		is.True(figures.Migration > 1 && figures.Service == "ok")
		is.True(strings.Contains(parts["server.json"], `"health": "ok"`))
		is.True(strings.Contains(parts["config.toml"], "[postgres]"))
		is.True(strings.Contains(parts["program.json"], `"version"`))
		is.True(strings.Contains(parts["goroutines.txt"], "goroutine 1"))

		secrets := must(readSecrets(keys, nil))
		hidden := []string{
			key, key[len(key)-40:], "token-of-a-source", "password-of-the-database", "password-of-the-environment",
		}
		for _, p := range secrets.Pairs {
			for _, secret := range [][]byte{p.Pepper, p.SealingKey} {
				hidden = append(hidden, string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret))
			}
		}
		for name, text := range parts {
			for _, secret := range hidden {
				if strings.Contains(text, secret) || bytes.Contains(whole, []byte(secret)) {
					t.Errorf("%s has a secret", name)
				}
			}
		}
		is.NoErr(s.stop(t))
	})
}

// A diagnosis also helps where nothing works. It is for its owner alone, and replaces no file.
func TestDiagnosisOfNothing(t *testing.T) {
	is := is.New(t)
	t.Chdir(t.TempDir())
	does(t, "diagnose", "d.zip")
	is.Equal(must(os.Stat("d.zip")).Mode(), os.FileMode(0o600))
	is.True(run(t.Context(), []string{"diagnose", "d.zip"}, io.Discard, io.Discard) != nil)
	wantFiles(t, ".", "d.zip")
	parts, _ := diagnosed(t, "-db", "postgres://nobody:secret-word@127.0.0.1:1/none")
	is.True(strings.Contains(parts["database.json"], "127.0.0.1"))
	is.True(!strings.Contains(parts["database.json"], "secret-word"))
}

// A file that cannot be written whole does not stay: the next try makes it.
func TestNoPartOfAFileStays(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "d.zip")
	for _, disk := range []error{syscall.ENOSPC, nil} {
		err := writeWhole(path, func(file *os.File) error {
			_, err := file.WriteString("a part")
			return errors.Join(err, disk)
		})
		is.Equal(errors.Is(err, syscall.ENOSPC), disk != nil)
		_, missing := os.Stat(path)
		is.Equal(missing == nil, disk == nil)
	}
}
