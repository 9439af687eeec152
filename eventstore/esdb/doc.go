// Package esdb keeps the log in EventStoreDB or KurrentDB, on one node or a cluster.
//
// # Appends in one call
//
// KurrentDB since 26.0.3 appends to many streams in one call, AppendRecords, if all checks of the state of streams
// hold. A group of appends is such a call: each event is a record of its own stream, with a check for every stream that
// is written or checked. See together.go. The first answer of a connection decides which form is used. Processes of
// both forms can append to one log at once, because both keep the invariant below.
//
// # Transactions over streams
//
// Older servers append to one stream at a time. An append to several streams is therefore a transaction that the log
// itself commits or aborts. So is an append that AppendRecords does not accept: to streams whose names differ only in
// case, or of a type with characters other than letters, digits and those of "_.$:-". One of the written streams is
// its home. The capture of a new lead:
//
//  1. lock the other streams   2. append all events to the home    3. validate the checks
//
//     claim-9f3c  [lock]─┐
//     claim-51aa  [lock]─┤
//     lead-01M7          └──────► [claim.taken][claim.taken][lead.created]
//     token-01M7                                             └─ commit record: token-01M7 at 3?
//
//     - A lock is a record without payload, one for each event that belongs to a stream other than the home. It
//     names the home, the transaction, and the slot: the revision of the home that the transaction is about to take.
//     - One call appends all events to the home, at the slot. An event's metadata has its own stream and its revision
//     there. The last event is the commit record, whose metadata has the checks.
//     - A lock is decided once the slot is taken: committed if by the events of its own transaction, aborted if by
//     any other record. After a grace, any process that needs a locked stream may take the slot with a closing
//     record, which aborts the transaction. The aborted append makes another attempt. The grace affects throughput
//     only, never correctness.
//     - Invariant: a record is appended with the stream's last number as the expected revision, and only when every
//     lock up to there is decided. AppendRecords requires the same of streams that it only checks. So the order of a
//     stream's events is the order of its records.
//     - A committed append is valid if each checked stream was at the expected revision just before the position of
//     the commit record. Readers skip invalid appends. Validity depends on nothing but the log: all processes agree on
//     it at any time, and no check waits for another.
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
// Only the version 2 of the protocol has AppendRecords, which the client library does not offer. So each link of the
// connection also has a plain gRPC connection to the leader: see leader.go.
package esdb
