package query_test

import (
	"encoding/base64"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/query"
)

func encoded(plain string) string { return base64.RawURLEncoding.EncodeToString([]byte(plain)) }

func TestCursor_RejectsForged(t *testing.T) {
	t.Parallel()
	const id = "01KAJ8Q6ZJ0000000000000001"
	good := encoded("l1.1772355600001." + id)
	c, err := query.DecodeNewest("l1", good)
	require.NoError(t, err)
	require.Equal(t, good, c.Encode("l1"))

	for name, cursor := range map[string]string{
		"empty":            "",
		"not base64":       "!",
		"padded":           base64.URLEncoding.EncodeToString([]byte("l1.17723556000012."+id)) + "=",
		"a line end":       good[:8] + "\n" + good[8:],
		"of another list":  encoded("t1.1772355600001." + id),
		"of another order": encoded("l2.1772355600001." + id),
		"cut":              encoded("l1.1772355600001"),
		"too much":         encoded("l1.1772355600001." + id + ".x"),
		"no time":          encoded("l1.yesterday." + id),
		"a signed time":    encoded("l1.+1772355600001." + id),
		"before 1970":      encoded("l1.-1." + id),
		"after 9999":       encoded("l1.253402300800000." + id),
		"no id":            encoded("l1.1772355600001.x"),
		"id in lower case": encoded("l1.1772355600001.01kaj8q6zj0000000000000001"),
		"NUL":              encoded("l1.1772355600001.\x00" + id[1:]),
		"long":             good + good + good + good,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := query.DecodeNewest("l1", cursor)
			require.ErrorIs(t, err, query.ErrCursor)
		})
	}
	for _, plain := range []string{
		"e1.", "e1.01", "e1.-1", "e1.9223372036854775807", "e1.9223372036854775808", "e1.0x1", "s1.1",
	} {
		_, err := query.DecodeOrdinal("e1", encoded(plain))
		require.ErrorIs(t, err, query.ErrCursor, plain)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(encoded("l1.1772355600001.01KAJ8Q6ZJ0000000000000001"))
	f.Add(encoded("l1.5"))
	f.Add(encoded("l1.738000.website"))
	f.Add(encoded("l1.1772355600001.17"))
	f.Add(query.EncodeOrdinal("l1", 0))
	f.Add("")
	f.Fuzz(func(t *testing.T, cursor string) {
		if c, err := query.DecodeNewest("l1", cursor); err == nil {
			require.Equal(t, cursor, c.Encode("l1"), "each position has one encoding")
		} else {
			require.ErrorIs(t, err, query.ErrCursor)
		}
		if n, err := query.DecodeOrdinal("l1", cursor); err == nil {
			require.Equal(t, cursor, query.EncodeOrdinal("l1", n))
		} else {
			require.ErrorIs(t, err, query.ErrCursor)
		}
		if cursor == "" {
			return // the first page
		}
		if start, source, err := query.DecodeReport("l1", cursor); err == nil {
			days := int64(start.Sub(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)) / (24 * time.Hour))
			if start.Year() < 290 { // the range of time.Duration
				require.Equal(t, cursor, query.EncodeCursor("l1", strconv.FormatInt(days, 10), source))
			}
			require.LessOrEqual(t, start.Year(), 9999)
		} else {
			require.ErrorIs(t, err, query.ErrCursor)
		}
		if position, err := query.DecodeTimeCursor("l1", cursor); err == nil {
			require.Equal(t, cursor, position.Encode("l1"))
		} else {
			require.ErrorIs(t, err, query.ErrCursor)
		}
	})
}

func TestTimestamp_Format(t *testing.T) {
	t.Parallel()
	for want, at := range map[string]time.Time{
		`null`:                       {},
		`"2026-03-01T09:00:00.000Z"`: time.Date(2026, 3, 1, 14, 30, 0, 0, time.FixedZone("IST", 19800)),
		`"2026-03-01T09:00:00.120Z"`: time.Date(2026, 3, 1, 9, 0, 0, 120e6, time.UTC),
	} {
		got, err := query.Timestamp(at).MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
