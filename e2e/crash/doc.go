// Package crash kills processes that write, and disks under them, and checks that what was acknowledged is there afterwards
// and that nothing is there by halves. It is tests alone:
//
//	kill_test.go      SQLite: the process is killed (kill -9) and the file opened again
//	powercut_test.go  SQLite: the disk keeps what was written through and forgets the rest
//	postgres_test.go  PostgreSQL: the whole cluster is killed and started again under a worker that goes on
//	diskfull_test.go  SQLite: no space is left, and then there is space again
//	faults_test.go    every loop finds the faults that are planted for it
//
// A worker process runs operations of a Service and writes each into the ledger before it starts and after it was
// acknowledged. The ledger is a pipe to the test, which outlives the worker, and the oracle: after each crash an object is
// in the state that was acknowledged last, or in that of the one operation under way. Each mutation has its record, and the chain of
// these is whole.
//
//	go test ./crash                     the short form, less than a minute
//	CI=true go test ./crash             what CI runs; a loop that cannot run fails there
//	go test ./crash -kills 1000 -cuts 300 -clusterkills 50 -fills 20
//
// Power cuts and full disks need root, to mount.
package crash
