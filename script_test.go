package svc_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/calltest"
	"github.com/extsvc/svc/internal/testscript"
	"github.com/extsvc/svc/parameter"
)

// script is a section of testdata/*.txt with a host of its own. testdata/README.md describes the lines.
type script struct {
	*host
	t     *testing.T
	ctx   context.Context // of a transaction, or of the test
	clock *clock
	show  calltest.Shower
	names map[string]string
	fed   int64 // the generation of the last line "feed"
}

// site is how the host of a section is set up.
type site struct {
	edit   func(*svc.Config)
	begins []string // lines before those of the section
}

var (
	hasTemplate = []string{
		"offer $acme x $x1", `admin Sources.Register {"URL": "$acme"}`,
		`admin Templates.Install {"TemplateID": "x", "SourceName": "acme"}`, "events", "asked",
	}
	merges = func(edits svc.LocalEdits) site {
		return site{func(c *svc.Config) { c.Templates.LocalEdits = edits }, hasTemplate}
	}
	sites = map[string]site{
		"with a template": {nil, hasTemplate}, "edits": merges(""), "edits conflict": merges(svc.EditsConflict),
		"edits overwrite": merges(svc.EditsOverwrite), "edits merge": merges(svc.EditsMerge),
		"personal staff": {nil, []string{"apply $personal", "events"}}, "rights": {nil, []string{"apply $rights", "events"}},
		"a host that forbids a version": {judged, nil},
		"a host that judges":            {func(c *svc.Config) { judged(c); c.Templates.LocalEdits = svc.EditsMerge }, hasTemplate},
		"alice has left":                {knows(func(id string) (bool, error) { return id != "alice", nil }), nil},
		"no directory":                  {knows(func(string) (bool, error) { return false, errors.New("is down") }), nil},
		"no entry in a directory":       {knows(func(string) (bool, error) { return false, failures["no entry"] }), nil},
		"interrupted":                   {func(c *svc.Config) { c.Store = newPausing(c.Store.(svc.FullStore)) }, nil},
		"without the optional roles":    {withBareStore, nil},
		"read-only":                     {func(c *svc.Config) { c.ReadOnly = true }, nil},
		"writable":                      {func(c *svc.Config) { c.ReadOnly = false }, nil},
		"without a pepper":              {func(c *svc.Config) { c.Keys.Peppers = nil }, nil},
		"no parameters":                 {func(c *svc.Config) { c.Parameters = []parameter.Definition{} }, nil},
		"without a marketplace":         {func(c *svc.Config) { c.Sources.Marketplace = nil }, nil},
		"without a key of sources":      {func(c *svc.Config) { c.Sources.SealingKey = nil }, nil},
		"with a key of sources":         {func(c *svc.Config) { c.Sources.SealingKey = keyA }, nil},
		"records":                       {func(c *svc.Config) { keeping(c); importing(c) }, nil},
		"no records":                    {func(c *svc.Config) { c.Events.Keep = false }, nil},
		"prefixes":                      prefixed(nil, nil), "prefixes swapped": prefixed([]string{"svcs_"}, []string{"svcu_"}),
		"prefixes with earlier ones":     prefixed([]string{"older_", "svcu_"}, []string{"svcs_"}),
		"bank maker":                     {func(c *svc.Config) { c.Templates.Banks = bankMaker{} }, nil},
		"three keys":                     {limited(3), nil},
		"two keys that have not expired": {func(c *svc.Config) { limited(2)(c); c.Keys.IgnoreExpired = true }, nil},
	}
)

// judged forbids some words in a manifest, and more.
func judged(c *svc.Config) {
	c.Templates.ValidateManifest = func(m json.RawMessage) error {
		switch text := string(m); {
		case strings.Contains(text, "forbidden"):
			return errors.New("holds what is forbidden")
		case strings.Contains(text, `"a"`) && strings.Contains(text, `"b"`):
			return errors.New("must not have both a and b")
		case strings.Contains(text, "many"):
			first := &svc.Error{Field: "/steps/0/bank", Message: "is no bank of ours"}
			return errors.Join(first, fmt.Errorf("steps: %w", &svc.Error{Message: "has too many steps"}), errors.New("is odd"))
		}
		return nil
	}
}

func knows(known func(id string) (bool, error)) func(*svc.Config) {
	return func(c *svc.Config) {
		importing(c)
		c.Users.Known = func(_ context.Context, id string) (bool, error) { return known(id) }
	}
}

// failures are how a source can fail.
var failures = map[string]error{
	"": nil, "timeout": context.DeadlineExceeded, "cancelled": context.Canceled,
	"answered 500": &svc.Error{Code: svc.CodeSourceFailed, Message: "answered 500"},
	"no entry":     &svc.Error{Code: svc.CodeNotFound, Message: "no such entry"},
	"bad entry":    &svc.Error{Code: svc.CodeSourceFailed, Message: "entry 3 is bad", Err: fmt.Errorf("no name: %w", svc.ErrBadEntry)},
	"busy":         &svc.Error{Code: svc.CodeUnavailable, Message: "waited too long", Err: fmt.Errorf("busy: %w", svc.ErrSourceWaits)},
}

// prefixed has other prefixes of keys, and earlier ones of users and of accounts.
func prefixed(users, accounts []string) site {
	return site{func(c *svc.Config) {
		c.Keys.UserPrefix, c.Keys.ServiceAccountPrefix = "acmeu_", "acmes_"
		c.Keys.EarlierUserPrefixes, c.Keys.EarlierServiceAccountPrefixes = users, accounts
	}, nil}
}

func TestScripts(t *testing.T) {
	for _, file := range must(filepath.Glob("testdata/*.txt")) {
		testscript.RunContinued(t, file, func(t *testing.T, values map[string]string, lines []string) {
			s := &script{t: t, ctx: t.Context(), clock: newClock(), names: values}
			s.show.Began = s.clock.now()
			maps.Copy(s.names, map[string]string{
				"acme": acme, "elsewhere": elsewhere, "personal": personalStaff(), "v": `{"version":"1"}`,
				"x1": `{"Name": "X", "Tags": ["t"], "Manifest": {"version":"1"}}`,
				"x2": `{"Name": "X", "Tags": ["t"], "Manifest": {"version":"2"}}`,
			})
			zone := time.FixedZone("elsewhere", 3600)
			edits := []func(*svc.Config){func(c *svc.Config) { // stores get microseconds of UTC
				c.Now = func() time.Time { return s.clock.now().Add(999).In(zone) }
			}}
			for i, line := range lines {
				if name, is := strings.CutPrefix(line, "site "); is {
					at, named := sites[strings.TrimSpace(s.expand(name))]
					if !named {
						t.Fatalf("%s: there is no %s", file, line)
					}
					if at.edit != nil {
						edits = append(edits, at.edit)
					}
					lines = slices.Concat(at.begins, lines[:i], lines[i+1:])
					break
				}
			}
			s.host = newHost(t, edits...)
			for _, line := range lines {
				if err := s.obey(line); err != nil {
					t.Fatalf("%s: %s\n%v", file, line, err)
				}
			}
		})
	}
}

var errUndone = errors.New("undone")

var (
	scriptTime     = regexp.MustCompile(`\$t([+-]\w+)?\b`)
	scriptDuration = regexp.MustCompile(`\$\((-?\d[^()*]*)\)`)
)

// expand puts values for names, times "$t+1h", durations "$(1h)" and repetitions "$(x*100)".
func (s *script) expand(text string) string {
	text = scriptTime.ReplaceAllStringFunc(text, func(at string) string {
		since := must(time.ParseDuration(cmp.Or(at[len("$t"):], "0s")))
		return s.show.Began.Add(since).Format(time.RFC3339Nano)
	})
	text = scriptDuration.ReplaceAllStringFunc(text, func(d string) string {
		return fmt.Sprint(int64(must(time.ParseDuration(d[2 : len(d)-1]))))
	})
	return testscript.Expand(text, func(name string) (string, bool) {
		if value, named := s.names[name]; named {
			return s.expand(value), true
		}
		return string(must(os.ReadFile("testdata/" + name + ".json"))), true // a bundle
	})
}

func (s *script) obey(line string) error {
	line, want, answered := strings.Cut(line, " -> ")
	if let, is := strings.CutPrefix(line, "let "); is && !strings.Contains(let, " = ") {
		name, value, _ := strings.Cut(let, " ")
		s.names[name] = value
		return nil
	}
	have, err := s.do(s.expand(line))
	long := have
	if err != nil && answered {
		have, long, err = calltest.Refusal(err), fmt.Sprintf("%s: %v", svc.ErrorCode(err), err), nil
	}
	if want = s.expand(want); err == nil && answered && !testscript.Like(have, want) && !testscript.Like(long, want) {
		return fmt.Errorf("have %s\nwant %s", have, want)
	}
	return err
}

// do does what a line says, and returns what it shows.
func (s *script) do(line string) (shown string, err error) {
	verb, rest, _ := strings.Cut(line, " ")
	words := append(strings.SplitN(rest, " ", 3), "", "")
	switch verb {
	case "let":
		return s.call(words[0], strings.TrimPrefix(rest, words[0]+" = "))
	case "wait":
		s.clock.in(must(time.ParseDuration(rest)))
	case "apply":
		s.apply(s.t, rest)
	case "write": // past the service
		rows, err := s.bundle(rest)
		if err != nil {
			return "", err
		}
		s.write(s.t, rows)
	case "restart":
		config := s.config
		if config.Store = s.store; rest != "" {
			sites[rest].edit(&config)
		}
		s.host = &host{Service: newHost(s.t, func(c *svc.Config) { *c = config }).Service, config: config, store: s.store, market: s.market}
	case "during":
		s.market.during = func() {
			s.market.during = nil
			_, err := s.all(rest)
			is.New(s.t).NoErr(err)
		}
	case "before":
		store, other := s.config.Store.(*pausing), *s
		other.host = &host{Service: newHost(s.t, func(c *svc.Config) { c.Store = s.store }).Service, store: s.store}
		store.before = func() {
			_, err := other.all(rest)
			is.New(s.t).NoErr(err)
			s.fed = other.fed
		}
	case "tx", "undone":
		err = s.store.Atomically(s.ctx, func(ctx context.Context, tx svc.Store) (err error) {
			in := *s
			in.ctx, in.host = ctx, &host{Service: s.WithTx(tx), store: tx, market: s.market}
			if shown, err = in.all(rest); err == nil && verb == "undone" {
				err = errUndone
			}
			return err
		})
		if err == nil || errors.Is(err, errUndone) {
			_, err = s.do("restart") // its caches know nothing of the transaction yet
		}
	case "feed":
		targets, renamed := s.told(s.t, s.fed)
		s.fed, shown = s.generation(s.t), strings.TrimSpace(targets+"; "+renamed)
	case "lint":
		return s.lint(rest)
	case "offer":
		var content svc.Content
		err = json.Unmarshal([]byte(words[2]), &content)
		s.market.put(words[0], words[1], content)
	case "withdraw":
		s.market.remove(words[0], words[1])
	case "fail":
		code, is := strings.CutPrefix(rest, "with the code ")
		if s.market.err = failures[rest]; is {
			code, cause, _ := strings.Cut(code, " ")
			s.market.err = fmt.Errorf("ask: %w", &svc.Error{Code: svc.Code(code), Field: "/a", Message: "it is ours", Err: failures[cause]})
		} else if rest != "" && s.market.err == nil {
			s.market.err = errors.New(rest)
		}
	case "stale":
		s.market.catalog.Failure = &svc.Error{Code: svc.CodeSourceFailed, Message: rest}
	case "catalog":
		var catalog svc.Catalog
		err = json.Unmarshal([]byte(rest), &catalog)
		offering(s.host, catalog.Entries...)
		if !catalog.FetchedAt.IsZero() {
			s.market.catalog.FetchedAt = catalog.FetchedAt
		}
		if s.market.catalog.Renames = catalog.Renames; catalog.Problems != nil {
			s.market.catalog.Problems = slices.Grow(catalog.Problems, 20) // which others share
		}
	case "asked":
		shown = fmt.Sprint(len(s.market.asked))
		s.market.asked = nil
	case "events":
		shown = strings.ReplaceAll(strings.Join(append(s.actions(), ""), ", "), " by , ", " by host, ")
		shown = cmp.Or(strings.TrimSuffix(shown, ", "), "none")
	case "revision":
		var content svc.Content
		err = json.Unmarshal([]byte(strings.TrimPrefix(rest, words[0]+" ")), &content)
		s.names[words[0]] = revision(s.t, content)
	default:
		return s.call("", line)
	}
	return shown, err
}

// all does "LINE; LINE; …", and returns what the last of them shows.
func (s *script) all(lines string) (shown string, err error) {
	for _, line := range strings.Split(lines, "; ") {
		if shown, err = s.do(line); err != nil {
			return "", err
		}
	}
	return shown, nil
}

func (s *script) bundle(text string) (svc.Bundle, error) {
	args, err := calltest.Arguments(reflect.TypeFor[func(svc.Bundle)](), 0, []string{text})
	if err != nil {
		return svc.Bundle{}, err
	}
	return args[0].Interface().(svc.Bundle), nil
}

// lint is "BUNDLE ACTIONS".
func (s *script) lint(line string) (shown string, err error) {
	texts, err := calltest.Split(line)
	if err != nil {
		return "", err
	}
	var known []string
	if len(texts) > 1 {
		err = json.Unmarshal([]byte(texts[1]), &known)
	}
	rows, failed := s.bundle(texts[0])
	shown, _ = s.show.Results([]reflect.Value{reflect.ValueOf(svc.Lint(rows, known))}, nil)
	return shown, errors.Join(err, failed)
}

// call is "CALLER NOUN.METHOD ARGUMENT ARGUMENT … @ FIELD FIELD …". A name gets the key, the entity
// tag of the row or else the text that it shows.
func (s *script) call(name, line string) (shown string, err error) {
	line, fields, chosen := strings.Cut(line, " @ ")
	who, line, _ := strings.Cut(line, " ")
	by, err := s.principal(who)
	if err != nil {
		return "", err
	}
	results, err := calltest.Call(s.ctx, s.Service, by, line)
	if err != nil {
		return "", err
	}
	if !chosen {
		shown, err = s.show.Results(results, nil)
	} else {
		shown, err = s.show.Results(results, strings.Fields(fields))
	}
	if name == "" || err != nil {
		return shown, err
	}
	switch of := results[0].Interface().(type) {
	case svc.IssuedKey:
		s.names[name], s.names[name+"_id"] = string(of.Key), of.ID
	case interface{ ETag() string }:
		if s.names[name] = shown; !chosen {
			s.names[name] = strconv.Quote(of.ETag())
		}
	default:
		s.names[name] = shown
	}
	return shown, nil
}

// principal is host, host/NAME, unmapped or admin; a bearer; or [KIND:]ID[+ACTION,ACTION][/POLICY].
func (s *script) principal(word string) (by svc.Principal, err error) {
	switch name, of, _ := strings.Cut(word, "/"); {
	case word == "unmapped":
		return svc.Unmapped, nil
	case word == "admin":
		return admin, nil
	case name == "host" && of != "":
		return svc.Host.As(of), nil
	case name == "host":
		return svc.Host, nil
	case regexp.MustCompile(`^\w+_\w{54}$`).MatchString(word):
		return s.Authenticate(s.ctx, word)
	default:
		who, actions, vouched := strings.Cut(name, "+")
		if by = user(who); vouched {
			by.Actions = strings.Split(actions, ",")
		}
		if kind, id, other := strings.Cut(who, ":"); other {
			by.Kind, by.ID = svc.Kind(strings.Replace(kind, "sa", "service_account", 1)), id
		}
		by.ScopingPolicyID = of
		return by, nil
	}
}
