package adminpage_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/limits"
)

// No page grows with the rows behind it, or with what they hold: its HTML has at most 100 bytes for
// each byte of the request, or 300 KiB.
func TestPagesEnd(t *testing.T) {
	const floor = 300 << 10
	s := newShop(t)
	long := strings.Repeat(`<"&é`, 1000)
	s.fill(long)
	bundle := s.wide()
	asked := []string{"kind", "user", "who", "wide", "bank", "b1", "action", "bank:recall", "bundle"}
	for _, address := range []string{
		"why?user_id=wide&bank=b1&action=bank:recall", "why?user_id=wide&bank=none", "who-can?bank=b1&action=bank:recall",
		"templates", "templates?source=acme", "templates/desk", "keys", "audit", "audit?target=loud",
	} {
		a := s.get(address).is(t, 200)
		expect.Holds(t, len(a.body) <= floor, address, ": bytes: ", len(a.body))
	}
	for name, bundle := range map[string]string{
		"differences": bundle, "errors": `{"users":[` + strings.Repeat(`{"id":""},`, 200) + `{"id":""}]}`,
		"pointer": `{"` + strings.Repeat("x", 100_000) + `":1}`, "text": long,
	} {
		in := form(append(asked, bundle)...)
		a := s.post("why", in)
		n := len(a.body)
		expect.Holds(t, n <= max(floor, 100*len(in.Encode())) && (name != "pointer" || n <= 2*floor), "bytes to try ", name, ": ", n)
		expect.Holds(t, name != "errors" || strings.Contains(a.body, " more faults are not shown."), a.body)
	}
	why := s.get("why?user_id=wide&bank=b1&action=bank:recall").is(t, 200, "These are the first 100 of", "more statements</span>", "more statements are in the table")
	expect.Equal(t, "statements that are drawn", strings.Count(why.body, `<rect x="660"`), 12)
	s.get("templates?source=acme").is(t, 200, "80 more entries cannot be installed")
	s.get("templates/desk").is(t, 200, "more places have changed", "Not all of it is shown here.")
}

// The page of a template is bounded in bytes of HTML, whatever is long in its places: keys, texts that
// HTML escapes, pieces of lists, and single places that are settled all the same.
func TestReviewsEnd(t *testing.T) {
	for name, manifest := range map[string]func(n int) string{
		"keys": func(n int) string {
			return list(900, `"`+strings.Repeat("<", 400)+`%d":"`+strings.Repeat("'", 100)+fmt.Sprint(n)+`"`)
		},
		"quotes": func(n int) string { return list(200, `"k%d":"`+strings.Repeat(`\"`, 1900)+fmt.Sprint(n)+`"`) },
		"pieces": func(n int) string { return list(200, `"k%d":[`+strings.Repeat(`"",`, 500)+fmt.Sprintf(`"%d"]`, n)) },
		"a key": func(n int) string {
			return fmt.Sprintf(`"%[1]s<'\"é":["%[2]s","%[2]s","%[1]s%[3]d"]`, strings.Repeat("'", 200_000), strings.Repeat("'", 1999), n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			version := func(n int) []byte { return []byte(`{"version":"1",` + manifest(n) + `}`) }
			publish := func(n int) {
				s.publish(`{"templates":[{"id":"desk","name":"Desk","manifest":` + string(version(n)) + `}]}`)
			}
			publish(1)
			must(s.service.Templates.Update(t.Context(), svc.Host, "desk", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}))
			must(s.service.Templates.Patch(t.Context(), svc.Host, "desk", svc.TemplatePatch{Manifest: version(2)}))
			publish(3)
			body := s.get("templates/desk?compare=2").is(t, 200, "conflict", "", "Nothing has changed.").body
			expect.Holds(t, len(body) <= 300<<10, "bytes of the page: ", len(body))
			if name != "a key" {
				return
			}
			_, rest, _ := strings.Cut(body, `type="radio" name="`)
			field, _, _ := strings.Cut(rest, `"`)
			page := s.get("templates/desk")
			s.post("templates/desk", form("do", "settle", "etag", page.field(t, "etag"),
				"revision", page.field(t, "revision"), field, "source")).is(t, 200, "Updated.")
		})
	}
}

// The page of a row of access is bounded as well, where many long ids of characters that HTML or an
// address escapes refer to it.
func TestRowsOfAccessEnd(t *testing.T) {
	for _, char := range []string{"'", "日"} {
		s := newShop(t)
		id := func(kind string, i int) string { return kind + strings.Repeat(char, 120) + fmt.Sprint(i) }
		user := id("u", 0)
		bundle := svc.Bundle{Users: []svc.User{{ID: user}}}
		for i := range 120 {
			group, policy := id("g", i), id("p", i)
			bundle.Users[0].Channels = append(bundle.Users[0].Channels, svc.Channel{Provider: "p", SenderID: id("s", i)})
			bundle.Groups = append(bundle.Groups, svc.Group{ID: group, Members: []string{user}})
			statement := fmt.Sprintf(`{"effect":"allow","actions":[%q],"banks":[%q]}`, id("a", i), id("b", i))
			if i == 0 { // all but one are redundant
				statement += strings.Repeat(","+statement, 120)
			}
			bundle.Policies = append(bundle.Policies, svc.Policy{ID: policy, Document: document(statement)})
			bundle.Attachments = append(bundle.Attachments,
				svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: user}},
				svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: id("g", 0)}})
			if i < limits.ServiceAccounts {
				bundle.ServiceAccounts = append(bundle.ServiceAccounts,
					svc.ServiceAccount{ID: id("sa", i), OwnerUserID: user, ScopingPolicyID: policy})
			}
			must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: user}, svc.NewAPIKey{Description: new(strings.Repeat(char, 1000))}))
		}
		must(0, s.service.Access.Apply(t.Context(), svc.Host, bundle))
		for _, address := range []string{"users/" + user, "groups/" + id("g", 0), "policies/" + id("p", 0), "accounts/" + id("sa", 0)} {
			kind, id, _ := strings.Cut(address, "/")
			body := s.get("access/"+kind+"/"+url.PathEscape(id)).is(t, 200).body
			expect.Holds(t, len(body) <= 300<<10, "bytes of the page of ", kind, ": ", len(body))
			findings := strings.Count(body, `<p><span class="tag`)
			expect.Holds(t, kind != "policies" || findings == 20, "findings that are shown: ", findings)
			longer := strings.Count(body, "more are not shown")
			expect.Holds(t, kind != "users" || longer == 6, "tables that say that they are longer: ", longer)
		}
	}
}

// The page counts the differences that the Service leaves out, as well as those that it leaves out itself.
func TestOmittedChanges(t *testing.T) {
	s := newSite(t, office()).signIn()
	list := `"0"`
	for i := 1; i < 100; i++ {
		list += fmt.Sprintf(`,"%d"`, i)
	}
	wide := document(`{"effect":"allow","actions":[` + list + `],"banks":[` + list + `]}`)
	bundle := `{"users":[{"id":"z"}],"policies":[{"id":"w","document":` + string(wide) + `}],"attachments":[{"policy_id":"w","principal_type":"user","principal_id":"z"}]}`
	a := s.post("why", form("bundle", bundle)).is(t, 200, "9000 more changes are not shown", "may do: 1 gains 0, 1 gains 1, 1 gains 10.")
	expect.Equal(t, "changes that the page shows", strings.Count(a.body, ">gains<"), 100)
	one := strings.Replace(bundle, list, `"0"`, 1) // of the actions
	s.post("why", form("bundle", one)).is(t, 200, "<code>26</code> and 80 more")
}

func (s *shop) fill(long string) {
	s.t.Helper()
	ctx, host := s.t.Context(), svc.Host
	for i := range 60 {
		in := svc.NewAPIKey{Description: new(long)}
		must(s.service.Keys.Issue(ctx, host, svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("u", i)}, in))
		content := svc.Content{Name: strings.Repeat("<", 1000), Description: new(long), Manifest: []byte(`{"version":"1","x":"` + strings.Repeat("<", 100_000) + `"}`)}
		must(s.service.Templates.Create(ctx, host, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: content}))
	}
	s.publish(deskWith(0) + strings.Repeat(`,{"name":"x"}`, 100) + `]}`)
	must(s.service.Templates.Update(ctx, host, "desk", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}))
	s.publish(deskWith(1) + strings.Repeat(`,{"name":"x"}`, 100) + `]}`)
}

// deskWith returns the beginning of a catalogue whose template has many values, which contain n.
func deskWith(n int) string {
	var values []string
	for i := range 500 {
		values = append(values, fmt.Sprintf(`"k%d":"%d %s"`, i, n, strings.Repeat("<", 1000)))
	}
	list := fmt.Sprintf(`["%d"`, n) + strings.Repeat(`,"x"`, 1000) + "]"
	return `{"templates":[{"id":"desk","name":"Desk","manifest":{"version":"1","a":` + list + `,` + strings.Join(values, ",") + `}}`
}

// wide gives the user wide many statements, of which many set a parameter, and returns a bundle that
// makes many differences.
func (s *shop) wide() string {
	const allow = `{"effect":"allow","actions":["bank:recall"],"banks":["b%d"],"retain_strategy":"%s%d"}`
	var all []string
	for i := range 300 {
		all = append(all, fmt.Sprintf(allow, 1+i/200, strings.Repeat("<", 1000), i))
	}
	must(0, s.service.Access.Apply(s.t.Context(), svc.Host, svc.Bundle{
		Users:    []svc.User{{ID: "wide"}},
		Policies: []svc.Policy{{ID: "loud", Document: document(strings.Join(all, ","))}},
		Attachments: []svc.Attachment{
			{PolicyID: "loud", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "wide"}},
		},
	}))
	for i := range 400 {
		all[i%300] = fmt.Sprintf(`{"effect":"deny","actions":["a%d"],"banks":["b%d"]}`, i, i)
	}
	return `{"policies":[{"id":"loud","document":` + string(document(strings.Join(all, ","))) + `}]}`
}

// longList is a list with the most elements that a document, a holder or a request may have.
type longList struct {
	most   int
	bundle func(n int) string       // the rows of a list of access
	grow   func(s *full, n int) int // stores another list, and returns its bytes
}

// repeated is a part of a list in testdata/lists.txt.
var repeated = regexp.MustCompile(`@([/*]?)(\d*)\(([^()]*)\)`)

// repeat writes out the parts of a text, each as often as times says of its operator and number.
func repeat(text string, times func(operator string, n int) int) string {
	return repeated.ReplaceAllStringFunc(text, func(part string) string {
		p := repeated.FindStringSubmatch(part)
		n, _ := strconv.Atoi(p[2])
		return list(times(p[1], n), p[3])
	})
}

// longLists are the lists that a caller makes: those of testdata/lists.txt and some more.
var longLists = func() map[string]longList {
	named := map[string]int{
		"patterns": limits.Patterns, "patterns/2": limits.Patterns / 2, "elements": limits.ListElements, "overrides": limits.Overrides,
		"public patterns": limits.PublicPatterns, "accounts": limits.ServiceAccounts,
	}
	all := maps.Clone(otherLists)
	for line := range strings.Lines(strings.ReplaceAll(string(must(os.ReadFile("testdata/lists.txt"))), "LONG", strings.Repeat("t", 900))) {
		words := strings.Split(strings.TrimSpace(line), " | ")
		if len(words) < 3 {
			continue
		}
		most, is := named[words[1]]
		if !is {
			most = must(strconv.Atoi(words[1]))
		}
		all[words[0]] = longList{most: most, bundle: func(n int) string {
			text := repeat(words[2], func(operator string, factor int) int {
				return map[string]int{"": n, "/": n / max(1, factor), "*": n * factor}[operator]
			})
			if statements, is := strings.CutPrefix(text, "policy "); is {
				return bigPolicy(statements)
			}
			if more, is := strings.CutPrefix(text, "bank "); is {
				return `{"bank_policies":[{"bank_id":"b","document":{"version":"2026-03-24",` + more + `}}]}`
			}
			return text
		}}
	}
	return all
}()

var otherLists = map[string]longList{
	"nested patterns": {limits.Patterns, func(n int) string {
		var banks []string
		for i := range n / 2 {
			banks = append(banks, `"`+strings.Repeat("a::", i+1)+`*"`)
		}
		return bigPolicy(`{"effect":"allow","actions":[` + list(n/2, `"bank:%d"`) + `],"banks":[` + strings.Join(banks, ",") + `]}`)
	}, nil},

	"keys": {svc.DefaultMaxKeysPerHolder - 10, nil, func(s *full, n int) int {
		for range n {
			for _, holder := range []svc.Identity{{Kind: svc.KindUser, ID: "big"}, {Kind: svc.KindUser, ID: "admin"}} {
				must(s.service.Keys.Issue(s.t.Context(), svc.Host, holder, svc.NewAPIKey{Description: new(strings.Repeat("d", 100))}))
			}
		}
		return n * 2 * 300
	}},
	"templates": {limits.PersonalTemplates, nil, func(s *full, n int) int {
		manifest := `{"version":"1","x":"` + strings.Repeat("x", 1000) + `"}`
		for i := range n {
			content := svc.Content{Name: "n", Manifest: []byte(manifest)}
			must(s.service.Templates.Create(s.t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: content}))
		}
		return n * len(manifest)
	}},
	"a large template": {limits.Manifest - 100, nil, func(s *full, n int) int {
		return s.change(svc.Content{Name: "n", Manifest: []byte(`{"version":"2","x":"` + strings.Repeat("<", n) + `"}`)})
	}},
	"values of a template": {60_000, nil, func(s *full, n int) int {
		return s.change(svc.Content{Name: "n", Manifest: []byte(`{"version":"2","x":[` + list(n, `"v%d"`) + `],"y":{` + list(n/5, `"k%d":1`) + `}}`)})
	}},
	"labels": {limits.Labels, nil, func(s *full, n int) int {
		labels := strings.Split(strings.Repeat("é", limits.LabelLength)+strings.Repeat(","+strings.Repeat("é", limits.LabelLength), n-1), ",")
		return s.change(svc.Content{Name: "n", Tags: labels, Integrations: labels, Manifest: []byte(`{"version":"2"}`)})
	}},
	"history": {10 * limits.TemplateVersions, nil, func(s *full, n int) (bytes int) {
		for i := range n / 5 {
			bytes += s.change(svc.Content{Name: "n", Manifest: fmt.Appendf(nil, `{"version":"%d","x":"%s"}`, i, strings.Repeat("x", 10_000))})
		}
		return bytes
	}},
	"sources": {limits.PersonalSources - 10, nil, func(s *full, n int) int {
		for i := range n {
			must(s.service.Sources.Register(s.t.Context(), svc.Host, svc.NewSource{URL: "fs://acme", Alias: new(fmt.Sprint("s", i))}))
		}
		return n * 200
	}},
	"offers": {4_000, nil, func(s *full, n int) int {
		s.publish(`{"templates":[` + deskOne[len(`{"templates":[`):len(deskOne)-2] + `,` + list(n, `{"id":"o%d","name":"Offer","manifest":{"version":"1"}}`) + `]}`)
		return len(s.files["templates.json"].Data)
	}},
	"bad offers": {4_000, nil, func(s *full, n int) int {
		s.publish(`{"templates":[` + deskOne[len(`{"templates":[`):len(deskOne)-2] + `,` + list(n, `{"name":"%d"}`) + `]}`)
		return len(s.files["templates.json"].Data)
	}},
}

// list returns n elements, each of which may contain its number.
func list(n int, element string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element
		if strings.Contains(element, "%") {
			all[i] = fmt.Sprintf(element, i)
		}
	}
	return strings.Join(all, ",")
}

func bigPolicy(statements string) string {
	return `{"policies":[{"id":"p","document":` + string(document(statements)) + `}]}`
}

var nextPage = regexp.MustCompile(`<p><a href="(?:\.\./)?([^"]*)" rel="next"`)

// Each row of a long list is on one of its pages, and no page is large, also when rows are, and their texts random.
func TestLongListsInPages(t *testing.T) {
	const rows = 120
	s := newShop(t)
	var offers []string
	recalls := document(`{"effect":"allow","actions":["bank:recall"],"banks":["*"]}`)
	crowd := svc.Bundle{Policies: []svc.Policy{{ID: "all", Document: recalls}}}
	for i := range rows {
		offers = append(offers, fmt.Sprintf(`{"id":"offer-%03d","name":"%s","manifest":{"version":"1"}}`, i, rand.Text()))
		user, source := svc.GrantedTo{Type: "user", ID: fmt.Sprintf("user-%03d", i)}, fmt.Sprintf("source-%03d", i)
		crowd.Users = append(crowd.Users, svc.User{ID: user.ID})
		crowd.Attachments = append(crowd.Attachments, svc.Attachment{PolicyID: "all", Principal: user})
		must(s.service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://acme", Alias: &source}))
	}
	must(0, s.service.Access.Apply(t.Context(), svc.Host, crowd))
	s.publish(`{"templates":[` + strings.Join(offers, ",") + `]}`)
	for i := range rows {
		long := svc.Content{Name: fmt.Sprint(i), Description: new(rand.Text() + rand.Text()), Manifest: []byte(`{"version":"1","x":"` + random(3000) + `"}`)}
		must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: long}))
	}
	for i := range rows / 4 {
		banks := make([]string, 30)
		for i := range banks {
			banks[i] = random(100)
		}
		wide := document(`{"effect":"allow","actions":["bank:recall"],"banks":["` + strings.Join(banks, `","`) + `"]}`)
		must(s.service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: fmt.Sprint("p", i), Document: wide}))
	}
	for address, row := range map[string]string{
		"templates?source=acme": "Install offer-%03d", "audit": `<th scope="row">%d</th>`,
		"sources": `"sources/source-%03d"`, "templates": ` <code>t%d<`, "who-can?bank=b&action=bank:recall": ">user-%03d<",
	} {
		on := map[string]int{} // the number of pages
		for address != "" {
			a := s.get(address).is(t, 200)
			n := s.compressed(a.Request.URL.String())
			expect.Holds(t, n <= 16_000, address, ": bytes: ", n)
			for i := 1; i < rows; i++ {
				if text := fmt.Sprintf(row, i); strings.Contains(a.body, text) {
					on[text]++
				}
			}
			next := append(nextPage.FindStringSubmatch(a.body), "", "")
			address = strings.ReplaceAll(next[1], "&amp;", "&")
		}
		for i := 1; i < rows; i++ {
			expect.Equal(t, row, fmt.Sprint(i, ": ", on[fmt.Sprintf(row, i)]), fmt.Sprint(i, ": 1"))
		}
	}
}

func random(n int) (text string) {
	for len(text) < n {
		text += rand.Text()
	}
	return text[:n]
}

// Of many rows, a page counts some.
func TestAccessOfMany(t *testing.T) {
	crowd := office()
	group := svc.Group{ID: "all"}
	for i := range 10_300 {
		id := fmt.Sprintf("u%05d", i)
		crowd.Users, group.Members = append(crowd.Users, svc.User{ID: id}), append(group.Members, id)
	}
	crowd.Groups = append(crowd.Groups, group)
	s := newSite(t, crowd).signIn()
	s.get("access/users").is(t, 200, "1–50 of at least 10,050", ">Next<")
	s.get("access/users?from=200").is(t, 200, "201–250 of at least 10,250", ">Previous<", ">Next<")
	s.get("access/users?from=300").is(t, 200, "301–350 of 10,303", ">Next<")
	s.get("access/users?search=u0").is(t, 200, "1–50 of at least 10,000", ">Next<")
	s.get("access/users?search=u1029").is(t, 200, "1–10 of 10", "", ">Next<")
	s.get("access/groups/all").is(t, 200, "More than ", " more are not shown.")
}
