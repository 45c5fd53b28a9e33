package marketplace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/limits"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// parsedEntry is an entry of a catalogue with its first problem.
type parsedEntry struct {
	svc.CatalogEntry
	limits  Limits
	signed  bool   // the catalogue is signed, so it must vouch for the manifest files
	problem string // the first; "": the entry is good
}

// parseEntry parses an entry, strict JSON without white space. A bad entry has its id if the id is
// readable.
func parseEntry(data []byte, limits Limits, signed bool) parsedEntry {
	p := parsedEntry{limits: limits, signed: signed}
	p.Content.Integrations, p.Content.Tags = []string{}, []string{}
	if data[0] != '{' {
		p.problem = "it must be an object"
		return p
	}
	for key, value := range members(data) {
		if string(value) != "null" {
			p.field(key, value)
		}
	}
	p.complete()
	return p
}

func (p *parsedEntry) field(key string, value []byte) {
	switch key {
	case "id":
		p.ID = p.text(key, value)
	case "name":
		p.Content.Name = p.text(key, value)
	case "description":
		p.Content.Description = new(p.optional(key, value))
	case "category":
		p.Content.Category = new(p.optional(key, value))
	case "integrations":
		p.Content.Integrations = p.labels(key, value)
	case "tags":
		p.Content.Tags = p.labels(key, value)
	case "manifest":
		p.Content.Manifest = p.manifest(value)
	case "manifest_file":
		p.ManifestFile = p.file(p.text(key, value))
	case "manifest_digest":
		if p.ManifestDigest = p.text(key, value); !digestForm.MatchString(p.ManifestDigest) {
			p.bad(`manifest_digest must be "sha256:" and 64 of 0-9 and a-f`)
		}
	}
}

// complete notes a missing field, two manifests or a wrong digest as the problem.
func (p *parsedEntry) complete() {
	inline, file := p.Content.Manifest != nil, p.ManifestFile != ""
	switch {
	case p.problem != "":
	case p.ID == "":
		p.problem = "id is missing"
	case p.Content.Name == "":
		p.problem = "name is missing"
	case inline && file:
		p.problem = "it must not have both manifest and manifest_file"
	case !inline && !file:
		p.problem = "it must have a manifest or a manifest_file"
	case file && p.signed && p.ManifestDigest == "":
		p.problem = "it must have a manifest_digest," +
			" because the catalogue is signed and its manifest_file is not"
	case inline && p.ManifestDigest != "":
		digest, err := manifestDigest(p.Content.Manifest)
		if err != nil || digest != p.ManifestDigest {
			p.problem = "manifest_digest does not match the manifest"
		}
	}
}

// bad notes a problem unless the entry already has one.
func (p *parsedEntry) bad(problem string) {
	if p.problem == "" {
		p.problem = problem
	}
}

// text parses a string that must not be empty.
func (p *parsedEntry) text(key string, value []byte) string {
	s := p.optional(key, value)
	if s == "" {
		p.bad(key + " must not be empty")
	}
	return s
}

func (p *parsedEntry) optional(key string, value []byte) string {
	if value[0] != '"' {
		p.bad(key + " must be a string")
		return ""
	}
	return jcs.Unquote(value)
}

func (p *parsedEntry) labels(key string, value []byte) []string {
	if value[0] != '[' {
		p.bad(key + " must be an array of strings")
		return []string{}
	}
	count := 0
	for range elements(value) {
		if count++; count == limits.Labels {
			break
		}
	}
	list := make([]string, 0, count)
	for element := range elements(value) {
		if len(list) == limits.Labels {
			p.bad(fmt.Sprintf("%s must have at most %d elements", key, limits.Labels))
			break
		}
		if element[0] != '"' {
			p.bad(key + " must be an array of strings")
			break
		}
		list = append(list, p.optional(key, element))
	}
	return list
}

// manifest returns an inline manifest as a copy that shares no memory with the catalogue.
func (p *parsedEntry) manifest(value []byte) json.RawMessage {
	if len(value) > p.limits.Manifest {
		p.bad(fmt.Sprintf("manifest must be at most %d bytes", p.limits.Manifest))
	}
	if value[0] != '{' {
		p.bad("manifest must be an object")
	}
	return bytes.Clone(value)
}

func (p *parsedEntry) file(reference string) string {
	if reference == "" {
		return ""
	}
	name, problem := relativePath(reference)
	if problem != "" {
		p.bad("manifest_file " + problem)
	}
	return name
}
