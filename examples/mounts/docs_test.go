package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/hosting.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/hosting.md lists the answers of routers before authentication; the list is right: see
// TestNobodyIsAnsweredUnknown.
func TestTableOfRouters(t *testing.T) {
	text := page(t)
	for row, names := range map[string][]string{
		"`Mount`, as above":                                    {"net/http", "chi", "echo", "gin"},
		"`mux.Handle(\"/ext/svc/\", api)`":                     {"net/http, Handle", "net/http, StripPrefix"},
		"chi: `r.Mount(\"/ext/svc\", api)`":                    {"chi, Mount"},
		"chi: `r.Handle(\"/ext/svc/*\", api)`":                 {"chi, Handle"},
		"echo: `e.Any(\"/ext/svc/*\", echo.WrapHandler(api))`": {"echo, Any"},
		"gin: `r.Any(\"/ext/svc/*path\", gin.WrapH(api))`":     {"gin, Any", "gin, Any, UseRawPath"},
		"gin: `r.NoRoute(gin.WrapH(api.Mount(page)))`":         {"gin, NoRoute"},
	} {
		for _, name := range names {
			at := slices.IndexFunc(mounts, func(m mount) bool { return m.name == name })
			if at < 0 {
				t.Fatalf("no mount %q", name)
			}
			e := mounts[at].early
			row := strings.Join([]string{"", row, e.outside, e.inside, e.bare, e.method, ""}, " | ")
			row = strings.ReplaceAll(strings.TrimSpace(row), "|  |", "| – |")
			if row = strings.ReplaceAll(row, "|  |", "| – |"); !strings.Contains(text, row+"\n") {
				t.Errorf("docs/hosting.md has not\n%s", row)
			}
		}
	}
}
