package marketplace

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/extsvc/svc"
)

const (
	catalogFile   = "templates.json"
	signatureFile = "templates.json.sig" // Ed25519 signature (RFC 8032) of templates.json in base64
	maxSignature  = 4096                 // bytes of the file
	maxSerial     = 1 << 53
)

// verify refuses a catalogue without a signature by key. The registration of the source pinned that
// key.
func verify(catalog, signature []byte, key ed25519.PublicKey) error {
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(signature)))
	if err != nil || len(raw) != ed25519.SignatureSize {
		return newFault("is not signed: "+signatureFile+" must be 64 bytes in base64", err)
	}
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, catalog, raw) {
		return newFault("is not signed with the source's key", nil)
	}
	return nil
}

// signature fetches the signature of a catalogue.
func (c *Client) signature(ctx context.Context, at place) ([]byte, error) {
	data, err := c.bytes(ctx, at, signatureFile, maxSignature)
	if f, is := err.(*fault); is {
		reason := "is not signed: " + signatureFile + " " + f.reason
		return nil, &fault{code: f.code, reason: reason, err: f.err}
	}
	return data, err
}

// admit refuses a signed catalogue that has expired or has a lower serial than an accepted one. An
// attacker who cannot sign can still send an old signed catalogue.
func (c *Client) admit(ctx context.Context, at place, catalog svc.Catalog) error {
	if at.from.SigningKey == nil {
		return nil
	}
	if end := catalog.Expires; !end.IsZero() && c.now().After(end) {
		return newFault("has expired, on "+end.UTC().Format(time.RFC3339), nil)
	}
	accepted := at.from.Serial
	if at.from.Memory != nil {
		var err error
		if accepted, err = at.from.Memory.AcceptSerial(ctx, catalog.Serial); err != nil {
			reason := "has a serial that cannot be checked now: try again"
			if errors.Is(err, svc.ErrNotFound) { // the others of a check go on
				reason = "was asked for before the source was removed"
				return &fault{code: svc.CodeNotFound, reason: reason, err: err}
			}
			return &fault{code: svc.CodeUnavailable, reason: reason, err: err}
		}
	}
	if catalog.Serial < accepted {
		return newFault(fmt.Sprintf("has serial %d, but serial %d was accepted before",
			catalog.Serial, accepted), nil)
	}
	return nil
}
