package adminpage_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

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
