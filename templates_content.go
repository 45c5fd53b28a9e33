package svc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
)

// Content holds the descriptive fields and the manifest of a template. A revision covers exactly
// these fields, a patch changes them, and an update replaces them.
type Content struct {
	Name         string
	Description  *string // nil: none, which is not the same as ""
	Category     *string // nil: none
	Integrations []string
	Tags         []string
	// Manifest is a JSON object, opaque to the Service. It is kept digit for digit, without
	// insignificant white space.
	Manifest json.RawMessage
}

// Revision returns "sha256:" and the hex SHA-256 of the content's canonical form (RFC 8785). In
// that form, numbers that a double cannot hold exactly stay as written. Contents with equal
// revisions are equal. The manifest must be valid JSON, else Revision returns an error.
func (c Content) Revision() (string, error) {
	canonical, err := c.canonical()
	if err != nil {
		return "", err
	}
	return jcs.Digest(canonical), nil
}

// canonical returns the RFC 8785 form of an object with exactly these six keys. The code writes
// them in sorted order.
func (c Content) canonical() ([]byte, error) {
	b := appendOptional([]byte(`{"category":`), c.Category)
	b = appendOptional(append(b, `,"description":`...), c.Description)
	b = jcs.AppendStrings(append(b, `,"integrations":`...), c.Integrations)
	b, err := jcs.Append(append(b, `,"manifest":`...), c.Manifest)
	if err != nil {
		return nil, err
	}
	b = jcs.AppendString(append(b, `,"name":`...), c.Name)
	b = jcs.AppendStrings(append(b, `,"tags":`...), c.Tags)
	return append(b, '}'), nil
}

func appendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return jcs.AppendString(b, *s)
}

// differences names the fields in which two contents differ, in the order of [Content]. Manifests
// differ when their canonical forms differ.
func differences(a, b Content) []string {
	var fields []string
	add := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	add("name", a.Name == b.Name)
	add("description", equalText(a.Description, b.Description))
	add("category", equalText(a.Category, b.Category))
	add("integrations", slices.Equal(a.Integrations, b.Integrations))
	add("tags", slices.Equal(a.Tags, b.Tags))
	add("manifest", sameJSON(a.Manifest, b.Manifest))
	return fields
}

// same reports whether two contents are the same to the letter. A manifest that only differs in
// spelling or key order has the same revision, but is not the same.
func (c Content) same(other Content) bool {
	return c.Name == other.Name &&
		equalText(c.Description, other.Description) && equalText(c.Category, other.Category) &&
		slices.Equal(c.Integrations, other.Integrations) && slices.Equal(c.Tags, other.Tags) &&
		bytes.Equal(c.Manifest, other.Manifest)
}

func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	canonicalA, errA := jcs.Canonical(a)
	canonicalB, errB := jcs.Canonical(b)
	return errA == nil && errB == nil && bytes.Equal(canonicalA, canonicalB)
}

// clone returns a copy that shares no lists and no manifest with c. Its lists are not nil.
func (c Content) clone() Content {
	c.Integrations = append([]string{}, c.Integrations...)
	c.Tags = append([]string{}, c.Tags...)
	c.Manifest = bytes.Clone(c.Manifest)
	return c
}

// contents checks the contents of templates.
type contents struct {
	validateManifest func(manifest json.RawMessage) error // the host's check; nil: none
}

// checkContent reports the faults of a whole content, each at a JSON pointer into it, and compacts
// its manifest.
func (s *contents) checkContent(c *checker, content *Content) {
	content.checkForm(c)
	s.validate(c, content.Manifest)
}

// checkForm is checkContent without the host's own check.
func (c *Content) checkForm(check *checker) {
	c.checkHead(check)
	c.Manifest = check.manifest(c.Manifest)
}

// checked returns the faults of a whole content as an error.
func (s *contents) checked(content Content) error {
	var c checker
	s.checkContent(&c, &content)
	return c.err()
}

// checkHead reports the faults of a whole content, without its manifest.
func (c Content) checkHead(check *checker) {
	if c.Name == "" {
		check.add("/name", "is required")
	}
	c.checkTexts(check)
}

// checkTexts reports the faults of the fields other than the manifest. An empty name passes: a
// patch leaves the name empty when it does not change it.
func (c Content) checkTexts(check *checker) {
	if check.text("/name", c.Name, MaxNameLength); len(c.Name) > MaxNameLength && check.ok() {
		// Some databases limit the size of an index row.
		check.add("/name", fmt.Sprintf("must be at most %d bytes", MaxNameLength))
	}
	check.optionalText("/description", c.Description, MaxDescriptionLength)
	check.optionalText("/category", c.Category, MaxLabelLength)
	check.labels("/integrations", c.Integrations)
	check.labels("/tags", c.Tags)
}

// manifest returns a manifest without insignificant white space. It reports a bad form and returns
// nil.
func (c *checker) manifest(manifest json.RawMessage) json.RawMessage {
	if len(manifest) == 0 {
		c.add("/manifest", "is required")
		return nil
	}
	if len(manifest) > MaxManifest {
		c.add("/manifest", fmt.Sprintf("must be at most %d bytes", MaxManifest))
		return nil
	}
	compact, err := strictjson.Compact(manifest, MaxNesting)
	if at, ok := errors.AsType[*strictjson.Error](err); ok {
		c.add("/manifest"+at.Pointer, at.Detail)
		return nil
	}
	if problem := checkVersion(compact); problem != nil {
		c.check(problem)
		return nil
	}
	return compact
}

// validate runs the host's own check on a manifest with a good form. It skips a nil manifest. Call
// it only for an authorized caller.
func (s *contents) validate(c *checker, manifest json.RawMessage) {
	if validate := s.validateManifest; validate != nil && manifest != nil {
		c.host(validate(manifest))
	}
}

// host adds the errors of the host's validator. They may be joined, and each may carry a JSON
// pointer into the manifest.
func (c *checker) host(err error) {
	for one := range parts(err) {
		if e, is := one.(*Error); is {
			c.add("/manifest"+e.Field, e.Message)
		} else {
			c.add("/manifest", one.Error())
		}
		if c.full {
			return
		}
	}
}

// checkVersion refuses a manifest that is not an object with a version.
func checkVersion(manifest json.RawMessage) *Error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(manifest, &fields); err != nil || fields == nil {
		return Invalid("/manifest", "must be a JSON object")
	}
	var version any
	if raw, there := fields["version"]; !there {
		return Invalid("/manifest/version", "is required")
	} else if err := json.Unmarshal(raw, &version); err != nil {
		return Invalid("/manifest/version", "must be a string")
	}
	if text, is := version.(string); !is {
		return Invalid("/manifest/version", "must be a string")
	} else if text == "" {
		return Invalid("/manifest/version", "must not be empty")
	}
	return nil
}

// size estimates the bytes that the texts of a content take.
func (c Content) size() int64 {
	n := len(c.Name) + len(c.Manifest)
	for _, text := range []*string{c.Description, c.Category} {
		if text != nil {
			n += 16 + len(*text)
		}
	}
	for _, list := range [][]string{c.Integrations, c.Tags} {
		for _, text := range list {
			n += 16 + len(text)
		}
	}
	return int64(n)
}
