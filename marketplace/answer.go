package marketplace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// errTooLarge: more was read than may be.
var errTooLarge = errors.New("more bytes than allowed")

// noLimit is the limit of a host that wants none.
const noLimit = math.MaxInt / 2

// readAnswer reads the body of a good answer, decoded, of at most limit bytes. Errors are faults, or what reading
// returned.
func readAnswer(response *http.Response, limit int) ([]byte, error) {
	if response.StatusCode != http.StatusOK {
		return nil, failed("answered "+strconv.Itoa(response.StatusCode), nil)
	}
	if slices.ContainsFunc(response.Header.Values("Content-Type"), isHTML) {
		return nil, failed("is a web page, not JSON", nil)
	}
	limit, announced := min(limit, noLimit), int64(0)
	// On the wire a gzip stream may be longer than what comes out of it, even endless with nothing in it.
	wire := &limited{from: response.Body, left: int64(limit) + int64(limit)/8 + 64<<10}
	var body io.Reader
	switch encoding := response.Header.Values("Content-Encoding"); {
	case len(encoding) == 0, len(encoding) == 1 && strings.EqualFold(encoding[0], "identity"):
		body, announced = wire, response.ContentLength
	case len(encoding) == 1 && strings.EqualFold(encoding[0], "gzip"):
		unzip, err := gzip.NewReader(wire)
		if err != nil {
			return nil, err
		}
		body = unzip
	default:
		return nil, failed("came in an encoding that was not asked for", nil)
	}
	data, err := readLimited(body, limit, announced)
	if err == nil && bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte("<")) {
		return nil, failed("is a web page or XML, not JSON", nil)
	}
	return data, err
}

func isHTML(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";") // whatever the parameters are
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "text/html" || media == "application/xhtml+xml"
}

// readLimited reads all of from, at most limit bytes; a fault says when there are more. announced is how many there will
// be, or less than one. It allocates what was announced and no more, else at most seven thirds of the limit, all buffers
// together.
func readLimited(from io.Reader, limit int, announced int64) ([]byte, error) {
	limit = min(limit, noLimit)
	tooLarge := failed(fmt.Sprintf("is larger than %d bytes", limit), errTooLarge)
	if announced > int64(limit) {
		return nil, tooLarge
	}
	data := make([]byte, 0, min(max(int(announced), 16<<10), limit)+1) // one more tells whether there are more
	for {
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > limit, errors.Is(err, errTooLarge):
			return nil, tooLarge
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(make([]byte, 0, min(4*len(data), limit+1)), data...)
		}
	}
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
