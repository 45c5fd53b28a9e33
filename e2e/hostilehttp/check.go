package hostilehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"
)

// codes lists the codes of docs/reference/errors.md that a server with a healthy store and healthy
// sources gives.
var codes = map[int][]string{
	400: {"invalid_request"},
	401: {"unauthenticated"},
	403: {"forbidden"},
	404: {"not_found"},
	405: {"method_not_allowed"},
	409: {"already_exists", "edited_locally", "source_moved", "changed_meanwhile"},
	412: {"precondition_failed"},
	413: {"body_too_large"},
	415: {"unsupported_media_type"},
	422: {"idempotency_key_reused"},
}

// check fails for an answer that the interface never gives.
func check(method string, response *http.Response, body []byte) error {
	kind := response.Header.Get("Content-Type")
	switch status := response.StatusCode; {
	case status >= 500:
		return fmt.Errorf("%d: %.300s", status, body)
	case response.Header.Get("Location") != "":
		return fmt.Errorf("%d redirects to %q", status, response.Header.Get("Location"))
	case response.Header.Get("X-Content-Type-Options") != "nosniff":
		return fmt.Errorf("%d does not come from the interface: %.300s", status, body)
	case !utf8.Valid(body):
		return fmt.Errorf("%d is not UTF-8: %q", status, body)
	case status == 204 || status == 304 || method == http.MethodHead:
		if len(body) > 0 {
			return fmt.Errorf("%d with the body %.300s", status, body)
		}
		return nil
	case status < 300:
		if kind != "application/json" || !json.Valid(body) {
			return fmt.Errorf("%d of %q is not JSON: %.300s", status, kind, body)
		}
		return nil
	case kind != "application/problem+json":
		return fmt.Errorf("%d of %q is not a problem: %.300s", status, kind, body)
	}
	return checkProblem(response.StatusCode, body)
}

func checkProblem(status int, body []byte) error {
	var problem struct {
		Type, Title, Detail, Code string
		Status                    int
		Errors                    []struct{ Detail string }
	}
	if err := json.Unmarshal(body, &problem); err != nil {
		return fmt.Errorf("%d: %.300s: %w", status, body, err)
	}
	switch {
	case problem.Status != status || !slices.Contains(codes[status], problem.Code):
		return fmt.Errorf("%d has an unknown code: %.300s", status, body)
	case problem.Title != http.StatusText(status) || problem.Detail == "" || problem.Type == "":
		return fmt.Errorf("%d is a problem without type, title or detail: %.300s", status, body)
	case (status == http.StatusBadRequest) != (len(problem.Errors) > 0):
		return errors.New("a 400 must list errors, other answers must not: " + string(body))
	}
	return nil
}
