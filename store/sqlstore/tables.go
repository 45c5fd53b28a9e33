package sqlstore

import (
	"regexp"
	"slices"
	"strings"
)

// table is a table that the migrations make.
type table struct {
	name    string
	columns []column // those that an INSERT names: not the generated ones
	key     []string // the primary key
	seeded  bool     // a migration inserts rows, which no statement deletes
	of      string   // the tenant whose rows a copy adds to those of others; "": none
}

type column struct {
	name string
	kind string // "{text}", "{bytes}", "BIGINT", "DOUBLE" or serial
}

// serial is the kind of a column that numbers new rows.
const serial = "{serial}"

// tables returns the tables that migrations make, from their texts. A table is behind those that it
// refers to. The table of versions is not among them.
func tables(migrations []string) (list []*table) {
	byName := map[string]*table{}
	for _, migration := range migrations {
		for _, statement := range statements(migration) {
			words := strings.Fields(statement)
			switch statement = strings.TrimSpace(statement); {
			case strings.HasPrefix(statement, "CREATE TABLE "):
				t := createdTable(words[2], statement)
				byName[t.name] = t
				list = append(list, t)
			case strings.HasPrefix(statement, "DROP TABLE "):
				list = slices.DeleteFunc(list, func(t *table) bool { return t.name == words[2] })
			case strings.HasPrefix(statement, "ALTER TABLE "):
				_, definition, _ := strings.Cut(statement, " ADD COLUMN ")
				byName[words[2]].define(definition)
			case strings.HasPrefix(statement, "INSERT INTO "):
				byName[words[2]].seeded = true
			}
		}
	}
	return list
}

// definitionEnd is where a definition ends: migrations have one on each line.
var definitionEnd = regexp.MustCompile(`,\s*\n`)

func createdTable(name, statement string) *table {
	t := &table{name: name}
	body := statement[strings.Index(statement, "(")+1 : strings.LastIndex(statement, ")")]
	for _, definition := range definitionEnd.Split(body, -1) {
		t.define(strings.TrimSpace(definition))
	}
	return t
}

// define adds what a definition in CREATE TABLE or ALTER TABLE says: a column, or the key.
func (t *table) define(definition string) {
	if columns, isKey := strings.CutPrefix(definition, "PRIMARY KEY ("); isKey {
		columns, _, _ = strings.Cut(columns, ")")
		t.key = strings.Split(columns, ", ")
		return
	}
	words := strings.Fields(definition)
	if words[0] == "FOREIGN" || strings.Contains(definition, " GENERATED ALWAYS ") {
		return
	}
	t.columns = append(t.columns, column{name: words[0], kind: words[1]})
	if strings.Contains(definition, " PRIMARY KEY") {
		t.key = []string{words[0]}
	}
}

// names returns the names of the columns.
func (t *table) names() (names []string) {
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	return names
}

// keyOf returns the values of the primary key in a row.
func (t *table) keyOf(row []any) (values []any) {
	for _, name := range t.key {
		for i, c := range t.columns {
			if c.name == name {
				values = append(values, row[i])
			}
		}
	}
	return values
}
