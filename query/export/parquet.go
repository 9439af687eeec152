package export

import (
	"io"

	"github.com/parquet-go/parquet-go"
)

// Bounds of the memory of a Parquet file: values that are not yet in pages, and pages whose row group is not complete.
// The pages are encoded and mostly compressed.
const (
	parquetRows       = 1024
	parquetBytes      = 512 << 10 // of texts
	parquetGroupRows  = 128 << 10
	parquetGroupBytes = 4 << 20 // of texts
)

// table writes items as a Parquet file.
type table[T any] struct {
	columns []Column[T]
	file    *parquet.GenericWriter[any]
	cells   []cells // of each column
	rows    int     // whose cells are not written
	group   int     // rows of the row group
	bytes   int     // of texts of the row group
}

func newTable[T any](w io.Writer, s Sheet[T]) *table[T] {
	root := &record{Group: parquet.Group{}}
	options := []parquet.WriterOption{
		parquet.Compression(&parquet.Snappy), parquet.CreatedBy("leadlog", "", ""), parquet.DataPageStatistics(true),
		parquet.PageBufferSize(128 << 10),
	}
	t := &table[T]{columns: s.Columns, cells: make([]cells, len(s.Columns))}
	for i, c := range s.Columns {
		root.Group[c.Name] = c.node
		root.names = append(root.names, c.Name)
		t.cells[i].column = i
		if c.long {
			options = append(options, parquet.SkipPageBounds(c.Name), parquet.SkipPageStatistics(c.Name))
		}
	}
	t.file = parquet.NewGenericWriter[any](w, append(options, parquet.NewSchema(s.Name, root))...)
	return t
}

func (t *table[T]) write(item T) error {
	bytes := 0
	for i := range t.columns {
		t.columns[i].add(&t.cells[i], item)
		bytes += len(t.cells[i].bytes)
	}
	if t.rows++; t.rows < parquetRows && bytes < parquetBytes {
		return nil
	}
	return t.flush()
}

// flush puts cells into pages.
func (t *table[T]) flush() error {
	for i, c := range t.file.ColumnWriters() {
		t.bytes += len(t.cells[i].bytes)
		if len(t.cells[i].values) == 0 {
			continue
		}
		if _, err := c.WriteRowValues(t.cells[i].values); err != nil {
			return err
		}
		t.cells[i].reset()
	}
	t.group += t.rows
	if t.rows = 0; t.group < parquetGroupRows && t.bytes < parquetGroupBytes {
		return nil
	}
	t.group, t.bytes = 0, 0
	return t.file.Flush()
}

func (t *table[T]) close() error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.file.Close()
}

// record is a group whose fields keep their order. A parquet.Group sorts them by name.
type record struct {
	parquet.Group
	names []string
}

// Fields implements parquet.Node.
func (r *record) Fields() []parquet.Field {
	byName := map[string]parquet.Field{}
	for _, field := range r.Group.Fields() {
		byName[field.Name()] = field
	}
	fields := make([]parquet.Field, len(r.names))
	for i, name := range r.names {
		fields[i] = byName[name]
	}
	return fields
}
