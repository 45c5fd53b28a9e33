package svc

import "github.com/extsvc/svc/internal/token"

// Resum gives a key without its checksum the right one.
func Resum(key string) string {
	return token.Token{Prefix: key[:5], ID: key[5:21], Secret: key[21:]}.String()
}

// SeenLongAgo makes the service forget that the store was seen lately.
func (s *Service) SeenLongAgo() { s.copies.seen.Store(int64(-2 * trusted)) }
