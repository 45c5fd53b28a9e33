//go:build planted

package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

// generated returns faults by name. Each changes one method in one way: one value that it gets,
// returns, or passes to its function; its error; its context; or what it does.
func generated() map[string]planted {
	all := map[string]planted{}
	for method := range reflect.TypeFor[svc.FullStore]().Methods() {
		if slices.Contains([]string{"Hears", "Look"}, method.Name) {
			continue // they are not intercepted
		}
		for name, fault := range faultsOf(method.Type) {
			all[method.Name+" "+name] = planted{replaced(method, fault.twist), fault.differs}
		}
		all[method.Name+" does nothing in a transaction"] = planted{around(
			func(tx svc.Store, fn func(svc.Store) error) error {
				return fn(broken(replaced(method, nothing(method.Type)))(tx))
			}), nil}
	}
	return all
}

// planted is a generated fault.
type planted struct {
	fault   func(*store)
	differs *atomic.Bool // it has changed a value; nil: it changes no value
}

// changes reports whether the fault has changed anything, as far as it has run.
func (p planted) changes() bool { return p.differs == nil || p.differs.Load() }

type (
	values = []reflect.Value
	// A twist is a faulty method. It may call the good one.
	twist = func(s *store, good func(values) values, args values) values
	// A faulty is a twist and what its planted fault has in differs.
	faulty struct {
		twist
		differs *atomic.Bool
	}
	// An alteration changes a value, which can be set.
	alteration struct {
		do      func(reflect.Value)
		differs *atomic.Bool
	}
)

func replaced(method reflect.Method, fault twist) func(*store) {
	return func(s *store) {
		good := reflect.ValueOf(s.FullStore).MethodByName(method.Name).Call
		s.does[method.Name] = reflect.MakeFunc(method.Type, func(args values) values { return fault(s, good, args) }).Interface()
	}
}

// faultsOf returns the faults of a method by name.
func faultsOf(method reflect.Type) map[string]faulty {
	all := map[string]faulty{"does nothing": {nothing(method), nil}}
	for name, fault := range callFaults {
		all[name] = faulty{fault, nil}
	}
	for i := 1; i < method.NumIn(); i++ {
		if method.In(i).Kind() == reflect.Func {
			maps.Copy(all, functionFaults(i, method.In(i)))
			continue
		}
		for name, change := range valueFaults(method.In(i)) {
			all["gets "+name] = faulty{func(_ *store, good func(values) values, args values) values {
				args = slices.Clone(args)
				args[i] = change.in(args[i])
				return good(args)
			}, change.differs}
		}
	}
	for i := range method.NumOut() - 1 {
		for name, change := range valueFaults(method.Out(i)) {
			all["returns "+name] = faulty{func(_ *store, good func(values) values, args values) values {
				out := good(args)
				out[i] = change.in(out[i])
				return out
			}, change.differs}
		}
	}
	return all
}

// nothing returns a method that returns zero values.
func nothing(method reflect.Type) twist {
	return func(*store, func(values) values, values) (out values) {
		for result := range method.Outs() {
			out = append(out, reflect.Zero(result))
		}
		return out
	}
}

// callFaults are the faults of every method.
var callFaults = map[string]twist{
	"ignores its context": func(_ *store, good func(values) values, args values) values {
		background := reflect.ValueOf(context.Background())
		return good(append(values{background}, args[1:]...))
	},
	"fails with an error of the driver when its context has ended": failing(
		func(ctx context.Context, err error) error {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return err
		}),
	"returns no error": failing(func(context.Context, error) error { return nil }),
	"returns another error": failing(func(_ context.Context, err error) error {
		if err != nil {
			return errors.New(err.Error())
		}
		return nil
	}),
	"is a mutation": func(s *store, good func(values) values, args values) values {
		name := fmt.Sprint("mutation ", written.Add(1))
		_, _ = s.FullStore.KeepValue(context.Background(), name, nil)
		return good(args)
	},
}

var written atomic.Int64

func failing(fault func(context.Context, error) error) twist {
	return func(_ *store, good func(values) values, args values) values {
		out := good(args)
		err, _ := out[len(out)-1].Interface().(error)
		out[len(out)-1] = valueOf(fault(args[0].Interface().(context.Context), err))
		return out
	}
}

func valueOf(err error) reflect.Value { return reflect.ValueOf(&err).Elem() }

// functionFaults are the faults in calls of a method's function, which is argument number at.
func functionFaults(at int, fn reflect.Type) map[string]faulty {
	all := map[string]faulty{}
	add := func(name string, call faulty, after func(failed, err error) error) {
		all[name] = faulty{func(s *store, good func(values) values, args values) values {
			given, args := args[at], slices.Clone(args)
			if given.IsNil() {
				return good(args)
			}
			var failed error
			args[at] = reflect.MakeFunc(fn, func(in values) values {
				failed = nil
				return call.twist(s, func(in values) values {
					out := given.Call(in)
					failed, _ = out[len(out)-1].Interface().(error)
					return out
				}, in)
			})
			out := good(args)
			if after != nil {
				err, _ := out[len(out)-1].Interface().(error)
				out[len(out)-1] = valueOf(after(failed, err))
			}
			return out
		}, call.differs}
	}
	add("does not call its function", faulty{nothing(fn), nil}, nil)
	if fn.Out(fn.NumOut()-1) == reflect.TypeFor[error]() {
		add("goes on when its function fails", faulty{failing(func(context.Context, error) error { return nil }), nil},
			func(failed, err error) error { return errors.Join(failed, err) })
		add("wraps its function's error", faulty{pass, nil}, func(failed, err error) error {
			if failed != nil {
				return fmt.Errorf("wrapped: %w", err)
			}
			return err
		})
		add("hides its function's panic", faulty{func(_ *store, good func(values) values, in values) (out values) {
			defer func() {
				if recover() != nil {
					out = nothing(fn)(nil, nil, nil)
				}
			}()
			return good(in)
		}, nil}, nil)
	}
	for i := range fn.NumIn() {
		of, pointer := fn.In(i), fn.In(i).Kind() == reflect.Pointer
		if pointer {
			of = of.Elem()
		}
		for name, change := range valueFaults(of) {
			add("passes "+name, faulty{func(_ *store, good func(values) values, in values) values {
				if pointer {
					in[i].Elem().Set(change.in(in[i].Elem()))
					return good(in)
				}
				in = slices.Clone(in)
				in[i] = change.in(in[i])
				return good(in)
			}, change.differs}, nil)
			if pointer {
				add("writes "+name, faulty{func(_ *store, good func(values) values, in values) values {
					out := good(in)
					in[i].Elem().Set(change.in(in[i].Elem()))
					return out
				}, change.differs}, nil)
			}
		}
		for _, p := range places(of, "") {
			if pointer && p.leaf {
				differs := new(atomic.Bool)
				add("keeps the old"+p.name, faulty{func(_ *store, good func(values) values, in values) values {
					before := clone(in[i].Elem())
					out := good(in)
					after := p.at(in[i].Elem())
					for j, was := range p.at(before) {
						if j < len(after) {
							alteration{func(v reflect.Value) { v.Set(was) }, differs}.to(after[j])
						}
					}
					return out
				}, differs}, nil)
			}
		}
	}
	for i := range fn.NumOut() {
		for name, change := range valueFaults(fn.Out(i)) {
			add("takes "+name, faulty{func(_ *store, good func(values) values, in values) values {
				out := good(in)
				out[i] = change.in(out[i])
				return out
			}, change.differs}, nil)
		}
	}
	return all
}

func pass(_ *store, good func(values) values, in values) values { return good(in) }

// A place is a part of a value.
type place struct {
	name string // " Origin URL"; "" is the value itself
	of   reflect.Type
	leaf bool                       // has no parts
	at   func(reflect.Value) values // the part, in each row
}

func places(t reflect.Type, name string) (all []place) {
	leaf := !within(t)
	all = append(all, place{name, t, leaf, func(v reflect.Value) values { return values{v} }})
	if leaf {
		return all
	}
	below := func(of reflect.Type, name string, down func(reflect.Value) values) {
		for _, p := range places(of, name) {
			if p.name != name || t.Kind() == reflect.Struct {
				at := p.at
				p.at = func(v reflect.Value) (parts values) {
					for _, part := range down(v) {
						parts = append(parts, at(part)...)
					}
					return parts
				}
				all = append(all, p)
			}
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				below(f.Type, name+" "+f.Name, func(v reflect.Value) values { return values{v.Field(i)} })
			}
		}
	case reflect.Pointer:
		below(t.Elem(), name, func(v reflect.Value) values {
			if v.IsNil() {
				return nil
			}
			return values{v.Elem()}
		})
	case reflect.Slice:
		below(t.Elem(), name, func(v reflect.Value) (parts values) {
			for i := range v.Len() {
				parts = append(parts, v.Index(i))
			}
			return parts
		})
	}
	return all
}

// within reports whether faults look into values of a type.
func within(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return t != reflect.TypeFor[time.Time]()
	case reflect.Pointer, reflect.Slice:
		return t.Elem().Kind() == reflect.Struct && t.Elem() != reflect.TypeFor[time.Time]()
	}
	return false
}

func valueFaults(t reflect.Type) map[string]alteration {
	all := map[string]alteration{}
	for _, p := range places(t, "") {
		for name, do := range leafFaults(p.of) {
			one := alteration{do, new(atomic.Bool)}
			all[strings.TrimSpace(cmp.Or(p.name, "a value")+" "+name)] = alteration{func(v reflect.Value) {
				for _, part := range p.at(v) {
					one.to(part)
				}
			}, one.differs}
		}
	}
	return all
}

// to changes a part of a value.
func (c alteration) to(v reflect.Value) {
	before := clone(v)
	if c.do(v); !reflect.DeepEqual(before.Interface(), v.Interface()) {
		c.differs.Store(true)
	}
}

// in returns a changed copy of a value.
func (c alteration) in(v reflect.Value) reflect.Value {
	v = clone(v)
	c.do(v)
	return v
}

// clone returns a deep copy that can be set.
func clone(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	switch v.Kind() {
	case reflect.Struct:
		if within(v.Type()) {
			for i := range v.NumField() {
				if to.Field(i).CanSet() {
					to.Field(i).Set(clone(v.Field(i)))
				}
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			to.Set(reflect.New(v.Type().Elem()))
			to.Elem().Set(clone(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			to.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				to.Index(i).Set(clone(v.Index(i)))
			}
		}
	}
	return to
}

func leafFaults(t reflect.Type) map[string]func(reflect.Value) {
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[time.Time]():
		return map[string]func(reflect.Value){
			"lost": reflect.Value.SetZero,
			"one microsecond later": func(v reflect.Value) {
				if at := v.Interface().(time.Time); !at.IsZero() {
					v.Set(reflect.ValueOf(at.Add(time.Microsecond)))
				}
			},
		}
	case kind == reflect.String:
		return map[string]func(reflect.Value){
			"lost":       reflect.Value.SetZero,
			"lower-case": func(v reflect.Value) { v.SetString(strings.ToLower(v.String())) },
		}
	case kind == reflect.Int, kind == reflect.Int64:
		return map[string]func(reflect.Value){
			"lost":     reflect.Value.SetZero,
			"one more": func(v reflect.Value) { v.SetInt(v.Int() + 1) },
		}
	case kind == reflect.Bool:
		return map[string]func(reflect.Value){
			"lost": reflect.Value.SetZero, "true": func(v reflect.Value) { v.SetBool(true) },
		}
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return map[string]func(reflect.Value){
			"lost": reflect.Value.SetZero,
			"text": func(v reflect.Value) { v.SetBytes(bytes.ToValidUTF8(v.Bytes(), []byte("\ufffd"))) },
		}
	case kind == reflect.Slice:
		return map[string]func(reflect.Value){
			"lost":             reflect.Value.SetZero,
			"without the last": func(v reflect.Value) { v.Set(v.Slice(0, max(0, v.Len()-1))) },
			"twice": func(v reflect.Value) {
				if v.Len() < 1000 { // a change may read what the one before has doubled
					v.Set(reflect.AppendSlice(v, clone(v)))
				}
			},
			"reversed": func(v reflect.Value) {
				swap := reflect.Swapper(v.Interface())
				for i := range v.Len() / 2 {
					swap(i, v.Len()-1-i)
				}
			},
		}
	case kind == reflect.Pointer:
		return map[string]func(reflect.Value){
			"lost": reflect.Value.SetZero,
			"never nil": func(v reflect.Value) {
				if v.IsNil() {
					v.Set(reflect.New(t.Elem()))
				}
			},
		}
	case kind == reflect.Interface:
		return nil
	}
	return map[string]func(reflect.Value){"lost": reflect.Value.SetZero}
}
