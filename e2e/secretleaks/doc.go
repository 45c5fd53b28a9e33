// Package secretleaks looks for secrets in places where they must not be. It contains only tests.
//
// The tests go through the whole life of API keys and of a source's access token over HTTP,
// including mistakes and faults. They keep everything that the Service sends and writes: logs,
// events, errors, answers, what fmt shows of values, and the files of the database. Then no twelve
// characters in a row of a secret may appear there, in any usual encoding. The one exception is the
// answer that issues a key.
//
//	hunt_test.go         the search
//	evidence_test.go     the texts and files to search
//	secretleaks_test.go  the service under test
//	life_test.go         the life of keys and sources
//	upstream_test.go     the source, which repeats what it gets
//	pastes_test.go       keys in every place where they do not belong
//	faults_test.go       stores and authenticators that fail and repeat all that they get
//	hashes_test.go       a stored value is not a credential
//	refusals_test.go     the server refuses all bad keys alike
//	database_test.go     the databases and their files
//	plants_test.go       the search finds a secret planted in each place
package secretleaks
