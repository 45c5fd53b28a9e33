package bench_test

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/bcrypt"
)

// peers are other ways to verify keys, with so many stored. Programs that also issue keys are
// reimplemented here after their sources. A library is in package tokens: its imports would count
// in the memory of this program.
var peers = []peer{
	{"gitea", gitea},
	{"gitea-remembered", giteaRemembered},
	{"grafana", grafana},
	{"bcrypt-10", bcrypted},
}

type peer struct {
	name string
	make func(ctx context.Context, stored int) (verifier, error)
}

func (p peer) verifier(tb testing.TB, stored int) verifier {
	tb.Helper()
	v, err := p.make(tb.Context(), stored)
	if err != nil {
		tb.Fatal(p.name, ": ", err)
	}
	v.name = p.name
	return v
}

const (
	slowKeys   = 32 // stored keys, where making one takes milliseconds
	iterations = 10_000
	derived    = 50 // bytes
)

var errRefused = errors.New("the key is refused")

// TestPeers checks that each peer accepts its keys and refuses others.
func TestPeers(t *testing.T) {
	for _, p := range peers {
		peer := p.verifier(t, slowKeys)
		for i, key := range peer.keys[:3] {
			other := []byte(key)
			other[12] ^= 1
			for range 2 { // the second call may use the cache
				if err := peer.verify(key); err != nil {
					t.Errorf("%s refuses key %d: %v", peer.name, i, err)
				}
				if err := peer.verify(string(other)); err == nil {
					t.Errorf("%s accepts a key like %d", peer.name, i)
				}
			}
		}
	}
}

// slowHash returns the hash that Gitea and Grafana store for a secret.
func slowHash(secret, salt string) (string, error) {
	hash, err := pbkdf2.Key(sha256.New, secret, []byte(salt), iterations, derived)
	return hex.EncodeToString(hash), err
}

func same(a, b string) error {
	if subtle.ConstantTimeCompare([]byte(a), []byte(b)) != 1 {
		return errRefused
	}
	return nil
}

// peerRows is a SQLite table of a peer's keys. It finds a row by a number, by a part of the key or
// by its hash.
type peerRows struct{ byID, byPart, byHash *sql.Stmt }

type peerRow struct {
	id         int64
	hash, salt string
}

// newPeerRows stores the rows of the keys, and other rows up to stored.
func newPeerRows(ctx context.Context, stored int, rows []peerRow, parts []string) (*peerRows, error) {
	write, read := sqliteEngine.connect(filepath.Join(scratch, "peer-"+rand.Text()+".db"), nil)
	_, err := write.ExecContext(ctx, `CREATE TABLE keys (id INTEGER PRIMARY KEY, hash TEXT UNIQUE, salt TEXT, part TEXT)`)
	if err != nil {
		return nil, err
	}
	others := fmt.Sprintf(`INSERT INTO keys (hash, salt, part)
		SELECT lower(hex(randomblob(50))), lower(hex(randomblob(5))), lower(hex(randomblob(4))) FROM `+sqliteEngine.numbers, stored)
	_, err = write.ExecContext(ctx, others+`; CREATE INDEX parts ON keys (part)`)
	for i, row := range rows {
		_, failed := write.ExecContext(ctx, `UPDATE keys SET hash = $1, salt = $2, part = $3 WHERE id = $4`, row.hash, row.salt, parts[i], row.id)
		err = errors.Join(err, failed)
	}
	var r peerRows
	for to, where := range map[**sql.Stmt]string{&r.byID: "id", &r.byPart: "part", &r.byHash: "hash"} {
		var failed error
		*to, failed = read.PrepareContext(ctx, `SELECT id, hash, salt FROM keys WHERE `+where+` = $1`)
		err = errors.Join(err, failed)
	}
	return &r, err
}

func find(by *sql.Stmt, value any) (row peerRow, err error) {
	err = by.QueryRow(value).Scan(&row.id, &row.hash, &row.salt)
	return row, err
}

// giteaRows makes keys as Gitea does: 40 hexadecimal characters, each hashed with a salt and found
// by the last eight.
func giteaRows(ctx context.Context, stored int) (keys []string, rows *peerRows, err error) {
	var hashed []peerRow
	var parts []string
	for i := range slowKeys {
		secret := make([]byte, 20)
		rand.Read(secret)
		key, row := hex.EncodeToString(secret), peerRow{id: int64(i + 1), salt: rand.Text()[:10]}
		if row.hash, err = slowHash(key, row.salt); err != nil {
			return nil, nil, err
		}
		keys, hashed, parts = append(keys, key), append(hashed, row), append(parts, key[len(key)-8:])
	}
	rows, err = newPeerRows(ctx, stored, hashed, parts)
	return keys, rows, err
}

func (r *peerRows) giteaKey(key string) (peerRow, error) {
	row, err := find(r.byPart, key[len(key)-8:])
	if err != nil {
		return row, err
	}
	hash, err := slowHash(key, row.salt)
	return row, errors.Join(err, same(hash, row.hash))
}

// gitea verifies keys that are not cached.
func gitea(ctx context.Context, stored int) (verifier, error) {
	keys, rows, err := giteaRows(ctx, stored)
	return verifier{keys: keys, verify: func(key string) error {
		_, err := rows.giteaKey(key)
		return err
	}}, err
}

// giteaRemembered caches which row a key belongs to, and reads the row each time. Gitea caches 20
// keys by default; here all are cached.
func giteaRemembered(ctx context.Context, stored int) (verifier, error) {
	keys, rows, err := giteaRows(ctx, stored)
	known, failed := lru.New[string, peerRow](stored)
	verify := func(key string) error {
		if remembered, ok := known.Get(key); ok {
			row, err := find(rows.byID, remembered.id)
			return errors.Join(err, same(row.hash, remembered.hash))
		}
		row, err := rows.giteaKey(key)
		if err == nil {
			known.Add(key, row)
		}
		return err
	}
	for _, key := range keys {
		failed = errors.Join(failed, verify(key))
	}
	return verifier{keys: keys, verify: verify}, errors.Join(err, failed)
}

// bcrypted is bcrypt at its usual cost of 10, with the hash at hand.
func bcrypted(context.Context, int) (verifier, error) {
	v := verifier{}
	hashes := map[string][]byte{}
	for range slowKeys / 4 {
		key := "svcu_" + rand.Text() + rand.Text()
		hash, err := bcrypt.GenerateFromPassword([]byte(key), 10)
		if err != nil {
			return v, err
		}
		v.keys, hashes[key[:10]] = append(v.keys, key), hash
	}
	v.verify = func(key string) error { return bcrypt.CompareHashAndPassword(hashes[key[:10]], []byte(key)) }
	return v, nil
}
