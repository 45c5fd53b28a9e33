package policy

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"

	"github.com/extsvc/svc/parameter"
)

// statementKeys are the keys of a statement in its JSON form, next to those of its parameters.
type statementKeys struct {
	Effect  Effect   `json:"effect"`
	Actions []string `json:"actions"`
	Banks   []string `json:"banks"`
}

// defaultKeys are those of the default of public access.
type defaultKeys struct {
	Actions []string `json:"actions"`
}

// overrideKeys are those of an override of public access.
type overrideKeys struct {
	Scope   Scope    `json:"scope"`
	Value   string   `json:"value"`
	Actions []string `json:"actions"`
}

// forms makes the types that documents are read into. They are structs, so strictjson reads the
// parameters as it reads all other keys.
func (s *Schema) forms() {
	version := field("Version", "version", reflect.TypeFor[*string]())
	statement := s.withParameters(reflect.TypeFor[statementKeys]())
	s.document = reflect.StructOf([]reflect.StructField{
		version, field("Statements", "statements", reflect.SliceOf(statement)),
	})
	byDefault := s.withParameters(reflect.TypeFor[defaultKeys]())
	override := s.withParameters(reflect.TypeFor[overrideKeys]())
	access := reflect.StructOf([]reflect.StructField{
		field("Default", "default", reflect.PointerTo(byDefault)),
		field("Overrides", "overrides", reflect.SliceOf(override)),
	})
	s.bankDocument = reflect.StructOf([]reflect.StructField{
		version,
		field("DefaultStrategy", "default_strategy", reflect.TypeFor[*string]()),
		field("StrategyOverrides", "strategy_overrides", reflect.TypeFor[[]StrategyOverride]()),
		field("PublicAccess", "public_access", reflect.PointerTo(access)),
	})
}

func field(name, key string, of reflect.Type) reflect.StructField {
	return reflect.StructField{Name: name, Type: of, Tag: reflect.StructTag(`json:"` + key + `"`)}
}

// fieldTypes are the types of the fields that a parameter has in a JSON form.
var fieldTypes = map[parameter.Type]reflect.Type{
	parameter.Integer: reflect.TypeFor[*int64](), parameter.Text: reflect.TypeFor[*string](),
	parameter.Level: reflect.TypeFor[*string](), parameter.TextList: reflect.TypeFor[[]string](),
	parameter.ObjectList: reflect.TypeFor[[]json.RawMessage](),
}

// withParameters returns a type of struct with the fields of keys and, behind them, one for each
// parameter.
func (s *Schema) withParameters(keys reflect.Type) reflect.Type {
	fields := slices.Collect(keys.Fields())
	for i := range s.list {
		p := &s.list[i]
		fields = append(fields, field("P"+strconv.Itoa(i), p.Name, fieldTypes[p.Type]))
	}
	return reflect.StructOf(fields)
}

// read returns the parameters of a struct whose type withParameters made.
func (s *Schema) read(from reflect.Value) (p Parameters) {
	first := from.NumField() - len(s.list)
	for i := range s.list {
		field := from.Field(first + i)
		if field.IsNil() {
			continue
		}
		if p == nil {
			p = make(Parameters, len(s.list))
		}
		switch s.list[i].Type {
		case parameter.Level:
			p[i] = Level(field.Elem().String())
		case parameter.Integer:
			p[i] = *field.Interface().(*int64)
		case parameter.Text:
			p[i] = *field.Interface().(*string)
		default:
			p[i] = field.Interface()
		}
	}
	return p
}
