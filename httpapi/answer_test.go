package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/testscript"
)

// caller makes requests with one bearer.
type caller struct {
	*site
	bearer string // "" none
	t      *testing.T
}

func (s *site) as(bearer string) caller { return caller{s, bearer, s.t} }

// in is the same caller in a subtest.
func (c caller) in(t *testing.T) caller { return caller{c.site, c.bearer, t} }

// admin is a caller who may do everything.
func (s *site) admin() caller { return s.as(s.key("admin")) }

// get, post … send one request; the target is behind the prefix and goes out byte by byte.
func (c caller) get(target string) answer    { c.t.Helper(); return c.send("GET", target, "") }
func (c caller) delete(target string) answer { c.t.Helper(); return c.send("DELETE", target, "") }
func (c caller) post(target, body string) answer {
	c.t.Helper()
	return c.send("POST", target, body)
}
func (c caller) patch(target, body string) answer {
	c.t.Helper()
	return c.send("PATCH", target, body)
}

func (c caller) send(method, target, body string) answer {
	c.t.Helper()
	return c.sendWith(method, target, body, nil)
}

func (c caller) sendWith(method, target, body string, change func(*http.Request)) answer {
	c.t.Helper()
	r := must(http.NewRequest(method, c.server.URL, strings.NewReader(body)))
	r.URL = &url.URL{Scheme: "http", Host: r.URL.Host, Opaque: c.prefix + target}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	if change != nil {
		change(r)
	}
	client := http.Client{
		Transport:     c.server.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatalf("%s %s: read answer: %v", method, target, err)
	}
	a := answer{t: c.t, request: method + " " + clip(target) + " " + clip(body), status: response.StatusCode, header: response.Header, body: data}
	a.checkForm(method)
	c.site.note(a)
	return a
}

// note records what was answered, and learns the secret of a new key.
func (s *site) note(a answer) {
	body := a.body
	var issued struct {
		Key string `json:"api_key"`
	}
	if a.status == http.StatusCreated && json.Unmarshal(body, &issued) == nil && issued.Key != "" {
		s.keepSecret(issued.Key)
		body = bytes.Replace(body, []byte(issued.Key), nil, 1)
	}
	fmt.Fprintf(s.said, "%v\n%s\n", a.header, body)
	if id := a.header.Get("X-Request-Id"); id != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answered[fmt.Sprint(id, " ", a.status)]++
	}
}

// recorded sends a request to a handler without a connection. A body is JSON.
func recorded(h http.Handler, method, target, bearer, body string, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	for _, change := range changes {
		change(r)
	}
	h.ServeHTTP(w, r)
	return w
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// answer is one answer.
type answer struct {
	t       *testing.T
	request string
	status  int
	header  http.Header
	body    []byte
}

func (a answer) checkForm(method string) {
	a.t.Helper()
	kind := a.header.Get("Content-Type")
	switch {
	case a.header.Get("Location") != "" || a.status >= 300 && a.status < 400 && a.status != http.StatusNotModified:
		a.t.Errorf("%s: %d redirects to %q", a.request, a.status, a.header.Get("Location"))
	case method == http.MethodHead:
		expect.Holds(a.t, len(a.body) == 0, a.request, string(a.body))
	case a.status >= 400:
		a.checkProblem(kind)
	case a.status == http.StatusNoContent, a.status == http.StatusNotModified:
		expect.Holds(a.t, len(a.body) == 0 && kind == "", a.request, kind, string(a.body))
	case kind != "application/json":
		a.t.Errorf("%s: %d with Content-Type %q", a.request, a.status, kind)
	}
}

// checkProblem checks the shape of a failure (RFC 9457), and the headers that go with its status.
func (a answer) checkProblem(kind string) {
	a.t.Helper()
	var p map[string]any
	if err := json.Unmarshal(a.body, &p); err != nil || kind != "application/problem+json" {
		a.t.Errorf("%s: %d is no problem: %q, Content-Type %q", a.request, a.status, clip(string(a.body)), kind)
		return
	}
	want := []string{"code", "detail", "status", "title", "type"}
	if a.status == http.StatusBadRequest {
		want = append(want, "errors")
	}
	if p["code"] == "edited_locally" {
		want = append(want, "fields")
	}
	slices.Sort(want)
	expect.Equal(a.t, a.request, slices.Sorted(maps.Keys(p)), want)
	detail, _ := p["detail"].(string)
	if p["status"] != float64(a.status) || p["title"] != http.StatusText(a.status) || p["type"] == "" || p["code"] == "" || detail == "" {
		a.t.Errorf("%s: not a whole problem: %s", a.request, a.body)
	}
	for _, inside := range []string{"goroutine", ".go:", "sql:", "json:", "panic", "dial tcp"} {
		expect.Holds(a.t, !strings.Contains(detail, inside), a.request, detail)
	}
	a.checkErrors(p["errors"])
	for name, statuses := range map[string][]int{"WWW-Authenticate": {401}, "Allow": {405}, "Retry-After": {429, 503}} {
		expect.Equal(a.t, a.request, a.header.Get(name) != "", slices.Contains(statuses, a.status))
	}
}

// checkErrors checks the list of a 400: each element a detail and either a pointer or a parameter.
func (a answer) checkErrors(list any) {
	a.t.Helper()
	if a.status != http.StatusBadRequest {
		return
	}
	elements, _ := list.([]any)
	for _, element := range elements {
		e, _ := element.(map[string]any)
		pointer, isPointer := e["pointer"].(string)
		parameter, isParameter := e["parameter"].(string)
		good := len(e) == 2 && e["detail"] != "" && isPointer != isParameter
		good = good && (!isPointer || pointer == "" || pointer[0] == '/') && (!isParameter || parameter != "")
		expect.Holds(a.t, good, a.request, e)
	}
	expect.Holds(a.t, len(elements) != 0, a.request)
}

func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: answered %d, want %d: %s", a.request, a.status, status, clip(string(a.body)))
	}
	return a
}

func (a answer) fails(status int, code string) answer {
	a.t.Helper()
	a.is(status)
	if have, _ := a.value()["code"].(string); have != code {
		a.t.Errorf("%s: code %q, want %q", a.request, have, code)
	}
	return a
}

// refuses wants a 400 about exactly these places: pointers begin with a slash or are "", parameters are plain.
func (a answer) refuses(places ...string) {
	a.t.Helper()
	a.fails(400, "invalid_request")
	slices.Sort(places)
	expect.Equal(a.t, a.request+string(a.body), a.places(), places)
}

func (a answer) places() (all []string) {
	errors, _ := a.value()["errors"].([]any)
	for _, element := range errors {
		e := element.(map[string]any)
		if pointer, isPointer := e["pointer"]; isPointer {
			all = append(all, pointer.(string))
		} else {
			all = append(all, e["parameter"].(string))
		}
	}
	slices.Sort(all)
	return all
}

// short is the answer as a script has it.
func (a answer) short() string {
	if a.status < 400 || len(a.body) == 0 {
		return strings.NewReplacer(`":`, `": `, `,"`, `, "`, `,{`, `, {`).Replace(string(a.body))
	}
	problem := a.value()
	if code := problem["code"]; code != "invalid_request" {
		return fmt.Sprint(code, ": ", problem["detail"])
	}
	if places := a.places(); len(places) > 0 && places[0] != "" {
		return strings.Join(places, " ")
	}
	return "body"
}

// differs compares with the form that a script has, as README.md describes it.
func (a answer) differs(want string, vars names) error {
	have := a.short()
	code, _, _ := strings.Cut(have, ":")
	switch {
	case want == "", code == want, a.status == 400 && want == "invalid_request":
		return nil
	case want[0] == '{', want[0] == '[':
		return vars.differ("", parse(a.t, []byte(want)), parse(a.t, a.body))
	}
	return vars.differ("body", want, have)
}

// json wants a body that is this JSON value: the same keys, numbers digit for digit.
func (a answer) json(want string) {
	a.t.Helper()
	if err := names(nil).differ("", parse(a.t, []byte(want)), parse(a.t, a.body)); err != nil {
		a.t.Errorf("%s: %v\nhave %s\nwant %s", a.request, err, a.body, want)
	}
}

var (
	header   = regexp.MustCompile(`^([A-Z][A-Za-z-]+):(\S*) ?`)
	variable = regexp.MustCompile(`\$[a-z]\w*`)
)

// cutHeaders cuts "Name:value …" off the beginning of a text.
func cutHeaders(text string) (http.Header, string) {
	headers := http.Header{}
	for match := header.FindStringSubmatch(text); match != nil; match = header.FindStringSubmatch(text) {
		headers.Add(match[1], strings.ReplaceAll(match[2], `\s`, " "))
		text = text[len(match[0]):]
	}
	return headers, text
}

// names are values that scripts have given names to. Nil: none, and none is given.
type names map[string]string

func (n names) expand(text string) string {
	return testscript.Expand(text, func(name string) (string, bool) {
		value, bound := n[name]
		return value, bound
	})
}

// gives reports whether what is wanted is a name for what there is, or for what stands in its quotes, and gives it.
func (n names) gives(want, have any) bool {
	name, is := want.(string)
	if inside := strings.Trim(name, `"`); inside != name {
		name, have = inside, strings.Trim(fmt.Sprint(have), `"`)
	}
	if is = is && n != nil && name != "" && variable.FindString(name) == name && n.expand(name) == name; is {
		n[name[1:]] = fmt.Sprint(have)
	}
	return is
}

// differ returns the first place where two JSON values differ.
func (n names) differ(at string, want, have any) error {
	switch w := want.(type) {
	case map[string]any:
		h, _ := have.(map[string]any)
		rest := []string{} // what names are given to comes first
		for key := range w {
			if value, there := h[key]; !there || !n.gives(w[key], value) {
				rest = append(rest, key)
			}
		}
		for _, key := range rest {
			value, there := h[key]
			if !there {
				return fmt.Errorf("%s/%s is missing", at, key)
			}
			if err := n.differ(at+"/"+key, w[key], value); err != nil {
				return err
			}
		}
		if h != nil && len(h) == len(w) {
			return nil
		}
	case []any:
		h, _ := have.([]any)
		for i := range min(len(w), len(h)) {
			if err := n.differ(fmt.Sprint(at, "/", i), w[i], h[i]); err != nil {
				return err
			}
		}
		if h != nil && len(h) == len(w) {
			return nil
		}
	case string:
		if n.gives(w, have) || n.expand(w) == have {
			return nil
		}
		want = n.expand(w)
	default:
		if want == have {
			return nil
		}
	}
	return fmt.Errorf("%s is %v, want %v", at, have, want)
}

func (a answer) value() map[string]any {
	a.t.Helper()
	value, isObject := parse(a.t, a.body).(map[string]any)
	if !isObject {
		a.t.Fatalf("%s: not an object: %s", a.request, clip(string(a.body)))
	}
	return value
}

func (a answer) text(key string) string {
	a.t.Helper()
	s, isText := a.value()[key].(string)
	if !isText {
		a.t.Fatalf("%s: no text %q in %s", a.request, key, clip(string(a.body)))
	}
	return s
}

// texts returns one string member of each element of a list, which may be in an object.
func (a answer) texts(key string) []string {
	a.t.Helper()
	texts := []string{}
	for _, row := range a.rows() {
		texts = append(texts, row[key].(string))
	}
	return texts
}

func parse(t *testing.T, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("not JSON: %v: %q", err, clip(string(data)))
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Fatalf("something follows the JSON: %q", clip(string(data)))
	}
	return value
}

// marshal writes JSON as it is meant to be read, without escapes for HTML.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return b.Bytes(), err
}
