package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/projection/schema"
)

// MaxUpload is the size of the largest file that can be uploaded, in bytes. The command imports larger ones.
const MaxUpload = 100 << 20

// partSize is the size of the parts that files are kept in, in bytes. It bounds the memory that a file needs.
const partSize = 1 << 20

// maxOpen is how many uploaded files of an account may wait for their import.
const maxOpen = 10

// Errors of an upload.
var (
	ErrTooLarge = errors.New("the file is larger than 100 MiB: import it by the command leadlog import, or in parts")
	ErrTooMany  = errors.New("10 uploaded files are not imported yet: discard one first")
	ErrEmpty    = errors.New("the file is empty")
)

// Upload keeps a file, and has it checked. Actor is who uploads it. The errors are ErrTooLarge, ErrTooMany, ErrEmpty,
// and those of reading the file and of the database.
func (r Runs) Upload(ctx context.Context, account, actor, name string, file io.Reader) (runID string, err error) {
	runID = ulid.Make().String()
	tag, err := r.Pool.Exec(ctx, `
		INSERT INTO arrival.import (run_id, account, actor, name, options, state, expires_at)
		SELECT $1, $2, $3, $4, '{}', $5, now() + interval '1 hour'
		 WHERE (SELECT count(*) FROM arrival.import WHERE account = $2 AND state IN ($5, $6, $7)) < $8`,
		runID, account, actor, name, Uploading, Uploaded, Checked, maxOpen)
	if err != nil {
		return "", schema.Unavailable(err)
	}
	if tag.RowsAffected() == 0 {
		return "", ErrTooMany
	}
	size, err := r.store(ctx, runID, file)
	if err == nil {
		_, err = r.Pool.Exec(ctx, `
			UPDATE arrival.import SET state = $2, task = $3, size = $4, expires_at = now() + interval '1 day'
			 WHERE run_id = $1`, runID, Uploaded, Check, size)
		err = schema.Unavailable(err)
	}
	if err != nil {
		return "", errors.Join(err, r.delete(context.WithoutCancel(ctx), runID))
	}
	return runID, nil
}

func (r Runs) store(ctx context.Context, runID string, file io.Reader) (size int64, err error) {
	parts := partWriter{ctx: ctx, pool: r.Pool, runID: runID, file: uploadFile}
	size, err = io.Copy(&parts, io.LimitReader(file, MaxUpload+1))
	switch {
	case err != nil:
		return 0, err
	case size > MaxUpload:
		return 0, ErrTooLarge
	case size == 0:
		return 0, ErrEmpty
	}
	return size, parts.Close()
}

func (r Runs) delete(ctx context.Context, runID string) error {
	_, err := r.Pool.Exec(ctx, `DELETE FROM arrival.import WHERE run_id = $1`, runID)
	return schema.Unavailable(err)
}

// Files of a run.
const (
	uploadFile  = "upload"
	outcomeFile = "outcome"
)

// partWriter writes a file of a run in parts.
type partWriter struct {
	ctx         context.Context // of all writes
	pool        *pgxpool.Pool
	runID, file string
	buffer      []byte
	next        int // number of the next part
}

func (w *partWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		more := min(len(p)-n, partSize-len(w.buffer))
		w.buffer = append(w.buffer, p[n:n+more]...)
		if n += more; len(w.buffer) == partSize {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *partWriter) flush() error {
	_, err := w.pool.Exec(w.ctx, `INSERT INTO arrival.import_part (run_id, file, part, content) VALUES ($1, $2, $3, $4)`,
		w.runID, w.file, w.next, w.buffer)
	w.buffer = w.buffer[:0]
	w.next++
	return schema.Unavailable(err)
}

// Close writes the last part.
func (w *partWriter) Close() error {
	if len(w.buffer) == 0 {
		return nil
	}
	return w.flush()
}

// partReader reads a file of a run. It keeps one part in memory.
type partReader struct {
	ctx         context.Context // of all reads
	pool        *pgxpool.Pool
	runID, file string
	at          int64
	part        int // that content is; -1: none
	content     []byte
}

func (r Runs) reader(ctx context.Context, runID, file string) *partReader {
	return &partReader{ctx: ctx, pool: r.Pool, runID: runID, file: file, part: -1}
}

func (r *partReader) Read(p []byte) (int, error) {
	n, err := r.ReadAt(p, r.at)
	if r.at += int64(n); n > 0 {
		err = nil
	}
	return n, err
}

func (r *partReader) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, errors.ErrUnsupported
	}
	r.at = offset
	return offset, nil
}

// ReadAt implements io.ReaderAt, but it may return less than a full p, at the end of a part.
func (r *partReader) ReadAt(p []byte, offset int64) (int, error) {
	if part := int(offset / partSize); part != r.part {
		rows, err := r.pool.Query(r.ctx,
			`SELECT content FROM arrival.import_part WHERE run_id = $1 AND file = $2 AND part = $3`, r.runID, r.file, part)
		if err != nil {
			return 0, schema.Unavailable(err)
		}
		r.content, r.part = nil, part
		for rows.Next() {
			if err := rows.Scan(&r.content); err != nil {
				rows.Close()
				return 0, err
			}
		}
		if err := rows.Err(); err != nil {
			r.part = -1
			return 0, schema.Unavailable(err)
		}
	}
	at := offset % partSize
	if at >= int64(len(r.content)) {
		return 0, io.EOF
	}
	return bytes.NewReader(r.content).ReadAt(p, at)
}

var _ File = (*partReader)(nil)

// WriteOutcome writes the outcome of each row of an import, as CSV. The error is ErrNoRun if there is none.
func (r Runs) WriteOutcome(ctx context.Context, w io.Writer, account, runID string) error {
	found, err := r.Get(ctx, account, runID)
	if err != nil {
		return err
	}
	if found.State != Imported && found.State != Undone {
		return ErrNoRun
	}
	if _, err := io.Copy(w, r.reader(ctx, runID, outcomeFile)); err != nil {
		return fmt.Errorf("outcome of run %s: %w", runID, err)
	}
	return nil
}
