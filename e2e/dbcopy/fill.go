package dbcopy

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Filler puts rows with odd values into a database. The same seed makes the same rows.
type Filler struct {
	*rand.Rand
	n     int                         // distinguishes keys
	filed map[string][]map[string]any // the rows of each table
}

// NewFiller returns a filler.
func NewFiller(seed uint64) *Filler {
	return &Filler{Rand: rand.New(rand.NewPCG(seed, 0)), filed: map[string][]map[string]any{}}
}

// Fill inserts rows into each table, in one transaction. Each column gets null, if it may be null,
// and odd values; large is the length of the longest text and bytes. The generation is raised.
func (f *Filler) Fill(t testing.TB, db *sql.DB, tables []Table, rows, large int) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, table := range tables {
		if slices.Contains(kept, table.Name) {
			continue
		}
		for i := range rows {
			longest := 40
			if i == 0 {
				longest = large
			}
			if err := f.insert(t, tx, table, longest); err != nil {
				t.Fatalf("%s: %v", table.Name, err)
			}
		}
	}
	const raise = `UPDATE svc_generation SET value = $1 WHERE id = 1`
	if _, err := tx.ExecContext(t.Context(), raise, f.Int64N(1e9)+1); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (f *Filler) insert(t testing.TB, tx *sql.Tx, table Table, longest int) error {
	f.n++
	row := map[string]any{}
	for _, p := range table.parents {
		of := f.filed[p.table][f.IntN(len(f.filed[p.table]))]
		for i, name := range p.from {
			row[name] = of[p.to[i]]
		}
	}
	var names, places []string
	var values []any
	for _, c := range table.columns {
		if c.generated {
			continue
		}
		if _, given := row[c.name]; !given {
			row[c.name] = f.value(c, longest)
		}
		names = append(names, c.name)
		values = append(values, row[c.name])
		places = append(places, fmt.Sprint("$", len(values)))
	}
	// All columns of a key may be those of a parent.
	result, err := tx.ExecContext(t.Context(), `INSERT INTO `+table.Name+
		` (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(places, ", ")+
		`) ON CONFLICT DO NOTHING`, values...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err == nil && n == 1 {
		f.filed[table.Name] = append(f.filed[table.Name], row)
	}
	return nil
}

// opaque are the columns that may be large: no index has them.
var opaque = []string{
	"manifest", "document", "data", "row_was", "row_is", "value", "request", "hash", "sealed_token",
}

func (f *Filler) value(c column, longest int) any {
	if c.nullable && f.IntN(3) == 0 {
		return nil
	}
	if !slices.Contains(opaque, c.name) {
		longest = 40
	}
	switch c.kind {
	case "TEXT":
		text := f.text(longest)
		if c.key {
			text += fmt.Sprint(f.n)
		}
		return text
	case "BLOB":
		data := f.bytes(longest)
		if c.key {
			data = fmt.Append(data, f.n)
		}
		return data
	}
	if c.key {
		return int64(f.n)
	}
	odd := []int64{0, 1, -1, 1_700_000_000_123_456, math.MaxInt64, math.MinInt64}
	return odd[f.IntN(len(odd))]
}

// texts are parts of odd texts. A text in a database has no NUL.
var texts = []string{
	"", " ", "a", "é", "e\u0301", "😀", "\u2028", "'", `"`, `\`, "%", "$1", "?", "null", "\r\n",
	"\u007f", "\x01", "\u200d", "\ufeff", "\U0010ffff", "\uffff", `{"a": 1.0e400}`,
	"; DROP TABLE svc_users; --", `\x00`,
}

func (f *Filler) text(longest int) string {
	if longest > 40 {
		return strings.Repeat("é{}", longest/4)
	}
	var b strings.Builder
	for range f.IntN(4) {
		b.WriteString(texts[f.IntN(len(texts))])
	}
	return b.String()
}

func (f *Filler) bytes(longest int) []byte {
	size := longest
	if longest <= 40 {
		size = f.IntN(longest)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(f.Uint32())
	}
	return data
}
