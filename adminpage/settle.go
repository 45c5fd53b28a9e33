package adminpage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/merge3"
	"github.com/extsvc/svc/internal/strictjson"
)

// settle returns the content of a template in which every place of a difference is settled. Places
// with a conflict are as the form chooses, in fields named as their paths; places that only the
// source has changed are the source's. The rest of the manifest stays as it is written.
func settle(
	ctx context.Context, template svc.Template, diff svc.TemplateDiff,
	chosen func(path string) string,
) (svc.Content, error) {
	whole, err := treeOf(template.Content)
	if err != nil {
		return svc.Content{}, err
	}
	var open []error
	for _, c := range diff.Changes {
		switch by := changedBy(c); {
		case by == byThem, by == byBoth && chosen(c.Path) == "source":
			if err := whole.set(c.Path, c.Theirs); err != nil {
				return svc.Content{}, err
			}
		case by == byBoth && chosen(c.Path) != "yours":
			open = append(open, svc.Invalid(c.Path, "is not settled: choose Yours or Source"))
		}
	}
	if err := errors.Join(open...); err != nil {
		return svc.Content{}, err
	}
	content, err := whole.content()
	if err != nil {
		return content, err
	}
	// A merge keeps the order of the keys.
	was := template.Manifest
	content.Manifest, _, err = merge3.Merge(ctx, was, was, content.Manifest)
	return content, err
}

// tree is a content as a JSON object, whose numbers keep their digits.
type tree map[string]any

// contentJSON is a content with the names that the pointers of a difference use.
type contentJSON struct {
	Name         string          `json:"name"`
	Description  *string         `json:"description,omitempty"`
	Category     *string         `json:"category,omitempty"`
	Integrations []string        `json:"integrations"`
	Tags         []string        `json:"tags"`
	Manifest     json.RawMessage `json:"manifest"`
}

func treeOf(c svc.Content) (t tree, err error) {
	text, err := json.Marshal(contentJSON(c))
	if err != nil {
		return nil, err
	}
	return t, decode(text, &t)
}

func (t tree) content() (svc.Content, error) {
	var c contentJSON
	text, err := strictjson.Marshal(t)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return svc.Content(c), err
}

func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// set gives the place of a pointer (RFC 6901) another value, or none. Pointers of differences lead
// only through objects.
func (t tree) set(pointer string, value json.RawMessage) error {
	at := map[string]any(t)
	keys := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, key := range keys {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		if i < len(keys)-1 {
			inner, ok := at[key].(map[string]any)
			if !ok { // the template has changed since it was compared: Update refuses it
				inner = map[string]any{}
			}
			at = inner
			continue
		}
		if value == nil {
			delete(at, key)
			return nil
		}
		var v any
		if err := decode(value, &v); err != nil {
			return err
		}
		at[key] = v
	}
	return nil
}

// differences compares two contents place by place: objects by their keys, everything else whole.
// The places are in order.
func differences(from, to svc.Content) ([]changedPlace, error) {
	a, err := treeOf(from)
	if err != nil {
		return nil, err
	}
	b, err := treeOf(to)
	if err != nil {
		return nil, err
	}
	return appendDifferences(nil, "", a, b), nil
}

// appendDifferences appends the places below a path at which two objects differ.
func appendDifferences(places []changedPlace, path string, a, b map[string]any) []changedPlace {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		at := path + "/" + strictjson.Token(key)
		inA, isA := a[key].(map[string]any)
		inB, isB := b[key].(map[string]any)
		if isA && isB {
			places = appendDifferences(places, at, inA, inB)
			continue
		}
		before, after := valueOf(a, key), valueOf(b, key)
		if !bytes.Equal(before, after) {
			change := []side{difference("", before, after)}
			places = append(places, changedPlace{Path: at, Sides: change})
		}
	}
	return places
}

// valueOf returns the JSON of a member; nil: there is none.
func valueOf(of map[string]any, key string) json.RawMessage {
	value, there := of[key]
	if !there {
		return nil
	}
	text, _ := strictjson.Marshal(value) // it was decoded from JSON
	return text
}
