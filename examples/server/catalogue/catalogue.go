// Package catalogue holds a catalogue of templates for hosts of agent memory. Package marketplace
// can read it. The example server installs from it without a network.
package catalogue

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed files
var embedded embed.FS

// Files returns the catalogue: templates.json and its manifests.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // the name is a constant
	}
	return files
}

// Handler serves the files at their paths in the catalogue. Each has an ETag, so a second request
// is cheap. Handler does not list directories.
func Handler() http.Handler {
	files := Files()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		data, err := fs.ReadFile(files, name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		sum := sha256.Sum256(data)
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
		http.ServeContent(w, r, path.Base(name), time.Time{}, bytes.NewReader(data))
	})
}
