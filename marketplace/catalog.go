package marketplace

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
)

// Catalog is what a source offers. Every entry of the file is in exactly one of the lists.
type Catalog struct {
	Entries  []Entry   // the good ones, in the order of the file; their ids are unique
	Problems []Problem // the bad ones, in the order of the file
}

// Entry is a template that a source offers.
type Entry struct {
	Index        int         // in the file's templates, from 0
	ID           string      // never ""
	Content      svc.Content // its lists not nil; its Manifest nil when ManifestFile is set
	ManifestFile string      // the path of the manifest, relative to the source and decoded; "" when it is inline
}

// Problem is an entry that cannot be installed.
type Problem struct {
	Index  int    // in the file's templates, from 0
	ID     string // "" when it has none that can be read
	Reason string // a sentence fragment for a person, such as "name is missing"
}

// parseCatalog reads a catalogue. It fails, with a fault, when the file is bad as a whole.
func parseCatalog(data []byte, limits Limits) (Catalog, error) {
	data, err := strictjson.Compact(data, svc.MaxNesting+3) // manifests begin on the fourth level
	if err != nil {
		return Catalog{}, failed(jsonProblem(err), err)
	}
	if data[0] != '{' {
		return Catalog{}, failed(`is bad: it must be an object with an array "templates"`, nil)
	}
	var templates []byte
	for key, value := range members(data) {
		if key == "templates" {
			templates = value
		}
	}
	if len(templates) == 0 || templates[0] != '[' {
		return Catalog{}, failed(`is bad: it must be an object with an array "templates"`, nil)
	}
	return parseEntries(templates, limits)
}

func parseEntries(templates []byte, limits Limits) (Catalog, error) {
	var all []parsed
	count := map[string]int{}
	for value := range elements(templates) {
		if len(all) == limits.Entries {
			return Catalog{}, failed(fmt.Sprintf("has more than %d entries", limits.Entries), nil)
		}
		p := parseEntry(value, limits)
		p.Index = len(all)
		all = append(all, p)
		count[p.ID]++
	}
	var catalog Catalog
	for _, p := range all {
		if p.problem == "" && count[p.ID] > 1 {
			p.problem = "its id is there more than once"
		}
		if p.problem != "" {
			catalog.Problems = append(catalog.Problems, Problem{Index: p.Index, ID: p.ID, Reason: p.problem})
		} else {
			catalog.Entries = append(catalog.Entries, p.Entry)
		}
	}
	return catalog, nil
}

// entry returns the good entry with that id. Errors are as [Client.Template] returns them.
func (c Catalog) entry(from svc.Upstream, id string) (Entry, error) {
	for _, entry := range c.Entries {
		if entry.ID == id {
			return entry, nil
		}
	}
	for _, p := range c.Problems {
		if p.ID == id && id != "" {
			message := "entry " + strconv.Itoa(p.Index) + " of the catalogue is bad: " + p.Reason
			return Entry{}, sourceError(from, svc.CodeSourceFailed, message, nil)
		}
	}
	return Entry{}, &svc.Error{Code: svc.CodeNotFound, Message: named(from) + " has no such template"}
}

// parseManifest reads the file of a manifest. Errors are faults.
func parseManifest(data []byte) (json.RawMessage, error) {
	data, err := strictjson.Compact(data, svc.MaxNesting)
	if err != nil {
		return nil, failed(jsonProblem(err), err)
	}
	if data[0] != '{' {
		return nil, failed("must be a JSON object", nil)
	}
	return data, nil
}

// jsonProblem says what is wrong with a document. A pointer into it may be as long as the document: it is cut.
func jsonProblem(err error) string {
	at, ok := errors.AsType[*strictjson.Error](err)
	if !ok {
		return "is not valid JSON"
	}
	if at.Pointer == "" {
		return "is bad: it " + at.Detail
	}
	return "is bad: " + clip(at.Pointer, 200) + " " + at.Detail
}

func clip(s string, characters int) string {
	for i := range s {
		if characters--; characters < 0 {
			return s[:i] + "…"
		}
	}
	return s
}
