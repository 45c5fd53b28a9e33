// Package upgrade holds databases as released versions made them, and tests that this version
// serves them. CONTRIBUTING.md says how to keep the database of a version.
//
// testdata has a folder for each version:
//
//	sqlite/*.db.gz  the files: one with rows of every kind and the list of tenants, one of a tenant
//	postgres.sql    the same in a PostgreSQL database, as pg_dump wrote it
//	*.answers       requests with the whole answers of that version, for each database
//	migrations.txt  the SHA-256 of each migration
//
// fill.txt makes the rows and requests.txt asks for them. testdata/differences.txt lists what later
// versions may answer differently, with reasons.
package upgrade
