package export

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/parquet-go/parquet-go"

	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/query"
)

// Column is a column of a sheet: its name, and a cell of each item as text for CSV and as a typed value for Parquet.
type Column[T any] struct {
	Name string
	text func(T) string
	node parquet.Node // type in Parquet
	add  func(*cells, T)
	long bool // values are too long to be bounds of pages, which stay in memory until the end of the file
}

// Text is a column of texts, most of them different.
func Text[T any](name string, get func(T) string) Column[T] {
	node := parquet.Encoded(parquet.String(), &parquet.Plain)
	return Column[T]{Name: name, text: get, node: node, add: func(to *cells, item T) { to.text(get(item)) }}
}

// Category is a column of texts of which few differ: a dictionary in Parquet.
func Category[T any](name string, get func(T) string) Column[T] {
	c := Text(name, get)
	c.node = parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	return c
}

// Optional is a column of texts that may be null.
func Optional[T any](name string, get func(T) *string) Column[T] {
	text := func(item T) string {
		if t := get(item); t != nil {
			return *t
		}
		return ""
	}
	node := parquet.Optional(parquet.Encoded(parquet.String(), &parquet.Plain))
	return Column[T]{Name: name, text: text, node: node, add: func(to *cells, item T) {
		if t := get(item); t != nil {
			to.optional().text(*t)
		} else {
			to.null()
		}
	}}
}

// Texts is a column of lists of texts; in CSV, with spaces between them.
func Texts[T any](name string, get func(T) []string) Column[T] {
	text := func(item T) string { return strings.Join(get(item), " ") }
	node := parquet.List(parquet.Encoded(parquet.String(), &parquet.Plain))
	return Column[T]{Name: name, text: text, node: node, add: func(to *cells, item T) { to.list(get(item)) }}
}

// Time is a column of times in milliseconds. The zero time is null.
func Time[T any](name string, get func(T) query.Timestamp) Column[T] {
	text := func(item T) string { return timestamp(get(item)) }
	node := parquet.Optional(parquet.Encoded(parquet.Timestamp(parquet.Millisecond), &parquet.Plain))
	return Column[T]{Name: name, text: text, node: node, add: func(to *cells, item T) {
		if at := time.Time(get(item)); at.IsZero() {
			to.null()
		} else {
			to.optional().integer(at.UnixMilli())
		}
	}}
}

// Integer is a column of whole numbers.
func Integer[T any, N int | int64](name string, get func(T) N) Column[T] {
	text := func(item T) string { return strconv.FormatInt(int64(get(item)), 10) }
	node := parquet.Encoded(parquet.Int(64), &parquet.Plain)
	return Column[T]{Name: name, text: text, node: node, add: func(to *cells, item T) { to.integer(int64(get(item))) }}
}

// Bool is a column of booleans.
func Bool[T any](name string, get func(T) bool) Column[T] {
	text := func(item T) string { return strconv.FormatBool(get(item)) }
	return Column[T]{Name: name, text: text, node: parquet.Leaf(parquet.BooleanType), add: func(to *cells, item T) {
		to.value(parquet.BooleanValue(get(item)))
	}}
}

// decimalBytes is the size of a decimal. With 38 digits in all, sums fit too.
const decimalBytes = 16

// Amount is a column of amounts of money.
func Amount[T any](name string, get func(T) string) Column[T] { return Decimal(name, 4, get) }

// Decimal is a column of exact decimals with at most scale digits after the point, given as text. An empty one is null.
func Decimal[T any](name string, scale int, get func(T) string) Column[T] {
	node := parquet.Optional(parquet.Decimal(scale, 38, parquet.FixedLenByteArrayType(decimalBytes)))
	return Column[T]{Name: name, text: get, node: node, add: func(to *cells, item T) {
		if decimal := get(item); decimal == "" {
			to.null()
		} else {
			to.optional().decimal(decimal, scale)
		}
	}}
}

// JSON is a column of JSON texts.
func JSON[T any](name string, get func(T) string) Column[T] {
	c := Text(name, get)
	c.node, c.long = parquet.Encoded(parquet.JSON(), &parquet.Plain), true
	c.text = func(item T) string { return leadfile.DefusedJSON(get(item)) }
	return c
}

// Object is a column of objects, as JSON.
func Object[T, V any](name string, get func(T) map[string]V) Column[T] {
	return JSON(name, func(item T) string { return object(get(item)) })
}

func timestamp(t query.Timestamp) string {
	at, _ := t.MarshalJSON() // never fails
	if string(at) == "null" {
		return ""
	}
	return strings.Trim(string(at), `"`)
}

// object is JSON in a cell.
func object[V any](members map[string]V) string {
	if len(members) == 0 {
		return "{}"
	}
	encoded, err := json.Marshal(members, json.Deterministic(true))
	if err != nil { // the members are JSON already
		return ""
	}
	return string(encoded)
}

// cells buffers values of one column.
type cells struct {
	values  []parquet.Value
	bytes   []byte // of texts
	column  int
	defined int // definition level of the next value
}

// reset discards the values, and keeps the memory for the next ones unless their texts were larger than usual.
func (c *cells) reset() {
	if c.values, c.bytes = c.values[:0], c.bytes[:0]; cap(c.bytes) > 2*parquetBytes {
		c.bytes = nil
	}
}

func (c *cells) value(v parquet.Value) {
	c.values = append(c.values, v.Level(0, c.defined, c.column))
	c.defined = 0
}

// optional marks the next value as one of an optional column.
func (c *cells) optional() *cells {
	c.defined = 1
	return c
}

func (c *cells) null() { c.value(parquet.NullValue()) }

func (c *cells) integer(n int64) { c.value(parquet.Int64Value(n)) }

func (c *cells) text(text string) { c.value(c.byteArray(text)) }

// byteArray copies a text to the buffer of the column.
func (c *cells) byteArray(text string) parquet.Value {
	start := len(c.bytes)
	c.bytes = append(c.bytes, text...)
	return parquet.ByteArrayValue(c.bytes[start:len(c.bytes):len(c.bytes)])
}

// list adds a list, whose elements are two levels below it.
func (c *cells) list(texts []string) {
	if len(texts) == 0 {
		c.null()
	}
	for i, text := range texts {
		repeated := 0
		if i > 0 {
			repeated = 1
		}
		c.values = append(c.values, c.byteArray(text).Level(repeated, 1, c.column))
	}
}

// decimal adds a decimal such as 1200 or 12.5: the unscaled number, big-endian.
func (c *cells) decimal(text string, scale int) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + (fraction + strings.Repeat("0", scale))[:scale]
	var high, low uint64
	for i := range len(digits) {
		carry, product := bits.Mul64(low, 10)
		sum, over := bits.Add64(product, uint64(digits[i]-'0'), 0)
		high, low = high*10+carry+over, sum
	}
	start := len(c.bytes)
	c.bytes = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(c.bytes, high), low)
	c.value(parquet.FixedLenByteArrayValue(c.bytes[start:len(c.bytes):len(c.bytes)]))
}
