package adminpage_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/testscript"
	"github.com/extsvc/svc/store/memstore"
)

// browser does the lines of a section of testdata/pages.txt, which describes them.
type browser struct {
	*shop
	names map[string]string
	pages []answer // of the last request
}

// newQuiet is a server that keeps no events, as by default, over a store without optional roles.
func newQuiet(t *testing.T, set ...func(*adminpage.Options)) *shop {
	return &shop{site: newSiteOf(t, svc.Config{Store: struct{ svc.Store }{memstore.New()}}, clinic(), set...).signIn()}
}

// pageSites are the servers of scripts, by name.
var pageSites = map[string]func(*testing.T, ...func(*adminpage.Options)) *shop{
	"shop": newShop,
	"office": func(t *testing.T, set ...func(*adminpage.Options)) *shop {
		return &shop{site: newSite(t, office(), set...).signIn()}
	},
	"clinic": func(t *testing.T, set ...func(*adminpage.Options)) *shop {
		return &shop{site: newSite(t, clinic(), set...).signIn()}
	},
	"quiet": newQuiet,
	"crowd": func(t *testing.T, set ...func(*adminpage.Options)) *shop {
		crowd := office()
		for i := range 1117 {
			crowd.Users = append(crowd.Users, svc.User{ID: fmt.Sprintf("u%04d", i), Email: new(fmt.Sprintf("m%d@example.org", i)), Inactive: i%2 == 1})
		}
		return &shop{site: newSite(t, crowd, set...).signIn()}
	},
	"sealed": func(t *testing.T, set ...func(*adminpage.Options)) *shop {
		m := market{open: make(chan struct{}), ill: "nobody"}
		close(m.open)
		config := svc.Config{Sources: svc.SourceConfig{Marketplace: m, SealingKey: []byte(strings.Repeat("k", 32))}}
		return &shop{site: newSiteWith(t, config, office(), set...).signIn()}
	},
}

func TestPages(t *testing.T) {
	testscript.Run(t, "testdata/pages.txt", func(t *testing.T, values map[string]string, lines []string) {
		b := browser{names: map[string]string{"deskOne": deskOne, "deskTwo": deskTwo}}
		maps.Copy(b.names, values)
		for _, line := range lines {
			t.Log(line)
			word, rest, _ := strings.Cut(line, " ")
			b.do(t, word, repeat(os.Expand(rest, b.value), func(_ string, n int) int { return n }))
		}
	})
}

func (b *browser) value(name string) string {
	value, known := b.names[name]
	if !known {
		panic("$" + name + " has no value")
	}
	return os.Expand(value, b.value)
}

func (b *browser) do(t *testing.T, word, rest string) {
	first, more, _ := strings.Cut(rest, " ")
	switch word {
	case "site":
		b.shop = pageSites[first](t, func(o *adminpage.Options) { o.ReadOnly = more == "read-only" })
		b.names["admin"], b.names["long"], b.names["hidden"] = b.key, strings.Repeat("x", 100_000), "\u200b"
	case "get", "next", "post", "as":
		request, status, _ := strings.Cut(rest, "-> ")
		b.send(t, word, strings.TrimSuffix(request, " "), must(strconv.Atoi(status)))
	case "issue":
		words, in := strings.SplitN(more, " ", 3), svc.NewAPIKey{}
		must(0, json.Unmarshal([]byte(words[2]), &in))
		key := must(b.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.Kind(words[0]), ID: words[1]}, in))
		b.names[first], b.names[first+"_id"], b.names[first+"_prefix"] = string(key.Key), key.ID, key.Prefix
	case "issues":
		kind, id, _ := strings.Cut(more, " ")
		for range must(strconv.Atoi(first)) {
			in := svc.NewAPIKey{Description: new(kind + "-" + id)}
			must(b.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.Kind(kind), ID: id}, in))
		}
	case "apply":
		must(0, b.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(rest)))))
	case "register":
		must(b.service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: more, Alias: &first}))
	case "own": // a source of the administrator, and a template of the server from it
		admin := svc.Principal{Kind: svc.KindUser, ID: "admin"}
		must(b.service.MySources.Register(t.Context(), admin, svc.NewSource{URL: "fs://acme", Alias: &first}))
		install := svc.Install{TemplateID: "desk", AliasID: &more, SourceName: first, SourceScope: svc.ScopePersonal}
		must(b.service.Templates.Install(t.Context(), admin, install))
	case "disown":
		must(0, b.service.MySources.Remove(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "admin"}, rest))
	case "create":
		made := svc.Content{Name: "Made", Manifest: json.RawMessage(more)}
		must(b.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: first, Content: made}))
	case "publish":
		b.publish(repeat(rest, func(_ string, n int) int { return n }))
	case "edit":
		b.edit(rest)
	case "patch":
		must(b.service.Templates.Patch(t.Context(), svc.Host, "desk", svc.TemplatePatch{Manifest: json.RawMessage(rest)}))
	default:
		b.check(t, word, rest)
	}
}

var (
	wrongInput = regexp.MustCompile(`<(?:input|textarea)[^>]* name="([^"]*)" aria-invalid="true" aria-describedby="([^"]*)"`)
	aboutInput = regexp.MustCompile(`<p id="([^"]*)">([^<]*)</p>`)
	titleTag   = regexp.MustCompile(`<title>([^<]*)</title>`)
	minute     = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d UTC`)
	timeTag    = regexp.MustCompile(`<time datetime="\d{4}-\d\d-\d\dT[\d:.]+Z">\d{4}-\d\d-\d\d \d\d:\d\d UTC</time>`)
	picture    = regexp.MustCompile(`(?s)^.*<main[^>]*>|<svg.*?</svg>|</main>.*$`)
	tag        = regexp.MustCompile(`(?s)<[^>]*?(?:(?:href|value)="([^"]*)"[^>]*?)?( checked| selected)?>`)
	volatile   = regexp.MustCompile(`sha256:\w+|\d{4}-\d\d-\d\d([ T][0-9:.]+( UTC|Z)?)?|[A-Z2-7]{26}|svc[us]_\w+|\b[A-Za-z0-9]{16}\b|&#34;\w{9,}-\w{9,}&#34;`)
)

// reads is what a page shows, and where its links lead, without what differs from run to run.
func (a answer) reads() string { return words(picture.ReplaceAllString(a.body, "")) }

func words(page string) string {
	text := tag.ReplaceAllString(page, " $1$2 ")
	return html.UnescapeString(strings.Join(strings.Fields(volatile.ReplaceAllString(text, "…")), " "))
}

func (b *browser) send(t *testing.T, how, request string, status int) {
	address, fields, _ := strings.Cut(request, " ")
	switch how {
	case "next":
		request = html.UnescapeString(nextPage.FindStringSubmatch(b.pages[0].body)[1])
		fallthrough
	case "get":
		b.pages = nil
		for _, address := range strings.Fields(request) {
			b.pages = append(b.pages, b.get(address).is(t, status))
		}
		return
	case "as":
		address, fields = "sign-in", "key="+request
	}
	in := url.Values{}
	for _, pair := range strings.Split(fields, "&") {
		name, value, _ := strings.Cut(pair, "=")
		in.Set(name, value)
	}
	b.pages = []answer{b.post(address, in).is(t, status)}
}

func (b *browser) check(t *testing.T, word, rest string) {
	first, more, _ := strings.Cut(rest, " ")
	last := b.pages[len(b.pages)-1]
	good := true
	switch word {
	case "has", "lacks":
		for _, page := range b.pages {
			page.is(t, page.StatusCode, map[string][]string{"has": {rest}, "lacks": {"", rest}}[word]...)
		}
	case "counts":
		good = fmt.Sprint(strings.Count(last.body, more)) == first
	case "reads":
		expect.Equal(t, last.Request.URL.String()+" reads", last.reads(), rest)
	case "alert": // about no field: "-"
		wrong, about := wrongInput.FindAllStringSubmatch(last.body, -1), aboutInput.FindAllStringSubmatch(last.body, -1)
		good = strings.HasPrefix(last.title(), "Error: ") && strings.Contains(last.body, ">"+more) && len(wrong) == len(about)
		if first != "-" {
			good = good && len(wrong) == 1 && wrong[0][1] == first && wrong[0][2] == about[0][1] && strings.HasPrefix(about[0][2], more)
		} else {
			good = good && len(wrong) == 0
		}
	case "inside":
		good = strings.HasPrefix(last.Request.URL.String(), b.url)
	case "at":
		good = strings.HasSuffix(last.Request.URL.String(), "/"+rest)
	case "field":
		b.names[cmp.Or(more, first)] = last.field(t, first)
	case "newkey":
		b.names[rest], good = last.newKey(), !last.Uncompressed // what an attacker chose is not compressed with a secret
	case "draft":
		b.names[rest] = must(url.QueryUnescape(last.draft(t).Encode()))
	case "header":
		good = strings.HasPrefix(last.Header.Get(first), more)
	case "downloads":
		good = strings.HasPrefix(last.Header.Get("Content-Disposition"), "attachment") && json.Valid([]byte(last.body))
	case "stored", "unstored":
		rows := string(must(must(b.service.Access.Export(t.Context(), svc.Host)).JSON()))
		good = strings.Contains(rows, rest) == (word == "stored")
	case "accepts", "refuses":
		_, err := b.service.Authenticate(t.Context(), rest)
		good = (err == nil) == (word == "accepts")
	case "manifest":
		good = string(must(b.service.Templates.Read(t.Context(), svc.Host, "desk")).Manifest) == rest
	default:
		t.Fatalf("%s is no word of a script", word)
	}
	expect.Holds(t, good, last.Request.URL, ": ", word, " ", rest, ": ", last.body)
}

// Keys that have expired are apart from those that soon will.
func TestExpiredKeys(t *testing.T) {
	clock := time.Now()
	s := newSiteWith(t, svc.Config{Now: func() time.Time { return clock }}, office())
	bob := svc.Identity{Kind: svc.KindUser, ID: "bob"}
	clock = clock.Add(-time.Hour)
	for name, ends := range map[string]time.Duration{"past": time.Minute, "next": 48 * time.Hour, "later": 90 * 24 * time.Hour} {
		must(s.service.Keys.Issue(t.Context(), svc.Host, bob, svc.NewAPIKey{Description: new(name + "-key"), ExpiresAt: clock.Add(ends)}))
	}
	clock = time.Now()
	s.signIn()
	s.get("keys?which=expired").is(t, 200, "past-key", "", "next-key", "later-key")
	s.get("keys?which=expiring").is(t, 200, "next-key", "", "past-key", "later-key")
}

func (a answer) newKey() string {
	_, rest, _ := strings.Cut(a.body, `readonly data-copy>`)
	key, _, _ := strings.Cut(rest, "<")
	return key
}

// The last day of a span counts.
func TestAudit(t *testing.T) {
	today := time.Now().UTC().Format(time.DateOnly)
	newShop(t).get("audit?since="+today+"&until="+today).is(t, 200, `aria-label="Events"`)
}

// A page never shows a text of a caller or of the database as markup.
func TestTextStaysText(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>"'`
	s := newShop(t)
	s.edit(evil)
	s.publish(strings.ReplaceAll(deskTwo, "Remembers", `<img src=x onerror=alert(2)>`))
	must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{Description: new(evil)}))
	escaped := strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", "'", "%27", " ", "+", "=", "%3D").Replace(evil)
	for _, address := range []string{
		"templates/desk", "templates?search=" + escaped, "templates?source=acme", "keys", "keys?holder=" + escaped, "keys?which=" + escaped,
		"why?user_id=" + escaped + "&bank=" + escaped + "&topic=" + escaped, "who-can?bank=" + escaped + "&action=" + escaped,
		"audit?actor=" + escaped + "&since=" + escaped, "templates?done=" + escaped, "nothing" + escaped,
	} {
		a := s.get(address)
		expect.Holds(t, !strings.Contains(a.body, "<img"), address, ": ", a.body)
	}
}

// Another site can make no browser change anything.
func TestOtherSites(t *testing.T) {
	s := newShop(t)
	for _, headers := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
	} {
		for _, path := range []string{"sign-in", "sign-out", "keys", "templates", "templates/desk", "why"} {
			request := must(http.NewRequest("POST", s.url+path, strings.NewReader("do=check")))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for name, value := range headers {
				request.Header.Set(name, value)
			}
			s.read(s.client.Do(request)).is(t, 403)
		}
	}
	s.get("keys").is(t, 200) // still signed in

	// Nor do its links say that something was changed.
	for site, says := range map[string]bool{"": true, "none": true, "same-origin": true, "same-site": false, "cross-site": false} {
		request := must(http.NewRequest("GET", s.url+"keys?done=revoked&which=unused", nil))
		request.Header.Set("Sec-Fetch-Site", site)
		a := s.read(s.client.Do(request)).is(t, 200)
		told := strings.Contains(a.body, "stopped working for good")
		expect.Holds(t, told == says && a.Request.URL.Query().Get("which") == "unused", site, ": ", a.Request.URL, ": ", a.body)
	}
	s.post("sign-out", nil)
	expect.Equal(t, "the sign-in leads to", s.get("keys?done=revoked&which=unused").is(t, 401).field(t, "to"), "keys?which=unused")
}

// No link of a page leads to an error, and no page shows a character that is not seen as such.
func TestLinksLead(t *testing.T) {
	const hidden = "\u202e\u2066\u200b\u00ad\x01\U000e0041"
	links, tags := regexp.MustCompile(`<a [^>]*href="([^"]*)"`), regexp.MustCompile(`<textarea[^>]*>[^<]*|<[^>]*>`)
	for _, s := range []*site{newShop(t).site, newSite(t, clinic()).signIn(), newQuiet(t).site} {
		must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "without a row"}, svc.NewAPIKey{Description: new("key" + hidden)}))
		must(0, s.service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "hidden", DisplayName: "user" + hidden}}}))
		must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "hidden", Content: svc.Content{
			Name: "hidden", Description: new("text" + hidden), Manifest: json.RawMessage(`{"version":"1","a":"` + strings.ReplaceAll(hidden, "\x01", "") + `"}`)}}))
		shown := map[string]bool{}
		seen, next := map[string]bool{}, []string{s.url, s.url + "access/users?search=%E2%80%AE"}
		for len(next) > 0 {
			address := next[0]
			if next = next[1:]; seen[address] {
				continue
			}
			seen[address] = true
			a := s.read(s.client.Get(address))
			expect.Equal(t, address, a.StatusCode, 200)
			text := tags.ReplaceAllString(a.body, "")
			expect.Holds(t, !strings.ContainsAny(text, hidden), address, " has no hidden characters")
			for _, where := range []string{"key", "user", "text", `"a": "`} {
				shown[where] = shown[where] || strings.Contains(html.UnescapeString(text), where+`\u202e\u2066\u200b\u00ad`)
			}
			shown["in a form"] = shown["in a form"] || strings.ContainsAny(a.body, hidden) // which sends it back
			for _, link := range links.FindAllStringSubmatch(a.body, -1) {
				to := must(a.Request.URL.Parse(html.UnescapeString(link[1])))
				to.Fragment = ""
				if strings.HasPrefix(to.String(), s.url) {
					next = append(next, to.String())
				}
			}
		}
		missing := slices.Contains(slices.Collect(maps.Values(shown)), false)
		expect.Holds(t, len(seen) >= 20 && len(shown) == 5 && !missing, "addresses: ", len(seen), shown)
	}
}

func TestPagesAreSmall(t *testing.T) {
	s := newShop(t)
	for _, address := range []string{"why?user_id=bob&bank=support", "who-can?bank=support&action=bank:recall", "templates?source=acme", "templates/desk", "keys", "audit"} {
		size := 0
		for _, part := range append(assets(s.get(address).body), address) {
			size += s.compressed(s.url + strings.TrimPrefix(part, "../"))
		}
		expect.Holds(t, size <= 20_000, address, ": bytes on the wire: ", size)
	}
}

// compressed returns how many bytes an answer takes on the wire.
func (s *site) compressed(address string) int {
	s.t.Helper()
	request := must(http.NewRequest("GET", address, nil))
	request.Header.Set("Accept-Encoding", "gzip")
	a := s.read(s.client.Do(request))
	expect.Equal(s.t, address, a.ContentLength, int64(len(a.body)))
	return len(a.body)
}

func assets(page string) (all []string) {
	for _, attribute := range []string{`stylesheet" href="`, `script src="`} {
		_, rest, _ := strings.Cut(page, attribute)
		address, _, _ := strings.Cut(rest, `"`)
		all = append(all, address)
	}
	return all
}

func (a answer) title() string { return titleTag.FindStringSubmatch(a.body)[1] }

// A panic of the host that the navigation would meet again gets its page.
func TestPanicOfOnDecision(t *testing.T) {
	var panics atomic.Bool
	config := svc.Config{Store: memstore.New(), Events: svc.EventConfig{OnDecision: func(context.Context, svc.DecisionEvent) {
		if panics.Load() {
			panic("of the host")
		}
	}}}
	s := newSiteOf(t, config, office()).signIn()
	panics.Store(true)
	s.get("keys").is(t, 500, "Something failed.")
}

// Every time is one for machines as well: the script adds the local time.
func TestTimes(t *testing.T) {
	s := newShop(t)
	key := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{}))
	s.edit("Remembers.")
	for _, address := range []string{"keys", "keys/" + key.ID, "audit", "templates/desk", "sources/acme", "why?user_id=bob&bank=support"} {
		a := s.get(address).is(t, 200)
		all, marked := len(minute.FindAllString(a.body, -1)), len(timeTag.FindAllString(a.body, -1))
		expect.Holds(t, all > 0 && all == marked, address, ": times, and those that are marked: ", all, marked, a.body)
	}
}

func (a answer) draft(t *testing.T) url.Values {
	t.Helper()
	_, form, found := strings.Cut(a.body, `<form method="post" class="card">`)
	form, _, _ = strings.Cut(form, "</form>")
	if !found {
		t.Fatalf("no draft: %s", a.body)
	}
	fields := url.Values{}
	unescape := strings.NewReplacer("&#34;", `"`, "&amp;", "&", "&lt;", "<", "&gt;", ">", "&#39;", "'", "&#43;", "+")
	for _, part := range strings.Split(form, "<input type=\"hidden\" ")[1:] {
		_, name, _ := strings.Cut(part, `name="`)
		name, rest, _ := strings.Cut(name, `" value="`)
		value, _, _ := strings.Cut(rest, `"`)
		fields.Set(name, unescape.Replace(value))
	}
	if _, document, is := strings.Cut(form, `<textarea name="document" hidden>`); is {
		document, _, _ = strings.Cut(document, "</textarea>")
		fields.Set("document", unescape.Replace(document))
	}
	return fields
}
