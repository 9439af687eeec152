package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
)

// WholeLog takes the place of the account in heads of the tree over the whole log. No account can have this name.
const WholeLog = "*"

// Log is the tree over the whole log. Its leaves are all events of all accounts in the order of the log. To
// check a head, the log is read from its beginning; [Tiles] are what is stored. The zero value is the tree of an empty log.
type Log struct{ edge Edge }

// LogLeaf is the hash of an event as a leaf of that tree: RFC 6962's of its record.
func LogLeaf(stored eventstore.Recorded) (tlog.Hash, error) {
	record, err := LogRecord(stored)
	return tlog.RecordHash(record), err
}

// LogRecord returns the bytes of an event's leaf: canonical JSON (RFC 8785) without personal data.
//
//	{"at":"2026-11-21T07:44:02.556Z","id":"01M7…","revision":0,"stored":"9f86…","stream":"lead-01M7…","type":"lead.created.v1"}
//
// stored is the SHA-256, in hexadecimal, of what the log has besides: the metadata as JSON, a newline and the data. The event must be
// as it is stored, sealed: then the leaf stays the same when a person is forgotten. It has no position, so it also stays the same
// when the log is copied to another store.
func LogRecord(stored eventstore.Recorded) ([]byte, error) {
	content, err := storedContent(stored)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	id := stored.ID.String()
	record := make([]byte, 0, 320)
	record = append(record, `{"at":"`...)
	record = appendTime(record, stored.At)
	record = append(append(record, `","id":"`...), id...)
	record = strconv.AppendInt(append(record, `","revision":`...), int64(stored.Revision), 10)
	record = hex.AppendEncode(append(record, `,"stored":"`...), sum[:])
	if record, err = jsontext.AppendQuote(append(record, `","stream":`...), stored.Stream); err != nil {
		return nil, err
	}
	if record, err = jsontext.AppendQuote(append(record, `,"type":`...), stored.Type); err != nil {
		return nil, err
	}
	return append(record, '}'), nil
}

// storedContent returns what a leaf has the hash of.
func storedContent(stored eventstore.Recorded) ([]byte, error) {
	content, err := stored.Metadata.Encode()
	return append(append(content, '\n'), stored.Data...), err
}

// appendTime writes a time as answers do, and microseconds only if there are any: the log's times are whole milliseconds.
func appendTime(b []byte, t time.Time) []byte {
	const whole, finer = "2006-01-02T15:04:05.000Z", "2006-01-02T15:04:05.000000Z"
	if t.Nanosecond()/int(time.Microsecond)%1000 == 0 {
		return t.UTC().AppendFormat(b, whole)
	}
	return t.UTC().AppendFormat(b, finer)
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
