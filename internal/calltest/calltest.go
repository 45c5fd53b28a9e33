// Package calltest calls methods by their names, with arguments as JSON, for tests that are lines of
// a file.
package calltest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/extsvc/svc"
)

// Method returns a method of a noun, "Templates.Read", or of a value itself, "Authenticate".
func Method(of any, name string) (reflect.Value, error) {
	value := reflect.ValueOf(of)
	if noun, method, is := strings.Cut(name, "."); is {
		value, name = value.Elem().FieldByName(noun), method
	}
	if !value.IsValid() || !value.MethodByName(name).IsValid() {
		return value, fmt.Errorf("there is no method %s", name)
	}
	return value.MethodByName(name), nil
}

// Split cuts a text into the JSON values that stand in it.
func Split(text string) (all []string, err error) {
	values := json.NewDecoder(strings.NewReader(strings.ReplaceAll(text, `\xff`, badByte)))
	for values.More() {
		var value json.RawMessage
		if err := values.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		all = append(all, string(value))
	}
	return all, nil
}

// Arguments reads JSON texts as the arguments of a function from its parameter with index from on. A
// bundle has the keys of bundles or those of Go. A holder may be "me", "all" or "KIND ID".
func Arguments(of reflect.Type, from int, texts []string) (args []reflect.Value, err error) {
	if most := of.NumIn() - from; len(texts) > most && !of.IsVariadic() {
		return nil, fmt.Errorf("%d arguments, not %d", len(texts), most)
	}
	for i, text := range texts {
		in := of.In(min(from+i, of.NumIn()-1))
		if of.IsVariadic() && from+i >= of.NumIn()-1 {
			in = in.Elem()
		}
		value, text := reflect.New(in), strings.ReplaceAll(text, `\xff`, badByte)
		switch to := value.Interface().(type) {
		case *svc.Bundle:
			if len(text) > 2 && unicode.IsUpper(rune(text[2])) {
				err = json.Unmarshal([]byte(text), to)
				spoil(value)
			} else {
				*to, err = svc.ParseBundle([]byte(text))
			}
		case *svc.Identity:
			var short string
			if err = json.Unmarshal([]byte(text), &short); err != nil {
				err = json.Unmarshal([]byte(text), to)
			} else if kind, id, named := strings.Cut(short, " "); named {
				*to = svc.Identity{Kind: svc.Kind(kind), ID: id}
			} else {
				*to = map[string]svc.Identity{"me": svc.Me, "all": svc.AllHolders}[short]
			}
		default:
			err = json.Unmarshal([]byte(text), to)
			spoil(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		args = append(args, value.Elem())
	}
	return args, nil
}

// badByte stands for a byte that no JSON text holds, "\xff".
const badByte = "\ue0ff"

// spoil puts what no JSON holds into a value: bad bytes, and the raw text "raw:…" of a JSON field.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.IsExported() {
				spoil(value)
			}
		}
	case reflect.String:
		if strings.Contains(v.String(), badByte) {
			v.SetString(strings.ReplaceAll(v.String(), badByte, "\xff"))
		}
	case reflect.Slice:
		if raw, is := v.Interface().(json.RawMessage); is {
			var text string
			if json.Unmarshal(raw, &text) == nil && strings.HasPrefix(text, "raw:") {
				v.SetBytes([]byte(strings.ReplaceAll(text[len("raw:"):], badByte, "\xff")))
			}
			return
		}
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	}
}
