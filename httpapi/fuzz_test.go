package httpapi_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/body"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
)

// A body that is taken as something says the same when it is written again, and no character of it was replaced.
func FuzzBodies(f *testing.F) {
	for _, body := range wholesome("0000000000000000") {
		f.Add([]byte(body))
	}
	good, bad := hostileValues()
	for value := range good {
		f.Add([]byte(`{"id": "a", "name": "n", "manifest": {"version": "1", "x": ` + value + `}}`))
	}
	for _, value := range bad {
		f.Add([]byte(`{"manifest": ` + value + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for name, read := range bodyReaders {
			first, err := read(body)
			if err != nil {
				if svc.ErrorCode(err) != svc.CodeInvalid && svc.ErrorCode(err) != "body_too_large" {
					t.Fatalf("%s: %q: %v", name, body, err)
				}
				continue
			}
			written, err := strictjson.Marshal(first)
			if err != nil {
				t.Fatalf("%s: %q is read, and cannot be written: %v", name, body, err)
			}
			second, err := read(written)
			if err != nil {
				t.Fatalf("%s: %q is written as %q, and refused: %v", name, body, written, err)
			}
			if again, err := strictjson.Marshal(second); err != nil || !bytes.Equal(again, written) {
				t.Fatalf("%s: %q is written as %q, and then as %q: %v", name, body, written, again, err)
			}
			const replacement = "\ufffd"
			if bytes.Contains(written, []byte(replacement)) && !bytes.Contains(body, []byte(replacement)) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
				t.Fatalf("%s: a character of %q was replaced: %q", name, body, written)
			}
		}
	})
}

// bodyReaders read a document as the body of each kind there is, by name.
var bodyReaders = map[string]func(body []byte) (any, error){
	"struct{}": bodyOf[struct{}], "CreateTemplate": bodyOf[wire.CreateTemplate], "PatchTemplate": bodyOf[wire.PatchTemplate], "InstallTemplate": bodyOf[wire.InstallTemplate],
	"RollbackTemplate": bodyOf[wire.RollbackTemplate], "RegisterSource": bodyOf[wire.RegisterSource], "PatchSource": bodyOf[wire.PatchSource], "CreateAPIKey": bodyOf[wire.CreateAPIKey],
	"PatchAPIKey": bodyOf[wire.PatchAPIKey], "RotateAPIKey": bodyOf[wire.RotateAPIKey], "Simulation": bodyOf[wire.Simulation],
}

func bodyOf[T any](text []byte) (any, error) {
	r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	read, err := body.Read(httptest.NewRecorder(), r, httpapi.DefaultMaxBody, body.JSON)
	if err != nil {
		return nil, err
	}
	return inbound.JSON[T](read, httpapi.MaxBundleRows)
}
