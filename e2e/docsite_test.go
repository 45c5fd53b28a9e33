package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

// readings are the lines that browser/site.js prints on success.
const readings = "searches\nshows diagrams\nprints\nis accessible\n"

// TestDocsSite reads the site of the documentation in a browser: search, diagrams, print, and what axe says of
// each page. Without Chromium, Node.js or its packages it is skipped; with SVC_REQUIRE_NODE=1 it fails instead.
func TestDocsSite(t *testing.T) {
	longtest.Test(t, "the site of the documentation in a browser")
	b, site := newBrowser(t), docsSite(t)
	if out, err := b.readSite(site); err != nil || out != readings {
		t.Errorf("%v: have\n%swant\n%s", err, out, readings)
	}
}

// The check must be able to fail: it sees faults in the site.
func TestDocsSiteFaults(t *testing.T) {
	longtest.Test(t, "that the test of the site finds faults")
	b := newBrowser(t)
	b.kept = append(b.kept, "ONLY=docs/faq.html")
	for fault, planted := range map[string]struct{ file, old, new, says string }{
		"a text without contrast":  {"docs/faq.html", "</h1>", `</h1><p style="color:#888;background:#999">some text</p>`, "color-contrast"},
		"a picture from elsewhere": {"docs/faq.html", "</h1>", `</h1><img alt="x" src="http://127.0.0.1:1/x.png">`, "requests to others"},
		"a wide page":              {"docs/faq.html", "</h1>", `</h1><p style="width:2000px">x</p>`, "scrolls sideways"},
		"no index":                 {"site/index.js", "const", "let other", "Timeout"},
	} {
		t.Run(fault, func(t *testing.T) {
			site := docsSite(t)
			name := filepath.Join(site, planted.file)
			text := strings.Replace(string(must(os.ReadFile(name))), planted.old, planted.new, 1)
			must(0, os.WriteFile(name, []byte(text), 0o600))
			b := b
			if planted.says == "Timeout" {
				b.kept = append(slices.Clip(b.kept), "PATIENCE=2000")
			}
			if out, err := b.readSite(site); err == nil || !strings.Contains(out, planted.says) {
				t.Errorf("not seen: %s", out)
			}
		})
	}
}

// docsSite writes the site into a folder of the test.
func docsSite(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "-C", "../docs/site", "run", ".", folder)
	command.Env = append(os.Environ(), "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

func (b browser) readSite(folder string) (string, error) {
	b.Environment = append(slices.Clip(b.kept), "SITE="+folder, "CHROMIUM="+b.chromium)
	return b.Try("node", "site.js")
}
