package audit

import (
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
)

// WholeLog takes the place of the account in heads of the tree over the whole log. No account can have this name.
const WholeLog = "*"

// Log is the tree over the whole log. Its leaves are all events of all accounts in the order of the log. It is stored nowhere: to
// check a head, the log is read from its beginning. The zero value is the tree of an empty log.
type Log struct{ edge Edge }

// LogLeaf is the hash of an event as a leaf of that tree: RFC 6962's of its id, its time in microseconds and its revision, in
// 16, 8 and 8 bytes, and of stream, type, metadata as JSON and data, each behind its length in 8 bytes. The event must be as
// it is stored, sealed: then the tree stays the same when a person is forgotten.
func LogLeaf(stored eventstore.Recorded) (tlog.Hash, error) {
	metadata, err := stored.Metadata.Encode()
	if err != nil {
		return tlog.Hash{}, err
	}
	record := make([]byte, 0, 256+len(metadata)+len(stored.Data))
	record = append(record, stored.ID[:]...)
	record = binary.BigEndian.AppendUint64(record, uint64(stored.At.UnixMicro()))
	record = binary.BigEndian.AppendUint64(record, uint64(stored.Revision))
	record = append(binary.BigEndian.AppendUint64(record, uint64(len(stored.Stream))), stored.Stream...)
	record = append(binary.BigEndian.AppendUint64(record, uint64(len(stored.Type))), stored.Type...)
	record = append(binary.BigEndian.AppendUint64(record, uint64(len(metadata))), metadata...)
	record = append(binary.BigEndian.AppendUint64(record, uint64(len(stored.Data))), stored.Data...)
	return tlog.RecordHash(record), nil
}

// Add adds the next event's leaf.
func (l *Log) Add(leaf tlog.Hash) error {
	_, err := l.edge.Add(leaf)
	return err
}

// Size is how many leaves the tree has.
func (l *Log) Size() int64 { return l.edge.Size() }

// Head returns the tree's head.
func (l *Log) Head() (Head, error) {
	root, err := l.edge.Root()
	return Head{Account: WholeLog, Size: l.edge.Size(), Root: root}, err
}
