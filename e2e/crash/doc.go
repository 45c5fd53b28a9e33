// Package crash kills writing processes and cuts the power of their disks. It checks that every
// acknowledged operation is still there, and that none is there in part. It contains only tests:
//
//	sqlite_test.go    SQLite: kill the process (kill -9) and reopen the file; cut the power of the disk, which
//	                  forgets what was not written through; fill the disk. Every loop finds its planted faults
//	postgres_test.go  PostgreSQL: kill the whole cluster and restart it under a worker that goes on; end the
//	                  primary and promote its standby
//
// A worker process runs operations of a Service, a part of them over HTTP. It writes each into the
// ledger before the start and after the acknowledgement. The ledger is a pipe to the test, which
// outlives the worker, and it is the oracle. After each crash an object must be in the state
// acknowledged last, or in that of the one operation under way. Each mutation must have its record,
// and the chain of records must be whole. The records of a user, its keys and its other rows must
// agree with these rows: a deletion is whole, or it has not happened.
//
//	go test ./crash                     the short form, less than a minute
//	CI=true go test ./crash             what CI runs; a loop that cannot run fails there
//	SVC_CRASH_KILLS=1000 SVC_CRASH_CUTS=300 go test ./crash
//
// Power cuts and full disks need root, to mount.
package crash
