package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// A field of an argument is sent, or refused: a server that does not hear of it would do something else.
func TestEveryFieldIsSentOrRefused(t *testing.T) {
	set := []string{"Keys.List.Bare", "Access.Preview.DryRun", "Banks.Create.Manifest"} // by the method itself
	var sent string
	answer := func(r *http.Request) (*http.Response, error) {
		body := []byte{}
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
		sent = fmt.Sprint(r.Method, r.URL, r.Header, string(body))
		return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
	}
	c := must(client.New(client.Config{BaseURL: "http://svc.test", HTTPClient: &http.Client{Transport: roundTripper(answer)}}))
	call := func(method reflect.Value, args []reflect.Value) (request string, err error) {
		sent = ""
		results := method.Call(args)
		if last := results[len(results)-1]; last.Kind() == reflect.Func {
			for _, failed := range last.Seq2() {
				err = failed.Interface().(error)
			}
		} else {
			err, _ = last.Interface().(error)
		}
		return sent, err
	}
	for noun, value := range reflect.ValueOf(c).Elem().Fields() {
		for i := range value.NumMethod() {
			method, name, args := value.Method(i), noun.Name+"."+value.Type().Method(i).Name, []reflect.Value{reflect.ValueOf(t.Context())}
			for n := 1; n < method.Type().NumIn() && !(method.Type().IsVariadic() && n == method.Type().NumIn()-1); n++ {
				arg := reflect.New(method.Type().In(n)).Elem()
				if given(arg); arg.Kind() == reflect.Struct && arg.Type() != reflect.TypeFor[svc.Identity]() {
					arg.SetZero()
				}
				args = append(args, arg)
			}
			without, _ := call(method, args)
			for n, arg := range args[1:] {
				if arg.Kind() != reflect.Struct {
					continue
				}
				for _, field := range reflect.VisibleFields(arg.Type()) {
					if field.Anonymous || !field.IsExported() || slices.Contains(set, name+"."+field.Name) {
						continue
					}
					with := reflect.New(arg.Type()).Elem()
					given(with.FieldByIndex(field.Index))
					changed := append(append(append([]reflect.Value{}, args[:n+1]...), with), args[n+2:]...)
					if request, err := call(method, changed); request == without && svc.ErrorCode(err) != svc.CodeInvalid {
						t.Errorf("%s does not send %s.%s: %v", name, arg.Type(), field.Name, err)
					}
				}
			}
		}
	}
}

// given sets a value that is not zero, with all that it has.
func given(v reflect.Value) {
	switch to := v.Addr().Interface().(type) {
	case *context.Context, *any:
	case *time.Time:
		*to = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	case *time.Duration:
		*to = time.Hour
	case *json.RawMessage:
		*to = json.RawMessage(`{"version":"1"}`)
	case *svc.Kind:
		*to = svc.KindUser
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("v")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			given(v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			given(v.Index(0))
		case reflect.Struct:
			for _, field := range v.Fields() {
				if field.CanSet() {
					given(field)
				}
			}
		}
	}
}
