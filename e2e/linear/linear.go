// Package linear has no code, only a test: whatever several clients do at once to a few templates
// and keys, through one Service or two over the same database, every answer is one that they could
// have had by coming one after the other. A key stays with one of the two: the other may accept it
// for a moment after its revocation, but issues nothing by it. One more Service keeps templates in
// memory.
//
// Each history is a few dozen calls with random contents, on ids of its own; porcupine looks for an order that explains
// its answers. There are 30 histories over the stores together, 200 when CI is "true", or as many as
// SVC_LINEAR_HISTORIES says: 100000 take about an hour. A failure prints the SVC_LINEAR_SEED that repeats its
// calls, though not how they met.
//
// PostgreSQL is the one at SVC_TEST_POSTGRES, or on this machine; without one its part is skipped, unless
// SVC_REQUIRE_POSTGRES is "1".
package linear
