package marketplace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/extsvc/svc"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// parsed is an entry with what is wrong with it.
type parsed struct {
	svc.CatalogEntry
	limits  Limits
	signed  bool   // the catalogue is: it answers for the manifests, too
	problem string // the first; "" good
}

// parseEntry reads an entry of a catalogue that is strict JSON without white space. Of a bad one the id is there if it
// can be read.
func parseEntry(data []byte, limits Limits, signed bool) parsed {
	p := parsed{limits: limits, signed: signed}
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

func (p *parsed) field(key string, value []byte) {
	switch key {
	case "id":
		p.ID = p.text(key, value)
	case "name":
		p.Content.Name = p.text(key, value)
	case "description":
		description := p.optional(key, value)
		p.Content.Description = &description
	case "category":
		category := p.optional(key, value)
		p.Content.Category = &category
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

// complete notes what is missing, and two manifests.
func (p *parsed) complete() {
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
		p.problem = "it must have a manifest_digest, because the catalogue is signed and its manifest_file is not"
	case inline && p.ManifestDigest != "":
		if digest, err := manifestDigest(p.Content.Manifest); err != nil || digest != p.ManifestDigest {
			p.problem = "manifest_digest is not that of the manifest"
		}
	}
}

// bad notes a problem unless there is one already.
func (p *parsed) bad(problem string) {
	if p.problem == "" {
		p.problem = problem
	}
}

// text reads a string that must not be empty.
func (p *parsed) text(key string, value []byte) string {
	s := p.optional(key, value)
	if s == "" {
		p.bad(key + " must not be empty")
	}
	return s
}

func (p *parsed) optional(key string, value []byte) string {
	if value[0] != '"' {
		p.bad(key + " must be a string")
		return ""
	}
	return unquoted(value)
}

func (p *parsed) labels(key string, value []byte) []string {
	if value[0] != '[' {
		p.bad(key + " must be an array of strings")
		return []string{}
	}
	count := 0
	for range elements(value) {
		if count++; count == svc.MaxLabels {
			break
		}
	}
	list := make([]string, 0, count)
	for element := range elements(value) {
		if len(list) == svc.MaxLabels {
			p.bad(fmt.Sprintf("%s must have at most %d elements", key, svc.MaxLabels))
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

// manifest reads an inline manifest. What it returns shares no memory with the catalogue.
func (p *parsed) manifest(value []byte) json.RawMessage {
	if len(value) > p.limits.Manifest {
		p.bad(fmt.Sprintf("manifest must be at most %d bytes", p.limits.Manifest))
	}
	if value[0] != '{' {
		p.bad("manifest must be an object")
	}
	return bytes.Clone(value)
}

func (p *parsed) file(reference string) string {
	if reference == "" {
		return ""
	}
	name, problem := confined(reference)
	if problem != "" {
		p.bad("manifest_file " + problem)
	}
	return name
}
