package strictjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/strictjson"
)

type payload struct {
	ID       string          `json:"id"`
	Tags     []string        `json:"tags"`
	Manifest json.RawMessage `json:"manifest"`
}

// document returns about 200 KB, like a large manifest.
func document(indent bool) []byte {
	var b strings.Builder
	b.WriteString(`{"id":"t1","tags":["a","b"],"manifest":{"version":"1","steps":[`)
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"step-%d","retries":%d,"timeout":%d.5e1,"on":true,"else":null,`+
			`"text":"Zusammenfassung für „%d“\nand a line of plain words that runs on for a while, as prose does","args":["--a","b",[1,2,3]]}`, i, i%7, i, i)
	}
	b.WriteString(`]}}`)
	if !indent {
		return []byte(b.String())
	}
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(b.String()), "", "  "); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// BenchmarkCompact also reports its time as a multiple of json.Valid and json.Compact on the same
// bytes.
func BenchmarkCompact(b *testing.B) {
	var buf bytes.Buffer
	compact := func(d []byte) {
		if _, err := strictjson.Compact(d, 64); err != nil {
			b.Fatal(err)
		}
	}
	ratios(b, compact,
		rival{"xValid", func(d []byte) { json.Valid(d) }},
		rival{"xCompact", func(d []byte) { buf.Reset(); _ = json.Compact(&buf, d) }})
}

func BenchmarkUnmarshal(b *testing.B) {
	unmarshal := func(d []byte) {
		var p payload
		if err := strictjson.Unmarshal(d, 64, &p); err != nil {
			b.Fatal(err)
		}
	}
	ratios(b, unmarshal, rival{"xUnmarshal", func(d []byte) { var p payload; _ = json.Unmarshal(d, &p) }})
}

func BenchmarkManyKeys(b *testing.B) {
	doc := manyKeys(100_000)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := strictjson.Compact(doc, 64); err != nil {
			b.Fatal(err)
		}
	}
}

type rival struct {
	name string
	run  func([]byte)
}

func ratios(b *testing.B, own func([]byte), rivals ...rival) {
	for _, indent := range []bool{false, true} {
		b.Run(fmt.Sprintf("indent=%v", indent), func(b *testing.B) {
			doc := document(indent)
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				own(doc)
			}
			each := b.Elapsed() / time.Duration(b.N)
			for _, r := range rivals {
				b.ReportMetric(float64(each)/float64(timed(r.run, doc)), r.name)
			}
		})
	}
}

func timed(run func([]byte), doc []byte) time.Duration {
	const rounds = 200
	start := time.Now()
	for range rounds {
		run(doc)
	}
	return time.Since(start) / rounds
}

func manyKeys(n int) []byte {
	b := []byte("{")
	for i := range n {
		b = fmt.Appendf(b, `"k%d":%d,`, i, i)
	}
	b[len(b)-1] = '}'
	return b
}
