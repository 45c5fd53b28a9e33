package strictjson

import (
	"encoding/json"
	"reflect"
)

// cut is the value of a raw member, kept out of the copy. encoding/json would read it two more
// times, and it is most of a large document.
type cut struct {
	field int // of the outermost struct
	value json.RawMessage
}

// Fields of these types can take a cut.
var (
	rawField         = reflect.TypeFor[json.RawMessage]()
	optionalRawField = reflect.TypeFor[Optional[json.RawMessage]]()
)

func (c cut) into(field reflect.Value) {
	switch place := field.Addr().Interface().(type) {
	case *json.RawMessage:
		*place = c.value
	case *Optional[json.RawMessage]:
		*place = Optional[json.RawMessage]{Set: true, Value: c.value}
	}
}
