// Package linearizability contains tests of what concurrent clients see. The main one is of
// linearizability: several clients call one or two Services over the same database concurrently, on
// a few templates, keys and users. Every answer must be one that the clients could get by calling
// one after the other. That holds for cached templates, keys, decisions and lists of who can do
// something, where the store can be looked at: SQLite, and PostgreSQL with Options.Exact. On
// PostgreSQL without it, each key and each user stays with one of the two Services, because the
// other follows a moment later. An issue by a revoked key is refused by both.
//
// A history is a few dozen calls with random contents, on its own ids. porcupine looks for an order
// that explains the answers. The test runs 30 histories over all stores together, or 200 when CI is
// "true". SVC_LINEAR_HISTORIES sets another number; 100000 take about an hour. A failure prints
// SVC_LINEAR_SEED, which repeats the calls but not their interleaving.
//
// Other tests run rounds, a quarter as many as histories but 250 at most. In a round, one Service
// deletes a user, a service account, a group or a policy, while others give something to it or use
// it: nothing refers to the row afterwards, and one that is made again has nothing. Or two
// administrators resign at the same time: one remains.
//
// PostgreSQL is the server at SVC_TEST_POSTGRES, or on this machine. Without one, its part is
// skipped; where SVC_REQUIRE_POSTGRES is "1", it fails.
package linearizability
