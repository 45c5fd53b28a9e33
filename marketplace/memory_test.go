package marketplace_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/testscript"
	"github.com/extsvc/svc/marketplace"
)

// script is a section of testdata/scripts.txt: a source at https://one.example with a catalogue and a
// manifest, and a client. A path is of that host, or has its host before it. The lines:
//
//	put PATH [HEADER:VALUE …] BODY  a file, with the ETag "v1", "v2" … when it has none; redirect PATH STATUS LOCATION
//	break, mend                     no request is answered
//	publish KEY CATALOG             a catalogue with its signature; sign KEY TEXT CATALOG that of another text,
//	                                signature TEXT CATALOG no such, unsigned CATALOG none
//	digest PATH CANONICAL           the catalogue has the digest of that manifest
//	from URL, token T, key KEY, named SCOPE OWNER NAME, registered D, serial N, memory [off]   what the client is given
//	spoil HOW                       the stored catalogue is changed
//	client [HOW]                    another client; wait D moves the clock
//	ask -> MANIFEST or ! ERROR      of the template a; try may fail
//	catalog AGE -> ENTRY …          id and known manifest, its age, its failure
//	asked -> REQUEST, …             path, condition, status and token of requests since the last such line; web: URLs
//	remembers, stats, hides         what is stored, counted, and not kept
type script struct {
	*shelf
	t      *testing.T
	client *marketplace.Client
	pool   marketplace.Config
	server string
	from   svc.Upstream
	kept   *memory
	web    *[]string // all URLs
	tags   int
	now    time.Time
}

func TestScripts(t *testing.T) {
	testscript.RunContinued(t, "testdata/scripts.txt", func(t *testing.T, values map[string]string, lines []string) {
		s := &script{t: t, shelf: &shelf{host: "one.example", files: map[string]shelved{}}, now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}
		var first *marketplace.Client
		first, s.server, s.web = newServedWeb(t, marketplace.Config{}, s.shelf)
		s.pool.RootCAs = first.Transports()[0].TLSClientConfig.RootCAs
		s.from = upstream("https://one.example")
		for _, line := range append([]string{"put /templates.json file", `put /m.json {"version":"1"}`, "client"}, lines...) {
			line, want, wanted := strings.Cut(line, " -> ")
			expand := func(text string) string {
				return testscript.Expand(text, func(name string) (string, bool) { return values[name], true })
			}
			have := s.do(expand(line), values)
			want = expand(want)
			if says, refused := strings.CutPrefix(want, "! "); refused {
				want = "! …" + says + "…"
			}
			if wanted && !testscript.Like(have, want) {
				t.Fatalf("%s\nhave %s\nwant %s", line, have, want)
			}
		}
	})
}

func (s *script) do(line string, values map[string]string) (shown string) {
	verb, rest, _ := strings.Cut(line, " ")
	words := append(strings.SplitN(rest, " ", 3), "", "")
	switch verb {
	case "let":
		values[words[0]] = strings.TrimPrefix(rest, words[0]+" ")
	case "put":
		s.write(words[0], strings.TrimPrefix(rest, words[0]+" "))
	case "redirect":
		s.put(words[0], shelved{header: map[string]string{"Location": words[2]}, status: must(strconv.Atoi(words[1]))})
	case "break":
		s.beforeEach(func(*http.Request) { panic(http.ErrAbortHandler) })
	case "mend":
		s.beforeEach(nil)
	case "publish":
		s.publish(rest[2:], newSigner(rest[0]).sign(rest[2:])+"\n")
	case "sign":
		s.publish(words[2], newSigner(words[0][0]).sign(words[1]))
	case "signature":
		text := strings.ReplaceAll(words[0], `\n`, "\n")
		if catalog := strings.TrimPrefix(rest, words[0]+" "); text == "%" {
			s.publish(catalog, text+newSigner('a').sign(catalog)[1:])
		} else {
			s.publish(catalog, text)
		}
	case "unsigned":
		s.publish(rest, "")
		s.put("/templates.json.sig", shelved{status: 404})
	case "digest":
		s.write(words[0], withDigest(digest(strings.TrimPrefix(rest, words[0]+" "))))
	case "wait":
		s.now = s.now.Add(must(time.ParseDuration(rest)))
	case "client":
		s.connect(rest)
	case "asked":
		shown = list(s.requests())
	case "web":
		shown = list(*s.web)
	case "remembers":
		shown = fmt.Sprint(len(s.kept.files))
		for _, file := range s.kept.files {
			is.New(s.t).True(!bytes.Contains(file, []byte("s3cr3t")))
		}
	case "stats":
		stats := s.client.CacheStats()
		shown = fmt.Sprintf("%d copies, %d answers, %d unchanged", stats.Copies, stats.Answers, stats.Unchanged)
	case "hides":
		is.New(s.t).True(!strings.Contains(s.client.Kept(), rest))
	case "ask", "try":
		content, err := s.client.Template(s.t.Context(), s.from, "a")
		if shown = string(content.Manifest); err != nil && verb == "ask" {
			wantError(s.t, err, svc.CodeSourceFailed)
			shown = "! " + err.Error()
		}
	case "catalog":
		shown = s.catalog(rest)
	default:
		s.give(verb, rest, words)
	}
	return shown
}

func list(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// write puts "[HEADER:VALUE …] BODY" at a path.
func (s *script) write(path, rest string) {
	header := map[string]string{}
	for {
		word, more, _ := strings.Cut(rest, " ")
		name, value, is := strings.Cut(word, ":")
		if !is || name != "ETag" && name != "Last-Modified" && name != "Date" {
			break
		}
		header[name], rest = strings.ReplaceAll(value, `\s`, " "), more
	}
	if s.tags++; len(header) == 0 {
		header["ETag"] = fmt.Sprintf(`"v%d"`, s.tags)
	}
	if header["ETag"] == "" {
		delete(header, "ETag")
	}
	body := map[string]string{"entry": oneEntry, "file": fileEntry, `""`: ""}[rest]
	if body == "" && rest != `""` {
		body = rest
	}
	s.put(path, shelved{body: body, header: header})
}

func (s *script) publish(catalog, signature string) {
	s.write("/templates.json", catalog)
	s.write("/templates.json.sig", "ETag: "+signature)
}

func (s *script) connect(how string) {
	config := s.pool
	switch how {
	case "no cache":
		config.Cache = -1
	case "personal":
		config.AllowPersonal = true
	case "small manifests":
		config.Limits.Manifest = 400
	}
	s.client = newClient(s.t, config)
	s.client.SetDial(func(string) (net.Conn, error) { return net.Dial("tcp", s.server) })
	s.client.SetNow(func() time.Time { return s.now })
}

// catalog shows a catalogue that may be so old.
func (s *script) catalog(age string) string {
	c := must(s.client.Catalog(s.t.Context(), s.from, must(time.ParseDuration(age))))
	var all []string
	for _, entry := range c.Entries {
		known := string(entry.Content.Manifest)
		if known == "" {
			known = "-"
		}
		all = append(all, entry.ID+" "+known)
	}
	shown := list(all)
	if old := s.now.Sub(c.FetchedAt); old > 0 && c.Failure != nil {
		shown += fmt.Sprintf(" %v old", old)
	}
	if c.Serial != 0 {
		shown += fmt.Sprint(", serial ", c.Serial)
	}
	if !c.Expires.IsZero() {
		shown += ", expires " + c.Expires.Format(time.RFC3339)
	}
	if c.Failure != nil {
		shown += fmt.Sprint(", ", c.Failure)
	}
	return shown
}

// give changes what the client is given, or what it has stored.
func (s *script) give(verb, rest string, words []string) {
	switch verb {
	case "from":
		s.from.URL = rest
	case "token":
		s.from.Token = svc.Secret(strings.Trim(rest, "-"))
	case "key":
		if s.from.SigningKey = nil; rest != "-" {
			s.from.SigningKey = newSigner(rest[0]).public()
		}
	case "named":
		s.from.Source = svc.SourceKey{Scope: svc.Scope(words[0]), Owner: strings.Trim(words[1], "-"), Name: words[2]}
	case "registered":
		if s.from.Registered = (time.Time{}); rest != "never" {
			s.from.Registered = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC).Add(must(time.ParseDuration(rest)))
		}
	case "serial":
		s.from.Serial = must(strconv.ParseInt(rest, 10, 64))
	case "memory":
		s.kept, s.from.Memory = new(memory), nil
		if rest != "off" {
			s.from.Memory = s.kept
		}
	case "spoil":
		stored := s.kept.files[""]
		s.kept.files[""] = map[string][]byte{
			"cut": stored[:len(stored)-9], "joined": bytes.ReplaceAll(stored, []byte("\n"), nil), "rubbish": []byte("rubbish"),
			"empty": nil, "other": s.kept.files["m.json"],
		}[rest]
	default:
		s.t.Fatalf("%s is no line of a script", verb)
	}
}

// The serial of a source whose memory fails is not accepted.
func TestSerialThatCannotBeChecked(t *testing.T) {
	s, client, from := newShelf(t, marketplace.Config{})
	s.publish(newSigner('a'), series("3", 3, ""))
	from.SigningKey = newSigner('a').public()
	for code, c := range map[svc.Code]struct {
		err  error
		want string
	}{
		svc.CodeUnavailable: {svc.ErrUnavailable, "has a serial that cannot be checked now"},
		svc.CodeNotFound:    {svc.ErrNotFound, "was asked for before the source was removed"},
	} {
		from.Memory = &memory{err: c.err}
		wantError(t, errorOf(client.Template(t.Context(), from, "a")), code, c.want)
	}
}
