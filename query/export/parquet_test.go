package export

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

func all[T any](items ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// written returns a Parquet file of items.
func written[T any](t testing.TB, sheet Sheet[T], items ...T) *parquet.File {
	t.Helper()
	var out bytes.Buffer
	n, err := sheet.Write(&out, Parquet, all(items...), func() {})
	require.NoError(t, err)
	require.Equal(t, len(items), n)
	file, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	require.NoError(t, err)
	return file
}

func TestParquet_TypedColumns(t *testing.T) {
	t.Parallel()
	require.Equal(t, `message leads {
	required binary leadId (STRING);
	required binary contactUID (STRING);
	required binary name (STRING);
	required binary phone (STRING);
	required binary email (STRING);
	required binary status (STRING);
	required binary leadTemperature (STRING);
	optional fixed_len_byte_array(16) opportunityValue (DECIMAL(38,4));
	optional binary opportunityId (STRING);
	required binary source (STRING);
	optional int64 createdAt (TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS));
	optional int64 updatedAt (TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS));
	required binary customFields (JSON);
	required binary consents (JSON);
}`, written(t, Leads()).Schema().String())
	file := written(t, Sources())
	require.Contains(t, file.Schema().String(), "required group changed (LIST)")
	require.Contains(t, file.Schema().String(), "required int64 arrivals (INT(64,true))")
	require.Zero(t, file.NumRows())
}

func TestParquet_ValuesRoundTrip(t *testing.T) {
	t.Parallel()
	opportunity := "01M856FQ6YWSQMJBSQVP8ATXMZ"
	at := time.Date(2026, 11, 1, 9, 30, 0, 123_000_000, time.UTC)
	file := written(t, Leads(),
		query.Lead{
			Record:    lead.Record{LeadID: "a", Name: "=1", OpportunityValue: jsontext.Value("null")},
			CreatedAt: query.Timestamp(at),
		},
		query.Lead{Record: lead.Record{
			LeadID: "b", OpportunityID: &opportunity, OpportunityValue: jsontext.Value("12.5"),
			CustomFields: map[string]jsontext.Value{"b": jsontext.Value("2"), "a": jsontext.Value(`"x"`)},
		}})
	rows := make([]parquet.Row, 2)
	n, err := parquet.NewReader(file).ReadRows(rows)
	require.Equal(t, 2, n)
	if err != nil {
		require.ErrorIs(t, err, io.EOF)
	}
	require.Equal(t, "=1", string(rows[0][2].ByteArray()), "Parquet needs no escaping of formulas")
	require.True(t, rows[0][7].IsNull())
	require.True(t, rows[0][8].IsNull())
	require.Equal(t, at.UnixMilli(), rows[0][10].Int64())
	require.True(t, rows[0][11].IsNull())
	require.Equal(t, int64(125000), new(big.Int).SetBytes(rows[1][7].ByteArray()).Int64())
	require.Equal(t, opportunity, string(rows[1][8].ByteArray()))
	require.JSONEq(t, `{"a":"x","b":2}`, string(rows[1][12].ByteArray()))
}

func TestParquet_Lists(t *testing.T) {
	t.Parallel()
	sheet := Sheet[[]string]{"lists", []Column[[]string]{
		Texts("all", func(l []string) []string { return l }), Integer("count", func(l []string) int { return len(l) }),
	}}
	rapid.Check(t, func(rt *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfN(rapid.StringN(0, 5, 20), 0, 4), 1, 20).Draw(rt, "lists")
		type row struct {
			All   []string `parquet:"all,list"`
			Count int64    `parquet:"count"`
		}
		rows := make([]row, len(lists)+1)
		n, err := parquet.NewGenericReader[row](written(t, sheet, lists...)).Read(rows)
		if err != nil {
			require.ErrorIs(rt, err, io.EOF)
		}
		require.Equal(rt, len(lists), n)
		for i, l := range lists {
			require.Equal(rt, append([]string{}, l...), append([]string{}, rows[i].All...))
			require.Equal(rt, int64(len(l)), rows[i].Count)
		}
	})
}

func TestParquet_Decimals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		integer := rapid.StringMatching(`0|[1-9][0-9]{0,30}`).Draw(rt, "integer")
		scale := rapid.IntRange(0, 6).Draw(rt, "scale")
		fraction := rapid.StringMatching(fmt.Sprintf(`[0-9]{0,%d}`, scale)).Draw(rt, "fraction")
		text := integer
		if fraction != "" {
			text += "." + fraction
		}
		var c cells
		c.decimal(text, scale)
		want, _ := new(big.Int).SetString(integer+(fraction + "000000")[:scale], 10)
		require.Equal(rt, want.String(), new(big.Int).SetBytes(c.values[0].ByteArray()).String(), text)
	})
}

// The test writes several row groups and measures the memory during the write. Objects may be so large that the minimum
// and maximum of each page, which the writer keeps, would add up.
func TestParquet_BoundedMemory(t *testing.T) {
	t.Parallel()
	note := jsontext.Value(`"` + strings.Repeat("x", 30_000) + `"`)
	for _, c := range []struct {
		rows  int
		sheet Sheet[int]
	}{
		{50_000, Sheet[int]{"numbers", []Column[int]{
			Text("text", func(n int) string { return fmt.Sprintf("%0512d", n) }),
			Category("term", func(n int) string { return strings.Repeat("x", n%7) }),
		}}},
		{10_000, Sheet[int]{"objects", []Column[int]{
			Object("object", func(int) map[string]jsontext.Value { return map[string]jsontext.Value{"note": note} }),
		}}},
	} {
		var peak uint64
		items := func(yield func(int, error) bool) {
			for n := range c.rows {
				if n%(c.rows/10) == 0 {
					var m runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapAlloc)
				}
				if !yield(n, nil) {
					return
				}
			}
		}
		n, err := c.sheet.Write(io.Discard, Parquet, items, func() {})
		require.NoError(t, err)
		require.Equal(t, c.rows, n)
		require.Less(t, peak, uint64(30<<20), c.sheet.Name)
	}
}

func BenchmarkSheet_Formats(b *testing.B) {
	opportunity := "01M856FQ6YWSQMJBSQVP8ATXMZ"
	at := query.Timestamp(time.Date(2026, 11, 1, 9, 30, 0, 123_000_000, time.UTC))
	item := query.Lead{Record: lead.Record{
		LeadID: "01M856FQ6YWSQMJBSQVP8ATXMZ", ContactUID: "6a1d6b4e-8df8-4b34-a4a5-4dd4e8a1f7b1", Name: "Asha Rao",
		Phone: "+919876543210", Email: "asha@example.com", Status: "new", LeadTemperature: "warm", Source: "website",
		OpportunityID:    &opportunity,
		OpportunityValue: jsontext.Value("120000"),
		CustomFields:     map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`)},
	}, CreatedAt: at, UpdatedAt: at}
	for _, format := range []Format{CSV, NDJSON, Parquet} {
		b.Run(string(format), func(b *testing.B) {
			items := func(yield func(query.Lead, error) bool) {
				for i := range b.N {
					item.LeadID = fmt.Sprintf("01M856FQ6YWSQMJBSQ%08d", i)
					if !yield(item, nil) {
						return
					}
				}
			}
			_, err := Leads().Write(io.Discard, format, items, func() {})
			require.NoError(b, err)
		})
	}
}
