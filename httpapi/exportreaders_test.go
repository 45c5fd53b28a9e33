package httpapi

import (
	"bytes"
	"net/http"
	"net/http/httptest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// What follows is for fuzzing: the readers of all that a request brings.

func Match(method, escaped string) (Route, map[string]string, error) {
	r, params, err := everything.match(method, escaped)
	return r.Route, params, err
}

func ParseForm(service *svc.Service, raw string) (map[string][]string, error) {
	return (&Handler{service: service}).parseForm([]byte(raw))
}

func ParseQuery(raw string) (map[string][]string, error) { return parseQuery(raw) }

func Page(raw string) (limit int, after []string, next string, err error) {
	values, err := parseQuery(raw)
	if err != nil {
		return 0, nil, "", err
	}
	p, err := values.page()
	if err != nil {
		return 0, nil, "", err
	}
	return p.limit, p.after, (&request{query: values}).next(p), nil
}

func Tags(name string, values []string) ([]string, error) {
	return tags(http.Header{name: values}, name)
}

func BearerOf(values []string) string {
	return bearerOf(&http.Request{Header: http.Header{"Authorization": values}})
}

// Bodies read a document as the body of each kind there is, by name.
var Bodies = map[string]func(body []byte) (any, error){
	"struct{}": body[struct{}], "CreateTemplate": body[wire.CreateTemplate], "PatchTemplate": body[wire.PatchTemplate], "InstallTemplate": body[wire.InstallTemplate],
	"RollbackTemplate": body[wire.RollbackTemplate], "RegisterSource": body[wire.RegisterSource], "CreateAPIKey": body[wire.CreateAPIKey],
	"PatchAPIKey": body[wire.PatchAPIKey], "RotateAPIKey": body[wire.RotateAPIKey], "Simulation": body[wire.Simulation],
}

func body[T any](text []byte) (any, error) {
	r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", contentType)
	read, err := (&Handler{options: Options{MaxBody: DefaultMaxBody}}).body(httptest.NewRecorder(), &request{Request: r}, jsonBody)
	if err != nil {
		return nil, err
	}
	return parse[T](read)
}
