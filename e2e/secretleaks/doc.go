// Package secretleaks looks for secrets in places where they must not be. It contains only tests.
//
// The tests go through the whole life of API keys and of a source's access token over HTTP,
// including mistakes and faults. They keep everything that the Service sends and writes: logs,
// events, errors, answers, what fmt shows of values, and the files of the database. Then no twelve
// characters in a row of a secret may appear there, in any usual encoding. The one exception is the
// answer that issues a key.
//
//	hunt_test.go         the search, and the texts and files to search
//	secretleaks_test.go  the service under test; a stored value is not a credential
//	life_test.go         the life of keys and sources
//	faults_test.go       stores and authenticators that fail and repeat all that they get; keys in every place where
//	                     they do not belong; the search finds a secret planted in each place
//	database_test.go     the databases and their files; the source, which repeats what it gets
package secretleaks
