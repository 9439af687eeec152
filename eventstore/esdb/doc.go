// Package esdb keeps the log in EventStoreDB or KurrentDB, on one node or a cluster.
//
// # Transactions over streams
//
// The server appends to one stream at a time. An append to several streams is therefore a transaction that the log
// itself commits or aborts. One of the written streams is its home. The capture of a new lead:
//
//  1. lock the other streams   2. append all events to the home    3. validate the checks
//
//     claim-9f3c  [lock]─┐
//     claim-51aa  [lock]─┤
//     lead-01M7          └──────► [claim.taken][claim.taken][lead.created]
//     token-01M7                                             └─ commit record: token-01M7 at 3?
//
//     - A lock is a record without payload, one for each event that belongs to a stream other than the home. It names
//     the home, the
//     transaction, and the slot: the place on the home that the transaction is about to take.
//     - One call appends all events to the home, at the slot. An event's metadata has its own stream and its revision
//     there. The last
//     event is the commit record, whose metadata has the checks.
//     - A lock is decided once the slot is taken: committed if by the events of its own transaction, aborted if by any
//     other record.
//     After a grace, any process that needs a locked stream may take the slot with a closing record, which aborts the transaction.
//     The aborted append makes another attempt. The grace affects throughput only, never correctness.
//     - Invariant: a record is appended with the stream's last number as the expected revision, and only when every
//     lock up to there is
//     decided. So the order of a stream's events is the order of its records.
//     - A committed append is valid if each checked stream was at the expected revision just before the position of
//     the commit record.
//     Readers skip invalid appends. Validity depends on nothing but the log: all processes agree on it at any time, and no check
//     waits for another.
//
// # Idempotence
//
// An append that is sent again is detected by the ids of its events at their revisions. An append that expects nothing
// has no revision, so the end of its stream is searched for its ids.
//
// # The server
//
// An event's position is its commit position in $all. The server's own streams and types, which begin with $, and links
// are neither yielded nor counted. The server must be EventStoreDB 22.10 or later: older ones return no positions when
// a stream is read.
//
// Only this package uses the client library, which needs care: see connection.go and errors.go.
//
// Each append to a stream is a call of its own. The protocol's BatchAppend would carry several in one call: with the
// test server, a capture took two calls instead of five, and 64 callers reached about twice the rate. It is not used
// because the client library does not offer it and does not share its connection: a second connection would need its
// own discovery, credentials and error handling.
package esdb
