package upgrade

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// exchange is a request with its answer.
type exchange struct {
	request string // as a script has it, with the values of variables
	status  string
	headers map[string]string
	body    any
}

// shown are the headers of answers that clients rely on across requests.
var shown = []string{"ETag", "Link", "Location", "Retry-After", "WWW-Authenticate"}

func newExchange(request string, response *http.Response, body []byte) (e exchange, err error) {
	e = exchange{request: request, status: fmt.Sprint(response.StatusCode), headers: map[string]string{}}
	for _, name := range shown {
		if value := response.Header.Get(name); value != "" {
			e.headers[name] = value
		}
	}
	if strings.HasSuffix(response.Request.URL.Path, "/templates") {
		delete(e.headers, "ETag") // each process has its own for a list
	}
	e.body, err = decoded(body)
	return e, err
}

// decoded returns a JSON value with its numbers as they are written. Of a problem it returns the code:
// texts of errors are no promise. nil: the body is empty.
func decoded(body []byte) (value any, err error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err = decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("%.100s: %w", body, err)
	}
	if problem, is := value.(map[string]any); is && problem["code"] != nil && problem["status"] != nil {
		value = map[string]any{"code": problem["code"]}
	}
	return value, nil
}

// String writes the exchange in three lines: the request, the status with headers, and the body.
func (e exchange) String() string {
	var b bytes.Buffer
	b.WriteString(e.request + "\n" + e.status)
	for _, name := range slices.Sorted(maps.Keys(e.headers)) {
		b.WriteString("\t" + name + ": " + e.headers[name])
	}
	b.WriteByte('\n')
	if e.body != nil {
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(e.body); err != nil {
			panic(err) // it was JSON
		}
	}
	return b.String()
}

func parseExchange(text string) (e exchange, err error) {
	lines := append(strings.SplitN(text, "\n", 3), "", "")
	fields := strings.Split(lines[1], "\t")
	e = exchange{request: lines[0], status: fields[0], headers: map[string]string{}}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, ": ")
		e.headers[name] = value
	}
	e.body, err = decoded([]byte(lines[2]))
	return e, err
}

// without removes what may differ: headers, and fields of any object of the body.
func (e exchange) without(names map[string]string) exchange {
	e.headers = maps.Clone(e.headers)
	for name := range names {
		delete(e.headers, name)
	}
	e.body = withoutFields(e.body, names)
	return e
}

func withoutFields(value any, names map[string]string) any {
	switch value := value.(type) {
	case []any:
		list := []any{}
		for _, each := range value {
			list = append(list, withoutFields(each, names))
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name, each := range value {
			if _, may := names[name]; !may {
				object[name] = withoutFields(each, names)
			}
		}
		return object
	}
	return value
}

// difference says how two answers differ, "" when they are the same but for what may differ.
func difference(kept, now exchange, may map[string]string) string {
	kept, now = kept.without(may), now.without(may)
	if reflect.DeepEqual(kept, now) {
		return ""
	}
	return fmt.Sprintf("was\n%s\nand is\n%s", kept, now)
}

// record is what a kept database comes with: its keys by name, and the exchanges.
type record struct {
	keys      map[string]string
	exchanges []exchange
}

func (r record) String() string {
	blocks := []string{}
	for _, name := range slices.Sorted(maps.Keys(r.keys)) {
		blocks = append(blocks, name+" "+r.keys[name])
	}
	blocks = []string{strings.Join(blocks, "\n") + "\n"}
	for _, each := range r.exchanges {
		blocks = append(blocks, each.String())
	}
	return strings.Join(blocks, "\n")
}

var blank = regexp.MustCompile(`\n\n+`)

func readRecord(path string) (r record, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	blocks := blank.Split(strings.TrimSpace(string(text)), -1)
	r.keys = map[string]string{}
	for line := range strings.Lines(blocks[0]) {
		name, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		r.keys[name] = key
	}
	for _, block := range blocks[1:] {
		e, err := parseExchange(block)
		if err != nil {
			return r, err
		}
		r.exchanges = append(r.exchanges, e)
	}
	return r, nil
}
