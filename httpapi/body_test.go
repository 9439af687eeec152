package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestBody_ReadsToEnd(t *testing.T) {
	t.Parallel()
	a := &api{load: newLoad(Options{BodyBytes: 64 << 20})}
	for _, length := range []int{0, 1, 511, 512, 513, 64<<10 - 1, 64 << 10, 64<<10 + 1, 320 << 10, maxBody} {
		want := bytes.Repeat([]byte("lead"), length/4+1)[:length]
		for reader, read := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "in halves": iotest.HalfReader,
			"EOF with data": iotest.DataErrReader,
		} {
			for _, announced := range []int64{int64(length), -1} {
				r := &http.Request{Body: io.NopCloser(read(bytes.NewReader(want))), ContentLength: announced}
				x := &exchange{api: a, w: httptest.NewRecorder(), r: r}
				got, err := x.readBodyUpTo(maxBody, errTooLarge)
				require.NoError(t, err, "%d bytes %s", length, reader)
				require.True(t, bytes.Equal(want, got), "%d bytes %s", length, reader)
				require.EqualValues(t, length, x.reserved, "%d bytes %s", length, reader)
			}
		}
	}
	tooLarge := &http.Request{Body: io.NopCloser(bytes.NewReader(make([]byte, maxBody+1))), ContentLength: -1}
	_, err := (&exchange{api: a, w: httptest.NewRecorder(), r: tooLarge}).readBodyUpTo(maxBody, errTooLarge)
	require.ErrorIs(t, err, errTooLarge)
}

func TestBody_SlowBodyRestartsTimeout(t *testing.T) {
	t.Parallel()
	x := &exchange{
		api: &api{load: newLoad(Options{})}, w: httptest.NewRecorder(),
		r:      httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{}`)),
		record: &record{},
	}
	x.ctx, x.cancel = context.WithTimeout(t.Context(), 0)
	require.Error(t, x.ctx.Err(), "the body has used the whole timeout")
	_, err := x.members()
	require.NoError(t, err)
	defer x.cancel()
	require.NoError(t, x.ctx.Err())
}
