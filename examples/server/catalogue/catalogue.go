// Package catalogue is a catalogue of templates for hosts of agent memory, in the form that package marketplace reads: what
// the example server installs from when there is no network.
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

// Files returns the catalogue: templates.json, and the manifests that it names.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // the name is a constant
	}
	return files
}

// Handler serves the files at the paths that they have in the catalogue, with an ETag, so that asking again costs
// little. Directories are not listed.
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
