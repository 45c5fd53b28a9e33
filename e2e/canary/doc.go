// Package canary looks for secrets where they have no business. It is tests alone.
//
// The whole life of API keys and of a source's access token is gone through over HTTP, mistakes and faults included, and all that
// the service says and leaves behind is kept: logs, events, errors, answers, what fmt shows of values, and the files of the
// database. Then no twelve characters of a secret in a row may be in it, in any usual encoding, but in the one answer that issues a
// key.
//
//	hunt_test.go      the search
//	evidence_test.go  what is searched
//	canary_test.go    the service that is watched
//	life_test.go      what is done with it: keys and sources
//	upstream_test.go  the source, which repeats what it is told
//	pastes_test.go    keys in every place where they do not belong
//	faults_test.go    stores and authenticators that fail, and say all that they were told
//	hashes_test.go    what is stored is no credential
//	refusals_test.go  keys that are not good are refused alike
//	database_test.go  the databases, and their files
//	plants_test.go    a secret that is planted in each place is found there
package canary
