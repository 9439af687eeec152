package query

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// A cursor says after which item a list continues. It contains the values that the list is ordered by, so items that appear or
// vanish meanwhile neither repeat nor hide others. It begins with its kind: the list, the version of its order, and the account.
const (
	leadCursor       = "l1"
	sourceCursor     = "s1"
	eventCursor      = "e1"
	historyCursor    = "h2"
	reportCursor     = "r1"
	tokenCursor      = "t1"
	tokenEventCursor = "a1"
	endpointCursor   = "w1"
	deliveryCursor   = "d2"
	activityCursor   = "v1"
	refusedCursor    = "f1"
	revealCursor     = "p1"
	auditCursor      = "b1"
)

// cursorOf returns the kind of the cursors of one list of one account, so that a cursor from another account is refused. Cursors
// are not signed: one that somebody makes up shows no more than the list itself.
func cursorOf(list, account string) string {
	sum := sha256.Sum256([]byte(account))
	return list + "-" + base64.RawURLEncoding.EncodeToString(sum[:6])
}

// maxCursor is longer than any cursor of ours, in bytes.
const maxCursor = 128

// latest is the end of the year 9999, the last time that timestamps in answers can show.
const latest = 253402300799999

// newestCursor is a place in a list that is ordered by time of creation and then by id, the newest first.
type newestCursor struct {
	createdAt time.Time
	id        string
}

func (c newestCursor) encode(kind string) string {
	return encodeCursor(kind, strconv.FormatInt(c.createdAt.UnixMilli(), 10), c.id)
}

func decodeNewest(kind, cursor string) (newestCursor, error) {
	parts, err := decodeCursor(kind, cursor, 2)
	if err != nil {
		return newestCursor{}, err
	}
	at, err := decodeTime(parts[0])
	if err != nil || !event.ValidID(parts[1]) {
		return newestCursor{}, ErrCursor
	}
	return newestCursor{at, parts[1]}, nil
}

func decodeTime(millis string) (time.Time, error) {
	n, err := decimal(millis)
	if err != nil || n > latest {
		return time.Time{}, ErrCursor
	}
	return time.UnixMilli(n).UTC(), nil
}

// timeCursor is a place in a list that is ordered by a time, and then by the position on the log.
type timeCursor struct {
	at       time.Time
	position int64
}

func (c timeCursor) encode(kind string) string {
	return encodeCursor(kind, strconv.FormatInt(c.at.UnixMilli(), 10), strconv.FormatInt(c.position, 10))
}

func decodeTimeCursor(kind, cursor string) (timeCursor, error) {
	parts, err := decodeCursor(kind, cursor, 2)
	if err != nil {
		return timeCursor{}, err
	}
	at, err := decodeTime(parts[0])
	if err != nil {
		return timeCursor{}, err
	}
	position, err := decimal(parts[1])
	return timeCursor{at, position}, err
}

// encodeOrdinal makes the cursor of a list that is ordered by one number.
func encodeOrdinal(kind string, ordinal int64) string {
	return encodeCursor(kind, strconv.FormatInt(ordinal, 10))
}

func decodeOrdinal(kind, cursor string) (int64, error) {
	parts, err := decodeCursor(kind, cursor, 1)
	if err != nil {
		return 0, err
	}
	ordinal, err := decimal(parts[0])
	if err != nil || ordinal == math.MaxInt64 {
		return 0, ErrCursor
	}
	return ordinal, nil
}

func encodeCursor(kind string, parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + "." + strings.Join(parts, ".")))
}

func decodeCursor(kind, cursor string, n int) ([]string, error) {
	if len(cursor) > maxCursor {
		return nil, ErrCursor
	}
	// The decoder skips line breaks, which no cursor of ours has.
	if strings.ContainsAny(cursor, "\r\n") {
		return nil, ErrCursor
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return nil, ErrCursor
	}
	parts := strings.Split(string(plain), ".")
	if len(parts) != n+1 || parts[0] != kind {
		return nil, ErrCursor
	}
	return parts[1:], nil
}

// decimal reads a number, 0 or more, as strconv writes it: no sign, no leading zeros.
func decimal(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, ErrCursor
	}
	return n, nil
}
