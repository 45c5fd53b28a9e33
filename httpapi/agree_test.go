package httpapi_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
)

// rows returns what a pattern finds in a document, its groups joined by spaces.
func rows(t *testing.T, file, pattern string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.Join(found[1:], " "))
	}
	return all
}

func sameRows(t *testing.T, what string, have, want []string) {
	t.Helper()
	slices.Sort(have)
	slices.Sort(want)
	for _, row := range want {
		if !slices.Contains(have, row) {
			t.Errorf("%s lacks %s", what, row)
		}
	}
	for _, row := range have {
		if !slices.Contains(want, row) {
			t.Errorf("%s has %s, which the code has not", what, row)
		}
	}
	if len(have) != len(want) && !t.Failed() {
		t.Errorf("%s has a row twice: %v", what, have)
	}
}

// The README lists the routes that there are, and docs/errors.md the codes with their statuses.
func TestDocumentsAgree(t *testing.T) {
	var routes, codes []string
	for _, r := range httpapi.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	sameRows(t, "README.md", rows(t, "../README.md", "(?m)^\\| `(GET|POST|PATCH|DELETE) (/[^`]*)`"), routes)
	for code, status := range httpapi.Statuses {
		codes = append(codes, fmt.Sprint(code, " ", status))
	}
	sameRows(t, "docs/errors.md", rows(t, "../docs/errors.md", "(?m)^\\| `([a-z_]+)` \\| ([0-9]{3}) \\|"), codes)
}
