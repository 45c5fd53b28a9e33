package httpapi_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/testscript"
)

// script is one run of a section.
type script struct {
	*site
	vars         names
	ticks, shown int // shown: events up to the last line "events"
}

var outcome = regexp.MustCompile(` -> (\d{3})(?: (.*))?$`)

func TestScripts(t *testing.T) {
	for _, file := range must(filepath.Glob("testdata/*.txt")) {
		testscript.RunContinued(t, file, func(t *testing.T, values map[string]string, lines []string) {
			t.Parallel()
			if slices.Contains(lines, "site rated") {
				synctest.Test(t, func(t *testing.T) { runScript(t, file, values, lines) })
			} else {
				runScript(t, file, values, lines)
			}
		})
	}
}

func runScript(t *testing.T, file string, values names, lines []string) {
	s := &script{vars: values}
	s.vars["t0"] = beginText
	for _, line := range lines {
		if name, is := strings.CutPrefix(line, "site "); is {
			s.site = sites[s.vars.expand(name)](t)
			continue
		} else if s.site == nil && !strings.HasPrefix(line, "let ") {
			s.site = newSite(t)
		}
		if err := s.obey(line); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func (s *script) obey(line string) error {
	if answered := outcome.FindStringSubmatch(line); answered != nil {
		return s.request(strings.TrimSuffix(line, answered[0]), answered[1], answered[2])
	}
	verb, rest, _ := strings.Cut(s.vars.expand(line), " ")
	words := append(strings.SplitN(rest, " ", 3), "", "")
	switch verb {
	case "let":
		if _, bound := s.vars[words[0]]; !bound {
			s.vars[words[0]] = strings.TrimPrefix(rest, words[0]+" ")
		}
	case "tick":
		s.ticks++
		s.vars[fmt.Sprint("t", s.ticks)] = s.clock.tick()
	case "wait":
		s.clock.Advance(must(time.ParseDuration(rest)))
	case "sleep":
		time.Sleep(must(time.ParseDuration(rest)))
	case "secret":
		s.keepSecret(rest)
	case "plant":
		s.store.Plant(func(call string) error {
			if words[0] == "*" || words[0] == call {
				return map[string]error{"unavailable": svc.ErrUnavailable, "internal": errors.New("on fire")}[words[1]]
			}
			return nil
		})
	case "apply":
		s.apply(rest)
	case "key":
		var id string
		var rate svc.Rate
		_, _ = fmt.Sscan(words[2], &id, &rate.PerSecond, &rate.Burst) // or it has none
		key := s.keyOf(svc.Identity{Kind: svc.Kind(words[1]), ID: id}, svc.NewAPIKey{Rate: rate})
		s.vars[words[0]], s.vars[words[0]+"_id"] = key, key[5:21]
	case "events", "asked":
		have := len(s.market.requests())
		if verb == "events" {
			all := strings.Count(s.said.String(), "Action:")
			have, s.shown = all-s.shown, all
		}
		if rest != "" && fmt.Sprint(have) != rest {
			return fmt.Errorf("%s: %d, want %s", verb, have, rest)
		}
	default:
		return s.sources(verb, rest, words)
	}
	return nil
}

// sources does the lines about sources.
func (s *script) sources(verb, rest string, words []string) error {
	switch verb {
	case "offer":
		s.market.offer(words[0], words[1], words[2])
	case "entry":
		var content svc.Content
		if err := json.Unmarshal([]byte(strings.TrimPrefix(rest, words[0]+" ")), &content); err != nil {
			return err
		}
		s.market.put(words[0], content)
	case "problem":
		bad := svc.CatalogProblem{Index: must(strconv.Atoi(words[0])), ID: strings.Trim(words[1], "-"), Reason: words[2]}
		s.market.bad = append(s.market.bad, bad)
	case "fail":
		s.market.fail(sourceFaults[words[0]])
		s.market.remembers = words[1] == "stale"
	case "withdraw":
		s.market.withdraw(rest)
	case "token":
		if asked := s.market.requests(); len(asked) == 0 || string(asked[len(asked)-1].Token) != rest {
			return errors.New("the source was not asked with its token")
		}
	default:
		return fmt.Errorf("neither a directive nor a request with an answer: %s", verb)
	}
	return nil
}

// request sends "caller METHOD target [Header:value …] [body]".
func (s *script) request(line, status, want string) error {
	words := append(strings.SplitN(s.vars.expand(line), " ", 4), "")
	bearer := strings.TrimPrefix(words[0], "-")
	if bearer != "" && !strings.HasPrefix(bearer, "svc") {
		bearer = "session-of-" + bearer
	}
	headers, body := cutHeaders(words[3])
	name, password, basic := strings.Cut(headers.Get("Basic"), ":")
	headers.Del("Basic")
	a := s.as(bearer).sendWith(words[1], words[2], body, func(r *http.Request) {
		if maps.Copy(r.Header, headers); basic {
			credentials := base64.StdEncoding.EncodeToString([]byte(name + ":" + password))
			r.Header.Add("Authorization", "Basic "+credentials)
		}
	})
	wanted, want := cutHeaders(want)
	err := s.vars.differ("status", status, fmt.Sprint(a.status))
	for name := range wanted {
		err = cmp.Or(err, s.vars.differ(name, wanted.Get(name), a.header.Get(name)))
	}
	if err == nil {
		err = a.differs(s.vars.expand(want), s.vars)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\nhave %d %s", line, err, a.status, a.short())
	}
	return nil
}

// raw returns the lines of a part of testdata/requests.raw, each cut at its first space.
func raw(title string, vars names) (all [][2]string) {
	_, part, _ := strings.Cut(string(must(os.ReadFile("testdata/requests.raw"))), "\n== "+title+"\n")
	for line := range strings.Lines(part) {
		first, text, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !found {
			break
		}
		if text[0] == '"' {
			text = must(strconv.Unquote(text))
		}
		all = append(all, [2]string{first, vars.expand(text)})
	}
	return all
}
