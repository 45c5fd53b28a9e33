package strictjson_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"
)

// reasons finds everything wrong with data by slow and obvious means. encoding/json must accept
// data.
func reasons(data []byte, maxDepth int) map[string]bool {
	found := map[string]bool{}
	if !utf8.Valid(data) {
		found[utf] = true
	}
	if halves(string(data)) {
		found[half] = true
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	walk(d, maxDepth, found)
	return found
}

var escapes = regexp.MustCompile(`(?s)\\(u....|.)`)

func halves(s string) bool {
	open := -1 // where a high half ended
	for _, at := range escapes.FindAllStringIndex(s, -1) {
		e := strings.ToLower(s[at[0]:at[1]])
		low := len(e) == 6 && e >= `\udc00` && e <= `\udfff`
		if low != (open == at[0]) || open >= 0 && !low {
			return true
		}
		open = -1
		if len(e) == 6 && e >= `\ud800` && e < `\udc00` {
			open = at[1]
		}
	}
	return open >= 0
}

func walk(d *json.Decoder, depth int, found map[string]bool) {
	token, err := d.Token()
	if err != nil {
		panic(err)
	}
	start, ok := token.(json.Delim)
	if !ok {
		return
	}
	if depth == 0 {
		found[deep] = true
	}
	keys := map[string]bool{}
	for d.More() {
		if start == '{' {
			token, _ := d.Token()
			key := token.(string)
			if keys[key] {
				found[dup] = true
			}
			keys[key] = true
		}
		walk(d, depth-1, found)
	}
	_, _ = d.Token()
}
