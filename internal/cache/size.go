package cache

import (
	"reflect"
	"time"
)

// Size returns about how many bytes of the heap a value reaches: never less than the true size, and
// not many times more. The value must hold no cycle and no channel. Memory reached twice counts
// twice. A function counts as a small closure.
func Size(v any) int64 { return behind(reflect.ValueOf(v)) }

// Allocated returns about how many bytes an allocation of n bytes takes, after the allocator rounds
// it up.
func Allocated(n int) int64 {
	if n == 0 {
		return 0
	}
	return int64(n+n/8+15) &^ 7
}

const (
	closureBytes = 64
	entryBytes   = 16 // of a map entry, without key and value, with its share of free room
)

// behind returns the bytes that a value refers to. The value's own bytes count with its holder.
func behind(v reflect.Value) (n int64) {
	if !v.IsValid() || v.Type() == reflect.TypeFor[time.Time]() { // all times share their location
		return 0
	}
	switch v.Kind() {
	case reflect.String:
		return Allocated(v.Len())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = Allocated(int(v.Elem().Type().Size())) + behind(v.Elem())
		}
	case reflect.Func:
		n = closureBytes
	case reflect.Struct:
		for i := range v.NumField() {
			n += behind(v.Field(i))
		}
	case reflect.Slice:
		n = Allocated(v.Cap() * int(v.Type().Elem().Size()))
		fallthrough
	case reflect.Array:
		for i := 0; i < v.Len() && refers(v.Type().Elem()); i++ {
			n += behind(v.Index(i))
		}
	case reflect.Map:
		entry := entryBytes + int64(v.Type().Key().Size()+v.Type().Elem().Size())
		n = entryBytes + 2*int64(v.Len())*entry
		for entries := v.MapRange(); entries.Next(); {
			n += behind(entries.Key()) + behind(entries.Value())
		}
	}
	return n
}

// refers reports whether a value of a type may refer to other memory.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Func,
		reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
		return true
	}
	return false
}
