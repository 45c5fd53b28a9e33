package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// below are targets that every router takes to be the interface's, odd those that lead there by one reading or another.
var (
	below = []string{
		"{base}/", "{base}/?x", "{base}/nothing", "{base}/me/api-keys/", "{base}/me/api-keys;x=1", "{base}/%6de/api-keys",
		"{base}/admin/templates/a%2Fb", "{base}/admin/templates/%2e", "{base}/admin/templates/%2E%2e", `{base}/\me/api-keys`,
		"http://elsewhere.example{base}/nothing",
	}
	odd = struct{ outside, inside, bare, escaped []string }{
		outside: []string{
			"/{base}/me/api-keys", "//{base}/me/api-keys", "/x/..{base}/me/api-keys", "/.{base}/me/api-keys", "/..{base}/me/api-keys",
			"http://elsewhere.example/{base}/me/api-keys",
		},
		inside: []string{
			"{base}//me/api-keys", "{base}/me/api-keys//", "{base}/./me/api-keys", "{base}/me/../me/api-keys", "{base}/.", "{base}/..",
			"{base}/../other", "{base}/me/api-keys/../../../..", "{base}/admin/templates/.", "{base}/..%2Fother", "{base}/%2e%2e/other",
		},
		bare:    []string{"{base}", "{base}?x"},
		escaped: []string{"/x/%2e%2e{base}/me/api-keys", "{base}%2Fme/api-keys"},
	}
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

// before collects the answers to targets without a bearer, except 401.
func (s *site) before(methods, targets []string) string {
	s.t.Helper()
	var early []string
	for _, target := range targets {
		for _, method := range methods {
			got := s.ask(method, strings.ReplaceAll(target, "{base}", s.path()), "", "")
			if got.status != 401 {
				early = append(early, strconv.Itoa(got.status))
			} else if strings.Contains(got.header, "Location: [\"") || got.cut {
				s.t.Errorf("%s %s: answered %v", method, target, got)
			}
		}
	}
	slices.Sort(early)
	return strings.Join(slices.Compact(early), " ")
}

// No request gets an answer before authentication, neither a redirect nor a page. A router may
// answer first only as the table of mounts says, and never on a path of the interface.
func TestNobodyIsAnsweredUnknown(t *testing.T) {
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			s := newSite(t, m)
			if have := s.before(methods, below); have != "" {
				t.Errorf("answered %s", have)
			}
			have := early{
				s.before(methods, odd.outside), s.before(methods, odd.inside), s.before(methods, odd.bare),
				s.before([]string{"BREW"}, below), s.before(methods, odd.escaped),
			}
			if have != m.early {
				t.Errorf("the router answers %+v, not %+v", have, m.early)
			}
		})
	}
}
