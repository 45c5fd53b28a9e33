package marketplace

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/extsvc/svc"
)

// webFile is a file to read from the web.
type webFile struct {
	url     *url.URL
	token   svc.Secret // goes to homes only; "": none
	secret  bool       // a home got the token, so that any later hop may have it
	homes   []origin
	limit   int        // in bytes, decoded
	trusted bool       // AllowOrigins and AllowCIDRs hold
	known   validators // of the cached copy; zero: the cache has no copy
	turn    *turn      // nil: the limit is small
}

// answer is the answer to a request for a file.
type answer struct {
	data      []byte
	next      string // the address that a redirect names; "": no redirect
	unchanged bool   // the cached copy is still good, and data is nil
	validators
}

// get reads a file and follows redirects. Errors are faults, or ctx's when the caller cancelled it.
func (c *Client) get(ctx context.Context, file webFile) (answer, error) {
	file.secret = file.token != ""
	for hops := 0; ; hops++ {
		to, problem := c.webOrigin(file.url, file.trusted)
		if problem != "" {
			return answer{}, newFault("redirects to an address that is refused: it "+problem, nil)
		}
		file.url.Host = to.hostport() // dial exactly the host that was checked
		if !slices.Contains(file.homes, to) {
			file.token = "" // for all later hops, also for one that leads back to a home
		}
		transport := c.public
		if file.trusted {
			transport = c.guarded
			if c.origins[to] { // only these bypass the guard
				transport = c.allowed
			}
		}
		a, err := c.ask(ctx, transport, file)
		if err != nil || a.next == "" {
			return a, err
		}
		if hops >= c.limits.Redirects {
			return answer{}, newFault("redirects too often", nil)
		}
		if file.url, err = follow(file.url, a.next); err != nil {
			return answer{}, err
		}
	}
}

// follow resolves the address that a redirect names. get checks later whether the Client may ask
// that origin.
func follow(from *url.URL, location string) (*url.URL, error) {
	next, err := url.Parse(location)
	if err != nil {
		if malformed, ok := errors.AsType[*url.Error](err); ok {
			err = malformed.Err // drops the address, which can hold a password
		}
		return nil, newFault("redirects to a malformed address", err)
	}
	next = from.ResolveReference(next)
	_, problem := parseAddress(next.String())
	if problem == "" && encodesControl(next) {
		problem = "must hold no control characters"
	}
	if problem != "" {
		return nil, newFault("redirects to an address that is refused: it "+problem, nil)
	}
	return next, nil
}

// ask makes one request.
func (c *Client) ask(ctx context.Context, transport *http.Transport, file webFile) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file.url.String(), nil)
	if err != nil {
		return answer{}, newFault("has a malformed address", err)
	}
	// net/http logs data that arrives on an idle connection, and a source can put the token there,
	// or into the address of a redirect.
	request.Close = file.secret
	conditional := c.setHeaders(request.Header, file)
	timer := time.AfterFunc(c.limits.HeaderTimeout, func() { cancel(errSlowHeaders) })
	response, err := transport.RoundTrip(request)
	timer.Stop()
	if err != nil {
		return answer{}, explain(ctx, "cannot be reached", err)
	}
	defer response.Body.Close()
	status, location := response.StatusCode, response.Header.Get("Location")
	switch {
	case isRedirect(status) && location == "":
		return answer{}, newFault("answered "+strconv.Itoa(status)+" without a Location", nil)
	case isRedirect(status):
		return answer{next: location}, nil
	case status == http.StatusNotModified && conditional:
		return answer{unchanged: true, validators: file.known}, nil
	}
	data, err := readAnswer(ctx, response, file.limit, file.turn)
	if err != nil {
		return answer{}, explain(ctx, "broke off or is damaged", err)
	}
	return answer{data: data, validators: validatorsOf(file, response.Header)}, nil
}

// setHeaders sets the headers of a request. It reports whether they make the request conditional.
func (c *Client) setHeaders(header http.Header, file webFile) (conditional bool) {
	header.Set("Accept", "application/json, */*;q=0.5")
	header.Set("Accept-Encoding", "gzip")
	header.Set("User-Agent", c.userAgent)
	if file.token != "" {
		header.Set("Authorization", "Bearer "+string(file.token))
	}
	return file.known.ask(header, file)
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
