package marketplace

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/limits"
)

// parseCatalog parses a catalogue. It returns a fault if the file is bad as a whole. Only a signed
// catalogue has a serial and an expiry: without a signature, anybody could have written them.
func parseCatalog(data []byte, l Limits, signed bool) (svc.Catalog, error) {
	data, err := strictjson.Compact(data, limits.Nesting+3) // manifests begin on the fourth level
	if err != nil {
		return svc.Catalog{}, newFault(jsonProblem(err), err)
	}
	const noTemplates = `is bad: it must be an object with an array "templates"`
	if data[0] != '{' {
		return svc.Catalog{}, newFault(noTemplates, nil)
	}
	var templates, renames, serial, expires []byte
	for key, value := range members(data) {
		switch key {
		case "templates":
			templates = value
		case "renames":
			renames = value
		case "serial":
			serial = value
		case "expires":
			expires = value
		}
	}
	if len(templates) == 0 || templates[0] != '[' {
		return svc.Catalog{}, newFault(noTemplates, nil)
	}
	catalog, err := parseEntries(templates, l, signed)
	if err == nil {
		catalog.Renames, err = parseRenames(renames, l)
	}
	if err == nil && signed {
		catalog.Serial, catalog.Expires, err = parseSeries(serial, expires)
	}
	catalog.Revision = jcs.Digest(data)
	return catalog, err
}

// parseSeries parses the serial and the expiry of a signed catalogue.
func parseSeries(serial, expires []byte) (number int64, end time.Time, err error) {
	if json.Unmarshal(serial, &number) != nil || number < 1 || number > maxSerial {
		return 0, end, newFault("is bad: a signed catalogue must have a serial,"+
			" a whole number from 1 to 2^53", nil)
	}
	if expires != nil && string(expires) != "null" && json.Unmarshal(expires, &end) != nil {
		return 0, end, newFault("is bad: expires must be a time like 2030-01-02T15:04:05Z", nil)
	}
	return number, end, nil
}

func parseEntries(templates []byte, limits Limits, signed bool) (svc.Catalog, error) {
	number := 0
	for range elements(templates) {
		if number++; number > limits.Entries {
			reason := fmt.Sprintf("has more than %d entries", limits.Entries)
			return svc.Catalog{}, newFault(reason, nil)
		}
	}
	// The contents of bad entries are dropped immediately, and no list grows: a large catalogue
	// takes several times its size in memory.
	catalog := svc.Catalog{Entries: make([]svc.CatalogEntry, 0, number)}
	count, index := make(map[string]int, number), 0
	for value := range elements(templates) {
		p := parseEntry(value, limits, signed)
		p.Index = index
		if index++; p.problem != "" {
			catalog.Problems = append(catalog.Problems, p.asProblem())
		} else {
			catalog.Entries = append(catalog.Entries, p.CatalogEntry)
		}
		count[p.ID]++
	}
	catalog.Entries = slices.DeleteFunc(catalog.Entries, func(e svc.CatalogEntry) bool {
		twice := count[e.ID] > 1
		if twice {
			p := parsedEntry{CatalogEntry: e, problem: "its id occurs more than once: " +
				"each entry needs an id of its own"}
			catalog.Problems = append(catalog.Problems, p.asProblem())
		}
		return twice
	})
	if len(catalog.Entries) < number {
		catalog.Entries = slices.Clone(catalog.Entries) // the cache counts what it holds
	}
	slices.SortFunc(catalog.Problems, func(a, b svc.CatalogProblem) int {
		return a.Index - b.Index
	})
	return catalog, nil
}

func (p parsedEntry) asProblem() svc.CatalogProblem {
	return svc.CatalogProblem{Index: p.Index, ID: p.ID, Reason: p.problem}
}

// entryOf returns the good entry with that id. It returns the errors of [Client.Template].
func entryOf(catalog svc.Catalog, from svc.Upstream, id string) (svc.CatalogEntry, error) {
	var none svc.CatalogEntry
	for _, entry := range catalog.Entries {
		if entry.ID == id {
			return entry, nil
		}
	}
	for _, p := range catalog.Problems {
		if p.ID == id && id != "" {
			message := "entry " + strconv.Itoa(p.Index) + " of the catalogue is bad: " + p.Reason
			return none, sourceError(from, svc.CodeSourceFailed, message, svc.ErrBadEntry)
		}
	}
	missing := &svc.Error{
		Code:    svc.CodeNotFound,
		Message: sourceName(from) + " has no such template",
	}
	if present := catalog.Renamed(id); present != "" {
		missing.Err = &svc.RenamedError{ID: present}
	}
	return none, missing
}

// manifestDigest returns the correct manifest_digest of a manifest. It is the digest of the
// canonical form, so white space and the order of keys do not matter.
func manifestDigest(manifest json.RawMessage) (string, error) {
	canonical, err := jcs.Canonical(manifest)
	if err != nil {
		return "", newFault(jsonProblem(err), err)
	}
	return jcs.Digest(canonical), nil
}

// parseManifest parses a manifest_file. Errors are faults.
func parseManifest(data []byte) (json.RawMessage, error) {
	data, err := strictjson.Compact(data, limits.Nesting)
	if err != nil {
		return nil, newFault(jsonProblem(err), err)
	}
	if data[0] != '{' {
		return nil, newFault("must be a JSON object", nil)
	}
	return data, nil
}

// jsonProblem describes an error in a document. It cuts the pointer into the document, which can be
// as long as the document.
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
