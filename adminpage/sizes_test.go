package adminpage_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// Pages stay small when a source offers much and when events carry large rows; the rest follows.
func TestFullPagesAreSmall(t *testing.T) {
	s := newShop(t)
	var offers []string
	for i := range 120 {
		offers = append(offers, fmt.Sprintf(`{"id":"offer-%03d","name":"%s","manifest":{"version":"1"}}`, i, rand.Text()))
	}
	s.publish(`{"templates":[` + strings.Join(offers, ",") + `]}`)
	for i := range 60 {
		long := svc.Content{Name: fmt.Sprint(i), Description: new(rand.Text() + rand.Text()), Manifest: []byte(`{"version":"1","x":"` + random(3000) + `"}`)}
		must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: long}))
	}
	for start, want := range map[string]string{"templates?source=acme": "Install offer-%03d", "audit": `<th scope="row">%d</th>`} {
		seen := map[string]bool{}
		for address := start; address != ""; {
			request := must(http.NewRequest("GET", s.url+address, nil))
			request.Header.Set("Accept-Encoding", "gzip")
			if n := len(s.read(s.client.Do(request)).body); n > 16_000 {
				t.Errorf("%s takes %d bytes", address, n)
			}
			body := s.get(address).is(t, 200).body
			for i := range 121 {
				seen[fmt.Sprintf(want, i)] = seen[fmt.Sprintf(want, i)] || strings.Contains(body, fmt.Sprintf(want, i))
			}
			if _, after, found := strings.Cut(body, "<section class=\"card\"><h2>Offers"); found {
				body = after
			}
			_, rest, _ := strings.Cut(body, `<p><a href="`)
			address, _, _ = strings.Cut(rest, `" rel="next"`)
			address = strings.ReplaceAll(address, "&amp;", "&")
		}
		for i := 1; i < 60; i++ {
			if !seen[fmt.Sprintf(want, i)] {
				t.Errorf("%s and its next pages lack %s", start, fmt.Sprintf(want, i))
			}
		}
	}
}

// The table of a change that concerns very many shows the first rows, and says how many more.
func TestLargeChange(t *testing.T) {
	s := newSite(t, office()).signIn()
	var policies, attachments []string
	for i := range 150 {
		policies = append(policies, fmt.Sprintf(`{"id":"p%d","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["bank-%d"]}]}}`, i, i))
		attachments = append(attachments, fmt.Sprintf(`{"policy_id":"p%d","principal_type":"user","principal_id":"carol"}`, i))
	}
	bundle := `{"policies":[` + strings.Join(policies, ",") + `],"attachments":[` + strings.Join(attachments, ",") + `]}`
	a := s.post("why", form("kind", "user", "who", "bob", "bank", "support", "action", "bank:recall", "bundle", bundle)).is(t, 200, "200 more changes are not shown")
	if n := strings.Count(a.body, ">gains<"); n != 100 {
		t.Errorf("the page shows %d changes", n)
	}
}

// random returns n characters that do not compress well.
func random(n int) (text string) {
	for len(text) < n {
		text += rand.Text()
	}
	return text[:n]
}
