package adminpage_test

import (
	"regexp"
	"testing"

	"github.com/extsvc/svc"
)

var (
	wrongInput = regexp.MustCompile(`<(?:input|textarea)[^>]* name="([^"]*)" aria-invalid="true" aria-describedby="([^"]*)"`)
	aboutInput = regexp.MustCompile(`<p id="([^"]*)">([^<]*)</p>`)
	titleTag   = regexp.MustCompile(`<title>([^<]*)</title>`)
	minute     = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d UTC`)
	timeTag    = regexp.MustCompile(`<time datetime="\d{4}-\d\d-\d\dT[\d:.]+Z">\d{4}-\d\d-\d\d \d\d:\d\d UTC</time>`)
)

func (a answer) title() string { return titleTag.FindStringSubmatch(a.body)[1] }

// Every time is one for machines as well: the script adds the local time.
func TestTimes(t *testing.T) {
	s := newShop(t)
	key := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{}))
	s.edit("Remembers.")
	for _, address := range []string{"keys", "keys/" + key.ID, "audit", "templates/desk", "sources/acme", "why?user_id=bob&bank=support"} {
		a := s.get(address).is(t, 200)
		all, marked := len(minute.FindAllString(a.body, -1)), len(timeTag.FindAllString(a.body, -1))
		if all == 0 || all != marked {
			t.Errorf("%s: %d of %d times are marked: %s", address, marked, all, a.body)
		}
	}
}
