// Package calltest calls methods by their names, with arguments as JSON, for tests that are lines of
// a file.
package calltest

import (
	"context"
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

// Call makes the call of a line, "NOUN.METHOD ARGUMENT ARGUMENT …", by a caller if the method takes
// one. Arguments that the line lacks are zero.
func Call(ctx context.Context, of any, by svc.Principal, line string) ([]reflect.Value, error) {
	name, rest, _ := strings.Cut(line, " ")
	method, err := Method(of, name)
	if err != nil {
		return nil, err
	}
	kind, args := method.Type(), []reflect.Value{reflect.ValueOf(ctx)}
	if kind.NumIn() > 1 && kind.In(1) == reflect.TypeFor[svc.Principal]() {
		args = append(args, reflect.ValueOf(by))
	}
	texts, err := Split(rest)
	if err != nil {
		return nil, err
	}
	given, err := Arguments(kind, len(args), texts)
	if err != nil {
		return nil, err
	}
	args = append(args, given...)
	for !kind.IsVariadic() && len(args) < kind.NumIn() {
		args = append(args, reflect.Zero(kind.In(len(args))))
	}
	return method.Call(args), nil
}

// Do makes the call of a line as [Call] does, and returns the value and the error of the method. The
// value is nil when there is only an error. Do panics when the line is no call.
func Do(ctx context.Context, of any, by svc.Principal, line string) (value any, err error) {
	results, mistake := Call(ctx, of, by, line)
	if mistake != nil {
		panic(fmt.Errorf("%s: %w", line, mistake))
	}
	last := len(results) - 1
	if err, _ = results[last].Interface().(error); last > 0 {
		value = results[0].Interface()
	}
	return value, err
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
