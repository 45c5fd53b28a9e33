package sqlstore

import "strings"

// schema is the schema of the tables that statements name, quoted and with a dot behind it. Empty: a
// statement stays as it is.
type schema string

func (d Dialect) schema() schema {
	if d.Schema == "" {
		return ""
	}
	return quoted(d.Schema)
}

func quoted(name string) schema {
	return schema(`"` + strings.ReplaceAll(name, `"`, `""`) + `".`)
}

// create returns the statement that makes the schema, if there is one to make.
func (in schema) create() []string {
	if in == "" {
		return nil
	}
	return []string{"CREATE SCHEMA IF NOT EXISTS " + strings.TrimSuffix(string(in), ".")}
}

// createSchema is create for a migration. That of a tenant is made with the tenant alone: one that is
// missing has been dropped, or was lost.
func (d Dialect) createSchema() []string {
	if d.Tenant != nil {
		return nil
	}
	return d.schema().create()
}

const tablePrefix = "svc_"

// qualify puts the schema in front of each table of a statement. The names of tables begin with svc_
// and stand outside of quotes; an index has no schema where it is made.
func (in schema) qualify(statement string) string {
	if in == "" {
		return statement
	}
	var b strings.Builder
	b.Grow(len(statement) + 8*len(in))
	done, quote := 0, byte(0) // the quote in which i is
	for i := 0; i < len(statement); i++ {
		switch c := statement[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c != 's' || i > 0 && inName(statement[i-1]):
		case !strings.HasPrefix(statement[i:], tablePrefix):
		case strings.HasSuffix(statement[:i], "INDEX "):
		default:
			b.WriteString(statement[done:i])
			b.WriteString(string(in))
			done = i
		}
	}
	b.WriteString(statement[done:])
	return b.String()
}

// inName reports whether c before a word makes it a part of a longer name.
func inName(c byte) bool {
	return c == '_' || c == '.' ||
		'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
