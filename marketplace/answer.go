package marketplace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// errTooLarge means that a file has more bytes than its limit.
var errTooLarge = errors.New("more bytes than allowed")

// noLimit replaces larger limits, so that a sum with a limit does not overflow.
const noLimit = math.MaxInt / 2

// readAnswer reads and decodes the body of an answer with status 200. The decoded body has at most
// limit bytes. Errors are faults, or the errors of reading.
func readAnswer(
	ctx context.Context, response *http.Response, limit int, t *turn,
) ([]byte, error) {
	if response.StatusCode != http.StatusOK {
		reason := "answered " + strconv.Itoa(response.StatusCode)
		if response.StatusCode/100 == 4 {
			return nil, newMisplaced(reason, nil)
		}
		return nil, newFault(reason, nil)
	}
	if slices.ContainsFunc(response.Header.Values("Content-Type"), isHTML) {
		return nil, newMisplaced("is a web page, not JSON", nil)
	}
	limit, announced := min(limit, noLimit), int64(0)
	// A gzip stream can be longer than its content, even endless without content.
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
		return nil, newFault("came in an encoding other than gzip", nil)
	}
	data, err := readLimited(ctx, body, limit, announced, t)
	if err == nil && bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte("<")) {
		return nil, newMisplaced("is a web page or XML, not JSON", nil)
	}
	return data, err
}

func isHTML(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";") // parameters may be malformed: ignore them
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "text/html" || media == "application/xhtml+xml"
}

// readLimited reads all of from. It returns a fault if from has more than limit bytes. announced is
// the expected length, or less than 1 if unknown. readLimited allocates only the announced bytes.
// If the length is unknown, all its buffers together have at most seven thirds of the limit. Before
// it reads more than smallAnswer, it takes t for the announced length, else for the limit.
func readLimited(
	ctx context.Context, from io.Reader, limit int, announced int64, t *turn,
) ([]byte, error) {
	limit = min(limit, noLimit)
	tooLarge := newFault(fmt.Sprintf("is larger than %d bytes", limit), errTooLarge)
	if announced > int64(limit) {
		return nil, tooLarge
	}
	// The extra byte shows whether from has more than limit bytes.
	size, taken := min(max(int(announced), 16<<10), limit)+1, false
	take := func(n int) error {
		if taken || size <= smallAnswer {
			return nil
		}
		taken = true
		return t.take(ctx, n)
	}
	if err := take(size); err != nil {
		return nil, err
	}
	data := make([]byte, 0, size)
	for {
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > limit, errors.Is(err, errTooLarge):
			return nil, tooLarge
		case err == io.EOF:
			t.keep(len(data))
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			size = min(4*len(data), limit+1)
			if err := take(limit); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, size), data...)
		}
	}
}

// limited reads at most left bytes. If from has more, it returns one more with errTooLarge.
type limited struct {
	from io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.from.Read(p[:min(int64(len(p)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return n, errTooLarge
	}
	return n, err
}
