package marketplace

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
)

// parseCatalog reads a catalogue. It fails, with a fault, when the file is bad as a whole.
// Serial and expiry are those of a signed one: what anybody could have written binds nobody.
func parseCatalog(data []byte, limits Limits, signed bool) (svc.Catalog, error) {
	data, err := strictjson.Compact(data, svc.MaxNesting+3) // manifests begin on the fourth level
	if err != nil {
		return svc.Catalog{}, failed(jsonProblem(err), err)
	}
	if data[0] != '{' {
		return svc.Catalog{}, failed(`is bad: it must be an object with an array "templates"`, nil)
	}
	var templates, serial, expires []byte
	for key, value := range members(data) {
		switch key {
		case "templates":
			templates = value
		case "serial":
			serial = value
		case "expires":
			expires = value
		}
	}
	if len(templates) == 0 || templates[0] != '[' {
		return svc.Catalog{}, failed(`is bad: it must be an object with an array "templates"`, nil)
	}
	catalog, err := parseEntries(templates, limits, signed)
	if err == nil && signed {
		catalog.Serial, catalog.Expires, err = parseSeries(serial, expires)
	}
	catalog.Revision = jcs.Digest(data)
	return catalog, err
}

// parseSeries reads which one of the signed catalogues of a source this is, and until when it is good.
func parseSeries(serial, expires []byte) (number int64, end time.Time, err error) {
	if json.Unmarshal(serial, &number) != nil || number < 1 || number > maxSerial {
		return 0, end, failed("is bad: a signed one must have a serial, a whole number from 1 to 2^53", nil)
	}
	if expires != nil && string(expires) != "null" && json.Unmarshal(expires, &end) != nil {
		return 0, end, failed("is bad: expires must be a time like 2030-01-02T15:04:05Z", nil)
	}
	return number, end, nil
}

func parseEntries(templates []byte, limits Limits, signed bool) (svc.Catalog, error) {
	var all []parsed
	count := map[string]int{}
	for value := range elements(templates) {
		if len(all) == limits.Entries {
			return svc.Catalog{}, failed(fmt.Sprintf("has more than %d entries", limits.Entries), nil)
		}
		p := parseEntry(value, limits, signed)
		p.Index = len(all)
		all = append(all, p)
		count[p.ID]++
	}
	var catalog svc.Catalog
	for _, p := range all {
		if p.problem == "" && count[p.ID] > 1 {
			p.problem = "its id is there more than once"
		}
		if p.problem != "" {
			catalog.Problems = append(catalog.Problems, svc.CatalogProblem{Index: p.Index, ID: p.ID, Reason: p.problem})
		} else {
			catalog.Entries = append(catalog.Entries, p.CatalogEntry)
		}
	}
	return catalog, nil
}

// entryOf returns the good entry with that id. Errors are as [Client.Template] returns them.
func entryOf(catalog svc.Catalog, from svc.Upstream, id string) (svc.CatalogEntry, error) {
	for _, entry := range catalog.Entries {
		if entry.ID == id {
			return entry, nil
		}
	}
	for _, p := range catalog.Problems {
		if p.ID == id && id != "" {
			message := "entry " + strconv.Itoa(p.Index) + " of the catalogue is bad: " + p.Reason
			return svc.CatalogEntry{}, sourceError(from, svc.CodeSourceFailed, message, svc.ErrBadEntry)
		}
	}
	return svc.CatalogEntry{}, &svc.Error{Code: svc.CodeNotFound, Message: named(from) + " has no such template"}
}

// manifestDigest is what the manifest_digest of a manifest has to be: the digest of its canonical form, so that white space and the
// order of keys do not matter.
func manifestDigest(manifest json.RawMessage) (string, error) {
	canonical, err := jcs.Canonical(manifest)
	if err != nil {
		return "", failed(jsonProblem(err), err)
	}
	return jcs.Digest(canonical), nil
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
