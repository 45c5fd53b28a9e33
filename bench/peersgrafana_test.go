package bench_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
)

// grafana verifies keys as Grafana does for service accounts: a prefix, a secret, and the checksum
// of both, which is the salt. It finds the row by the hash and caches nothing.
func grafana(ctx context.Context, stored int) (verifier, error) {
	v := verifier{}
	var hashed []peerRow
	for i := range slowKeys {
		body := "glsa_" + rand.Text() + rand.Text()[:6]
		key := body + "_" + grafanaSum(body)
		hash, err := grafanaHash(key)
		if err != nil {
			return v, err
		}
		v.keys, hashed = append(v.keys, key), append(hashed, peerRow{id: int64(i + 1), hash: hash})
	}
	rows, err := newPeerRows(ctx, stored, hashed, v.keys)
	v.verify = func(key string) error {
		hash, err := grafanaHash(key)
		if err != nil {
			return err
		}
		_, err = find(rows.byHash, hash)
		return err
	}
	return v, err
}

func grafanaHash(key string) (string, error) {
	parts := strings.Split(key, "_")
	if len(parts) != 3 || grafanaSum(parts[0]+"_"+parts[1]) != parts[2] {
		return "", errRefused
	}
	return slowHash(parts[1], parts[2])
}

func grafanaSum(body string) string {
	return hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(body))))
}
