package bench_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
)

// BenchmarkDecode compares package httpapi's reading and decoding of a request that creates a
// template with a lenient decoding of the same bytes: into the same struct, which keeps the
// manifest unchanged, and into a map.
func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{manifestSize, 209_000} {
		body := []byte(`{"id":"one","name":"One","description":"What it is for","category":"a","tags":["a","b"],"integrations":["mail"],"manifest":` + makeManifest(size, 3) + `}`)
		for _, indented := range []bool{false, true} {
			if indented {
				var wider bytes.Buffer
				if err := json.Indent(&wider, body, "", "  "); err != nil {
					b.Fatal(err)
				}
				body = wider.Bytes()
			}
			b.Run(fmt.Sprintf("%d/indented=%v", size, indented), func(b *testing.B) { decode(b, body) })
		}
	}
}

func decode(b *testing.B, body []byte) {
	var strict, lenient wire.CreateTemplate
	decodings := []side{
		{name: "map", call: func() error { return json.Unmarshal(body, new(map[string]any)) }},
		{name: "unmarshal", call: func() error {
			lenient = wire.CreateTemplate{}
			return json.Unmarshal(body, &lenient)
		}},
		{name: "service", call: func() error {
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			var read bytes.Buffer
			read.Grow(int(r.ContentLength) + bytes.MinRead)
			_, err := read.ReadFrom(http.MaxBytesReader(nil, r.Body, httpapi.DefaultMaxBody))
			strict = wire.CreateTemplate{}
			return errors.Join(err, strictjson.Unmarshal(read.Bytes(), svc.MaxNesting, &strict))
		}},
	}
	for _, s := range decodings {
		if err := s.call(); err != nil {
			b.Fatal(err)
		}
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, lenient.Manifest)
	lenient.Manifest = compact.Bytes()
	if err := errors.Join(err, equal(strict, lenient)); err != nil {
		b.Fatal(err)
	}
	compare(b, decodings...)
}
