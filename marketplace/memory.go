package marketplace

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// storedHeader is the header of an answer in the store: one line of JSON. The answer follows in
// gzip.
type storedHeader struct {
	Key   string    `json:"key"` // the hash of the fileKey
	Asked time.Time `json:"asked"`
	validators
	Signature []byte `json:"signature,omitempty"`
}

// hash returns a text that identifies a key and does not show its parts.
func (k fileKey) hash() string {
	text := strings.Join([]string{
		string(k.source.Scope), k.source.Owner, k.source.Name,
		strconv.FormatInt(k.registered, 10),
		k.url, string(k.credential[:]), k.manifest,
	}, "\x00")
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// remember stores an answer for later processes. It stores only an answer with a validator, because
// only for such an answer can a later request ask whether it is still good.
func (c *Client) remember(
	ctx context.Context, at place, key fileKey, file *fileCopy, data []byte,
) {
	if at.from.Memory == nil || file.ETag == "" && file.LastModified == "" {
		return
	}
	var b bytes.Buffer
	header := storedHeader{key.hash(), file.asked, file.validators, file.signature}
	_ = json.NewEncoder(&b).Encode(header)
	zip, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = zip.Write(data)
	_ = zip.Close() // writes to memory do not fail
	at.from.Memory.KeepFile(ctx, key.manifest, b.Bytes())
}

// recall loads the answer that remember stored for a file, and caches it. It returns nil if the
// store has no such answer. recall checks the answer like a new one.
func (c *Client) recall(ctx context.Context, at place, key fileKey) *fileCopy {
	if at.from.Memory == nil {
		return nil
	}
	line, zipped, _ := bytes.Cut(at.from.Memory.File(ctx, key.manifest), []byte("\n"))
	var was storedHeader
	if json.Unmarshal(line, &was) != nil || was.Key != key.hash() {
		return nil
	}
	_, limit := c.nameOf(key)
	ctx, turn := c.reading.turn(ctx, at.from.Source)
	defer turn.end()
	data, err := unzip(ctx, zipped, limit, turn)
	if err != nil {
		return nil
	}
	file := &fileCopy{asked: was.Asked, validators: was.validators}
	if now := c.now(); file.asked.After(now) { // the clock of another process may be ahead
		file.asked = now
	}
	if file.document, err = c.read(ctx, at, key, data, was.Signature); err != nil {
		return nil
	}
	c.copies.restore(key, file)
	return file
}

func unzip(ctx context.Context, data []byte, limit int, t *turn) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return readLimited(ctx, zip, limit, -1, t)
}
