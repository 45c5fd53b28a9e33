package marketplace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// errTooLarge: more was read than may be.
var errTooLarge = errors.New("more bytes than allowed")

// readAnswer reads the body of a good answer, decoded, of at most limit bytes. Errors are faults, or what reading
// returned.
func readAnswer(response *http.Response, limit int) ([]byte, error) {
	if response.StatusCode != http.StatusOK {
		return nil, failed("answered "+strconv.Itoa(response.StatusCode), nil)
	}
	if isHTML(response.Header.Get("Content-Type")) {
		return nil, failed("is a web page, not JSON", nil)
	}
	// On the wire a gzip stream may be longer than what comes out of it, even endless with nothing in it.
	wire := &limited{from: response.Body, left: int64(limit) + int64(limit)/8 + 64<<10}
	var body io.Reader
	switch encoding := response.Header.Values("Content-Encoding"); {
	case len(encoding) == 0, len(encoding) == 1 && strings.EqualFold(encoding[0], "identity"):
		body = wire
	case len(encoding) == 1 && strings.EqualFold(encoding[0], "gzip"):
		unzip, err := gzip.NewReader(wire)
		if err != nil {
			return nil, err
		}
		body = unzip
	default:
		return nil, failed("came in an encoding that was not asked for", nil)
	}
	data, err := readLimited(body, limit)
	if err == nil && bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte("<")) {
		return nil, failed("is a web page or XML, not JSON", nil)
	}
	return data, err
}

func isHTML(contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "text/html" || media == "application/xhtml+xml"
}

// readLimited reads all of from, at most limit bytes; a fault says when there are more.
func readLimited(from io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(&limited{from: from, left: int64(limit)})
	if errors.Is(err, errTooLarge) {
		return nil, failed(fmt.Sprintf("is larger than %d bytes", limit), err)
	}
	return data, err
}

// limited reads at most left bytes, and fails with errTooLarge when there are more.
type limited struct {
	from io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1] // one more tells whether there are more
	}
	n, err := l.from.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return n - 1, errTooLarge
	}
	return n, err
}
