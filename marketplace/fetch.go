package marketplace

import (
	"context"
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
	limit int // of bytes, decoded
}

// get reads a file, over redirects. Errors are faults, or ctx's when the caller cancelled it.
func (c *Client) get(ctx context.Context, file webFile) ([]byte, error) {
	for hops := 0; ; hops++ {
		to, problem := c.webOrigin(file.url)
		if problem != "" {
			return nil, failed("redirects to an address that is refused: it "+problem, nil)
		}
		file.url.Host = to.hostport() // what was judged is what is dialled
		if !slices.Contains(file.homes, to) {
			file.token = "" // for good: who was sent away and back is not trusted with it again
		}
		data, next, err := c.ask(ctx, c.transportTo(to), file)
		if err != nil || next == "" {
			return data, err
		}
		if hops >= c.limits.Redirects {
			return nil, failed("redirects too often", nil)
		}
		if file.url, err = follow(file.url, next); err != nil {
			return nil, err
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
		return nil, failed("redirects to a malformed address", err)
	}
	next = from.ResolveReference(next)
	if _, problem := parseAddress(next.String()); problem != "" {
		return nil, failed("redirects to an address that is refused: it "+problem, nil)
	}
	return next, nil
}

// ask makes one request. It returns what was answered, or where the answer redirects to.
func (c *Client) ask(ctx context.Context, transport *http.Transport, file webFile) (data []byte, next string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file.url.String(), nil)
	if err != nil {
		return nil, "", failed("has a malformed address", err)
	}
	request.Header.Set("Accept", "application/json, */*;q=0.5")
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("User-Agent", c.userAgent)
	if file.token != "" {
		request.Header.Set("Authorization", "Bearer "+string(file.token))
	}
	timer := time.AfterFunc(c.limits.HeaderTimeout, func() { cancel(errSlowHeaders) })
	response, err := transport.RoundTrip(request)
	timer.Stop()
	if err != nil {
		return nil, "", ended(ctx, "cannot be reached", err)
	}
	defer response.Body.Close()
	if isRedirect(response.StatusCode) {
		return nil, response.Header.Get("Location"), redirectProblem(response)
	}
	data, err = readAnswer(response, file.limit)
	if err != nil {
		return nil, "", ended(ctx, "broke off or is damaged", err)
	}
	return data, "", nil
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
