package sqlstore

import (
	"testing"

	"github.com/matryer/is"
)

func TestQualifiedStatements(t *testing.T) {
	is := is.New(t)
	in := Dialect{Schema: `a"b`}.schema()
	for statement, want := range map[string]string{
		"SELECT svc_users.id FROM svc_users":               `SELECT "a""b".svc_users.id FROM "a""b".svc_users`,
		"DROP INDEX svc_users_by":                          `DROP INDEX "a""b".svc_users_by`,
		"CREATE INDEX svc_users_by ON svc_users (id)":      `CREATE INDEX svc_users_by ON "a""b".svc_users (id)`,
		`SELECT 'svc_' || "svc_x", x.svc_y, mysvc_z`:       `SELECT 'svc_' || "svc_x", x.svc_y, mysvc_z`,
		`SELECT 'it''s svc_users' FROM svc_users`:          `SELECT 'it''s svc_users' FROM "a""b".svc_users`,
		`INSERT INTO "a""b".svc_users SELECT * FROM svc_u`: `INSERT INTO "a""b".svc_users SELECT * FROM "a""b".svc_u`,
	} {
		is.Equal(in.qualify(statement), want)
		is.Equal(schema("").qualify(statement), statement)
	}
}
