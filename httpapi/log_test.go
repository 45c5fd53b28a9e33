package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/extsvc/svc"
)

// records are the lines of a log, each of which must be one JSON object, and hold no control character.
func records(t *testing.T, log string) (all []map[string]any) {
	t.Helper()
	if !utf8.ValidString(log) {
		t.Error("the log is not UTF-8")
	}
	for line := range strings.Lines(log) {
		if at := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' }); at >= 0 {
			t.Errorf("a control character at %d of %q", at, clip(line))
		}
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil || !strings.HasSuffix(line, "}\n") {
			t.Errorf("no record: %q: %v", clip(line), err)
		}
		all = append(all, record)
	}
	return all
}

// Each request at which the server is at fault leaves one record, which a program can read, whatever the request was and whatever the
// fault says; others leave none.
func TestOneRecordOfEachFault(t *testing.T) {
	log := &record{}
	var fail func() error
	s := newSite(t, func(u *setup) {
		u.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return svc.Principal{}, fail() })
		u.Options.Logger = slog.New(slog.NewJSONHandler(log, nil))
	})
	s.harden(nil)
	const bearer = "session-canary"
	key := s.key("alice")
	hostile := "\r\n{\"level\":\"INFO\"}\n\x00\x1b[31m\x7f\xff\u2028\u202e\"\\" + key
	faults := map[string]func() error{
		"error": func() error { return errors.New(hostile + " " + bearer) }, "panic": func() error { panic(hostile + " " + bearer) },
		"panic of bytes": func() error { panic([]byte(hostile)) }, "panic of an error": func() error { panic(fmt.Errorf("%s: %w", hostile, io.EOF)) },
		"unauthenticated": func() error { return fmt.Errorf("%s: %w", hostile, svc.ErrUnauthenticated) },
	}
	requests := []string{
		list, "G\x7f\xffT" + list[3:], strings.Repeat("M", 8<<10) + list[3:], key + list[3:], "GET /ext/svc/%0d%0a%00%1b%5b31m\xff HTTP/1.1", "GET /ext/svc/me/" + key + " HTTP/1.1",
		"GET /ext/svc/me/api-keys?q=%0a" + key + " HTTP/1.1", "GET http://%0a@h/ext/svc/x HTTP/1.1", "GET /ext/svc/\u2028\u202e{}\" HTTP/1.1", "OPTIONS /ext/svc/" + strings.Repeat("%0A", 5000) + " HTTP/1.1",
	}
	for name, fault := range faults {
		fail = fault
		for _, first := range requests {
			was := len(records(t, log.String()))
			failed := 0
			for _, a := range s.talk(s.lines(first, bearer, "X-Request-Id: \xff\u2028\t", "User-Agent: "+key+"\"\\", "Content-Length: 0")) {
				if a.status >= 500 {
					failed++
				}
				if strings.Contains(string(a.body), bearer) || strings.Contains(string(a.body), key) || name == "unauthenticated" && a.status >= 500 {
					t.Errorf("%s: %d %s", a.request, a.status, a.body)
				}
			}
			all := records(t, log.String())[was:]
			if len(all) != failed {
				t.Errorf("%s at %q: %d records of %d faults", name, clip(first), len(all), failed)
			}
			for _, record := range all {
				if record["msg"] != "svc: request failed" || record["level"] != "ERROR" || record["status"] == nil || record["code"] == nil || record["error"] == "" {
					t.Errorf("%v", record)
				}
			}
		}
	}
	if n := len(records(t, log.String())); n < 4*8 {
		t.Errorf("only %d records", n)
	}
	for _, secret := range []string{bearer, key} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}
