package marketplace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/marketplace"
)

// A catalogue of 2,000 templates of about 1 KB.
func BenchmarkTemplate(b *testing.B) {
	var entries []string
	for i := range 2000 {
		entries = append(entries, fmt.Sprintf(`{"id":"t%d","name":"A","manifest":{"version":"1","x":"%s"}}`, i, strings.Repeat("x", 1000)))
	}
	body := `{"templates":[` + strings.Join(entries, ",") + `]}`
	for name, file := range map[string]shelved{"sent again": {body, nil}, "unchanged": {body, map[string]string{"ETag": `"1"`}}} {
		b.Run(name, func(b *testing.B) {
			s := &shelf{files: map[string]shelved{"/templates.json": file}}
			client, from := serve(b, s.ServeHTTP, marketplace.Limits{})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Template(b.Context(), from, "t1999"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("catalogue from its copy", func(b *testing.B) {
		s := &shelf{files: map[string]shelved{"/templates.json": {body, nil}}}
		client, from := serve(b, s.ServeHTTP, marketplace.Limits{})
		for b.Loop() {
			if _, err := client.Catalog(b.Context(), from, time.Hour); err != nil {
				b.Fatal(err)
			}
		}
	})
}
