package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
)

// ifMatch returns the entity tags of the If-Match header (RFC 9110, section 13.1.1) of a change;
// nil when there is no such header. It refuses If-None-Match, which a change must
// not ignore (13.1.2).
func (r *request) ifMatch() ([]string, error) {
	if r.Header.Values("If-None-Match") != nil {
		return nil, svc.Invalid("If-None-Match", "is for GET and HEAD: a change takes If-Match")
	}
	return inbound.Tags(r.Header, "If-Match")
}

// conditional has the paths whose PUT, PATCH and DELETE take If-Match: what is there has an ETag.
var conditional = map[string]bool{
	"/users/{user_id}": true, "/groups/{group_id}": true, "/policies/{policy_id}": true,
	"/service-accounts/{sa_id}": true, "/me/service-accounts/{sa_id}": true,
	"/banks/policy": true, "/banks/{bank_id}/policy": true,
	"/admin/templates/{template_id}": true, "/me/templates/{template_id}": true,
}

// checkConditions refuses the condition of a change that takes none: a change that ignored it would
// overwrite what the caller wants to keep.
func checkConditions(r *http.Request, path string) error {
	switch r.Method {
	case http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil
	}
	for _, header := range []string{"If-Match", "If-None-Match"} {
		if !conditional[path] && r.Header.Values(header) != nil {
			return svc.Invalid(header, "is not for this path: what it changes has no entity tag")
		}
	}
	return nil
}

// idempotencyKey returns the unchanged value of the Idempotency-Key header; "" when there is no
// such header.
func (r *request) idempotencyKey() (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || values[0] == "" {
		return "", svc.Invalid("Idempotency-Key", "must be given once and must not be empty")
	}
	return values[0], nil
}

// tagged is a row with an entity tag.
type tagged interface{ ETag() string }

// sendRow answers with what a method of the Service has returned, and its entity tag.
func sendRow[R tagged, A appender](
	w http.ResponseWriter, status int, row R, err error, answer func(R) A,
) error {
	if err != nil {
		return err
	}
	w.Header().Set("ETag", row.ETag())
	return send(w, status, answer(row))
}

// sendIfChanged is sendRow, or a 304 when the client's copy is current.
func sendIfChanged[R tagged, A appender](
	w http.ResponseWriter, r *request, row R, err error, answer func(R) A,
) error {
	if err != nil {
		return err
	}
	known, err := inbound.Tags(r.Header, "If-None-Match")
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, no-cache") // the client may cache and must revalidate
	if etag := row.ETag(); inbound.HasTag(known, etag) {
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return sendRow(w, http.StatusOK, row, nil, answer)
}

func sendTemplate(w http.ResponseWriter, template svc.Template, err error) error {
	return sendRow(w, http.StatusOK, template, err, wireTemplate)
}
