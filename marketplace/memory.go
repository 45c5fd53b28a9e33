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

// kept is what stands, as a line of JSON, before the answer itself, compressed, in what outlives the process.
type kept struct {
	Key          string    `json:"key"` // whose file it is: see fileKey
	Asked        time.Time `json:"asked"`
	URL          string    `json:"url"`
	Authorized   bool      `json:"authorized,omitempty"`
	ETag         string    `json:"etag,omitempty"`
	LastModified string    `json:"last_modified,omitempty"`
	Signature    []byte    `json:"signature,omitempty"`
}

// hash stands for a key where the key itself is not to be seen.
func (k fileKey) hash() string {
	text := strings.Join([]string{
		string(k.source.Scope), k.source.Owner, k.source.Name, strconv.FormatInt(k.registered, 10), k.url, string(k.credential[:]), k.manifest,
	}, "\x00")
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// remember keeps an answer beyond the life of the process, when a server can be asked whether it still holds.
func (c *Client) remember(ctx context.Context, at place, key fileKey, file *fileCopy, data []byte) {
	if at.from.Memory == nil || file.etag == "" && file.lastModified == "" {
		return
	}
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(kept{
		Key: key.hash(), Asked: file.asked, URL: file.url, Authorized: file.authorized, ETag: file.etag, LastModified: file.lastModified,
		Signature: file.signature,
	})
	zip, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = zip.Write(data)
	_ = zip.Close() // nothing of this fails in memory
	at.from.Memory.KeepFile(ctx, key.manifest, b.Bytes())
}

// recall brings back what was remembered of a file, or nil. It is judged as if it had just been answered.
func (c *Client) recall(ctx context.Context, at place, key fileKey) *fileCopy {
	if at.from.Memory == nil {
		return nil
	}
	line, zipped, _ := bytes.Cut(at.from.Memory.File(ctx, key.manifest), []byte("\n"))
	var was kept
	if json.Unmarshal(line, &was) != nil || was.Key != key.hash() {
		return nil
	}
	_, limit := c.nameOf(key)
	data, err := unzip(zipped, limit)
	if err != nil {
		return nil
	}
	file := &fileCopy{
		asked:      was.Asked,
		validators: validators{url: was.URL, authorized: was.Authorized, etag: was.ETag, lastModified: was.LastModified},
	}
	if file.document, err = c.read(at, key, data, was.Signature); err != nil {
		return nil
	}
	c.copies.restore(key, file)
	return file
}

func unzip(data []byte, limit int) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return readLimited(zip, limit, -1)
}
