package postgres

import "github.com/extsvc/svc/store/sqlstore"

// WithDialect changes the dialect of a Store that does not listen.
func WithDialect(s *Store, dialect sqlstore.Dialect) *Store {
	s.Store = sqlstore.New(s.db, s.db, dialect)
	return s
}
