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
	url   *url.URL
	token svc.Secret // shown to homes only; "" none
	homes []origin
	limit int        // of bytes, decoded
	known validators // of the copy that there is; zero: there is none
}

// answer is what was answered to a request for a file.
type answer struct {
	data      []byte
	next      string // where to ask instead; "": nowhere, this is it
	unchanged bool   // the copy is still good: there is no data
	validators
}

// get reads a file, over redirects. Errors are faults, or ctx's when the caller cancelled it.
func (c *Client) get(ctx context.Context, file webFile) (answer, error) {
	for hops := 0; ; hops++ {
		to, problem := c.webOrigin(file.url)
		if problem != "" {
			return answer{}, failed("redirects to an address that is refused: it "+problem, nil)
		}
		file.url.Host = to.hostport() // what was judged is what is dialled
		if !slices.Contains(file.homes, to) {
			file.token = "" // for good: who was sent away and back is not trusted with it again
		}
		a, err := c.ask(ctx, c.transportTo(to), file)
		if err != nil || a.next == "" {
			return a, err
		}
		if hops >= c.limits.Redirects {
			return answer{}, failed("redirects too often", nil)
		}
		if file.url, err = follow(file.url, a.next); err != nil {
			return answer{}, err
		}
	}
}

// transportTo returns the transport for an origin: only those that the host allowed by name go unguarded.
func (c *Client) transportTo(o origin) *http.Transport {
	if c.origins[o] {
		return c.allowed
	}
	return c.guarded
}

// follow resolves where a redirect leads. That it may be asked is checked when it is.
func follow(from *url.URL, location string) (*url.URL, error) {
	next, err := url.Parse(location)
	if err != nil {
		if malformed, ok := errors.AsType[*url.Error](err); ok {
			err = malformed.Err // without the address: it may hold a password
		}
		return nil, failed("redirects to a malformed address", err)
	}
	next = from.ResolveReference(next)
	_, problem := parseAddress(next.String())
	if problem == "" && encodesControl(next) {
		problem = "must hold no control characters"
	}
	if problem != "" {
		return nil, failed("redirects to an address that is refused: it "+problem, nil)
	}
	return next, nil
}

// ask makes one request.
func (c *Client) ask(ctx context.Context, transport *http.Transport, file webFile) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file.url.String(), nil)
	if err != nil {
		return answer{}, failed("has a malformed address", err)
	}
	request.Close = file.token != "" // what a source says unasked on an idle connection net/http logs, the token too if it repeats it
	conditional := c.setHeaders(request.Header, file)
	timer := time.AfterFunc(c.limits.HeaderTimeout, func() { cancel(errSlowHeaders) })
	response, err := transport.RoundTrip(request)
	timer.Stop()
	if err != nil {
		return answer{}, ended(ctx, "cannot be reached", err)
	}
	defer response.Body.Close()
	switch {
	case isRedirect(response.StatusCode):
		return answer{next: response.Header.Get("Location")}, redirectProblem(response)
	case response.StatusCode == http.StatusNotModified && conditional:
		return answer{unchanged: true, validators: file.known}, nil
	}
	data, err := readAnswer(response, file.limit)
	if err != nil {
		return answer{}, ended(ctx, "broke off or is damaged", err)
	}
	return answer{data: data, validators: validatorsOf(file, response.Header)}, nil
}

// setHeaders reports whether they make the request conditional.
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
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func redirectProblem(response *http.Response) error {
	if response.Header.Get("Location") == "" {
		return failed("answered "+strconv.Itoa(response.StatusCode)+" without saying where it is", nil)
	}
	return nil
}
