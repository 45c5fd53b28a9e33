package housecheck_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/extsvc/svc/internal/expect"
)

// The most that the pages of docs and the README may have.
const (
	mostWords       = 28_000 // in all
	mostWordsOfPage = 1_500
	longSentence    = 25 // words
	mostLong        = 5  // percent of all sentences
	mostMarks       = 10
)

// marks are phrases that are hard to read for an engineer whose first language is not English: noun
// phrases and question words as subjects, home-made words, and words with a more common one.
var marks = []*regexp.Regexp{
	regexp.MustCompile(`(?:^|[.:;,] )(?:Who|Whoever|Whose|What) [a-z ]+[^?]*$`),
	regexp.MustCompile(`(?i)\bof (?:its|his|her|their|our|your|one's) own\b|\bof (?:ours|yours|theirs|whom)\b|\bone's\b`),
	regexp.MustCompile(`(?i)\b(?:all|an|the) (?:answer|failure)s? of [1-5]\d\d\b`),
	regexp.MustCompile(`(?i)\b(?:anew|one moment|news|beside|in silence|half-way|no more|any more|at once|alone|meanwhile)\b`),
	regexp.MustCompile(`(?i), too\b|\balso not\b|\bis told\b|\bit is no\b|\b(?:is|are) there[.,]|\bhas its way\b|\bgoes? round\b`),
	regexp.MustCompile(`(?i)\b(?:shelf|barrage|all else|the same holds|does the rest|nobody's)\b`),
	regexp.MustCompile(`(?i)\b(?:nor|so) (?:do|does|is|are|has|have) (?:the|those|that|its|they|it)\b`),
	regexp.MustCompile(`(?i)\b(?:the asking|the having|of the being)\b|'s (?:being|having)\b`),
}

// lane is a word of the code that says nothing to a reader of pages.
var lane = regexp.MustCompile(`(?i)\blanes?\b`)

func isMarked(sentence string) bool {
	return slices.ContainsFunc(marks, func(mark *regexp.Regexp) bool { return mark.MatchString(sentence) })
}

// marksOfComments returns the sentences with marks in the comments of a Go file.
func marksOfComments(t *testing.T, name, text string) (marked []string) {
	file := must(parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution))
	for _, comment := range file.Comments {
		for paragraph := range strings.SplitSeq(comment.Text(), "\n\n") {
			for _, s := range sentences(strings.Join(strings.Fields(paragraph), " ")) {
				if isMarked(s) {
					marked = append(marked, name+": "+s)
				}
			}
		}
	}
	return marked
}

// TestControlCharacters: sources and pages have none but tabs and line ends.
func TestControlCharacters(t *testing.T) {
	t.Chdir("../..")
	files, pages := sources(t)
	for name, lines := range files {
		pages[name] = strings.Join(lines, "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		expect.Holds(t, !controls(pages[name]), name, " has no control character")
	}
	expect.Holds(t, controls("who has own\x01sources"), "a planted control character is found")
}

func controls(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' })
}

// TestComments: comments of the sources are as clear as the pages.
func TestComments(t *testing.T) {
	t.Chdir("../..")
	files, _ := sources(t)
	var marked []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, "_test.go") {
			marked = append(marked, marksOfComments(t, name, strings.Join(files[name], "\n"))...)
		}
	}
	expect.Holds(t, len(marked) <= mostMarks, len(marked), " marks of unclear English:\n", strings.Join(marked, "\n"))
	planted := "package p\n\n// It has a map of its own. It is\n// read at once.\nvar x int // not read any more\n"
	if found := marksOfComments(t, "p.go", planted); len(found) != 3 {
		t.Errorf("of three planted marks, %q are found", found)
	}
}

var (
	fencedBlock = regexp.MustCompile("(?ms)^[ \\t]*```[^\\n]*\\n.*?^[ \\t]*```[ \\t]*$")
	jsonBlock   = regexp.MustCompile("(?ms)^[ \\t]*```json\\n(.*?)^[ \\t]*```[ \\t]*$")
	linked      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	sentenceEnd = regexp.MustCompile("[.!?][\"')*`]*\\s+[\"'(*`\\[]*[A-Z0-9]")
	item        = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
)

// prose returns the paragraphs and list items of a page, without code, tables, headings and comments.
func prose(page string) (all []string) {
	open := false
	for line := range strings.Lines(fencedBlock.ReplaceAllString(page, "")) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "<!--") {
			open = false
			continue
		}
		text = linked.ReplaceAllString(text, "]")
		if begins := item.MatchString(line); begins || !open {
			all = append(all, strings.TrimSpace(item.ReplaceAllString(text, "")))
		} else {
			all[len(all)-1] += " " + text
		}
		open = true
	}
	return all
}

func sentences(paragraph string) (all []string) {
	for {
		at := sentenceEnd.FindStringIndex(paragraph)
		if at == nil {
			return append(all, paragraph)
		}
		end := at[0] + strings.IndexFunc(paragraph[at[0]:], unicode.IsSpace)
		all = append(all, paragraph[:end])
		paragraph = strings.TrimSpace(paragraph[end:])
	}
}

func words(text string) (n int) {
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// faultsOfPages returns what is wrong with pages by their names. Code does not count as words.
func faultsOfPages(pages map[string]string) (faults []string) {
	total, count, long, marked := 0, 0, []string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		n := words(fencedBlock.ReplaceAllString(pages[name], ""))
		if total += n; n > mostWordsOfPage {
			faults = append(faults, fmt.Sprintf("%s has %d words", name, n))
		}
		for _, paragraph := range prose(pages[name]) {
			for _, s := range sentences(paragraph) {
				if count++; words(s) > longSentence {
					long = append(long, name+": "+s)
				}
				if isMarked(s) || lane.MatchString(s) {
					marked = append(marked, name+": "+s)
				}
			}
		}
		for i, block := range jsonBlock.FindAllStringSubmatch(pages[name], -1) {
			if !json.Valid([]byte(block[1])) {
				faults = append(faults, fmt.Sprintf("%s: JSON block %d does not parse", name, i+1))
			}
		}
	}
	if total > mostWords {
		faults = append(faults, fmt.Sprintf("all pages have %d words", total))
	}
	if len(long)*100 > mostLong*count {
		faults = append(faults, fmt.Sprintf("%d of %d sentences are long:\n%s", len(long), count, strings.Join(long, "\n")))
	}
	if len(marked) > mostMarks {
		faults = append(faults, fmt.Sprintf("%d marks of unclear English:\n%s", len(marked), strings.Join(marked, "\n")))
	}
	return faults
}

func documentation(t *testing.T) map[string]string {
	t.Helper()
	_, all := sources(t)
	maps.DeleteFunc(all, func(name, _ string) bool { return name != "README.md" && !strings.HasPrefix(name, "docs/") })
	return all
}

func TestPages(t *testing.T) {
	t.Chdir("../..")
	pages := documentation(t)
	if len(pages) < 20 {
		t.Fatalf("only %d pages", len(pages))
	}
	for _, fault := range faultsOfPages(pages) {
		t.Error(fault)
	}
}

func TestPlantedFaultsOfPages(t *testing.T) {
	clear := strings.Repeat("The Service answers. ", 40)
	for page, want := range map[string]int{
		clear:                     0,
		strings.Repeat(clear, 13): 1, // a long page
		clear + strings.Repeat("and so on ", 9) + ".":          0, // one long sentence in forty
		"The Service " + strings.Repeat("and so on ", 9) + ".": 1,
		"```sh\n" + strings.Repeat("x ", 2000) + "\n```\n":     0,
		strings.Repeat("What waits goes round. ", mostMarks+1): 1,
		strings.Repeat("It has a map of its own. ", mostMarks): 0,
		"```json\n{\"a\": 1}\n```\n":                           0,
		"- x\n\n  ```json\n  {\"a\": …}\n  ```\n":              1,
	} {
		faults := faultsOfPages(map[string]string{"p.md": page})
		expect.Holds(t, len(faults) == want, page, " has the faults ", faults)
	}
	many := map[string]string{}
	for i := range mostWords/1200 + 1 {
		many[fmt.Sprint(i)] = strings.Repeat(clear, 10)
	}
	if faults := faultsOfPages(many); len(faults) != 1 {
		t.Errorf("too many words are not found: %q", faults)
	}
}

// headingOf returns the anchor of a heading, as GitHub makes it.
func headingOf(line string) string {
	text := strings.ToLower(linked.ReplaceAllString(strings.TrimSpace(strings.TrimLeft(line, "#")), "]"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return r
		}
		return -1
	}, text)
}

// deadLinksOfPages returns the relative links that lead to no file or to no heading.
func deadLinksOfPages(pages map[string]string, exists func(string) bool) (dead []string) {
	anchors := map[string]bool{}
	for name, page := range pages {
		for line := range strings.Lines(fencedBlock.ReplaceAllString(page, "")) {
			if strings.HasPrefix(line, "#") {
				anchors[name+"#"+headingOf(line)] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, found := range linked.FindAllStringSubmatch(fencedBlock.ReplaceAllString(pages[name], ""), -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			file, anchor, has := strings.Cut(found[1], "#")
			if file = path.Join(path.Dir(name), file); strings.HasPrefix(found[1], "#") {
				file = name
			}
			if !exists(file) || has && !anchors[file+"#"+anchor] {
				dead = append(dead, name+": "+found[1])
			}
		}
	}
	return dead
}

func TestLinksOfPages(t *testing.T) {
	t.Chdir("../..")
	_, pages := sources(t)
	exists := func(name string) bool { _, err := os.Stat(name); return err == nil }
	for _, dead := range deadLinksOfPages(pages, exists) {
		t.Error(dead)
	}
	planted := map[string]string{
		"a.md":   "# A page\n[b](d/b.md#one-two) [self](#a-page) [web](https://example.org/x.md)\n```\n[c](c.md)\n```\n",
		"d/b.md": "## One `two`\n[up](../a.md) [lost](a.md) [wrong](../a.md#none) [gone](#gone)\n",
	}
	in := func(name string) bool { return planted[name] != "" }
	if found := deadLinksOfPages(planted, in); len(found) != 3 {
		t.Errorf("planted links: %q", found)
	}
}

// TestDiagrams: each diagram is well-formed, has a name and real text, and colours for light and dark.
func TestDiagrams(t *testing.T) {
	t.Chdir("../..")
	files, err := filepath.Glob("docs/images/*.svg")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text := must(os.ReadFile(name))
		if err := xml.Unmarshal(text, new(struct{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{"<title ", "<desc ", "<text ", "prefers-color-scheme:dark"} {
			expect.Holds(t, strings.Contains(string(text), part), name, " has ", part)
		}
	}
}
