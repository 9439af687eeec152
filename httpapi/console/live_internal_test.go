package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Live pages contain responses of endpoints and metadata of forms, so lines of such text must not start a field of the
// event stream.
func TestLivePage_EscapesEventStream(t *testing.T) {
	t.Parallel()
	require.Equal(t, "data: <td>ok\ndata: event: end\ndata: \ndata: retry: 1</td>\n\n",
		string(sse([]byte("<td>ok\revent: end\r\n\rretry: 1</td>"))))
	require.Equal(t, "data: a\ndata: b\n\n", string(sse([]byte("a\r\nb\n"))))
}

func TestLivePage_PauseGrowsWithLoad(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, livePause(8*time.Millisecond, 1))
	require.Equal(t, time.Second, livePause(5*time.Millisecond, 50))
	require.Equal(t, 2*time.Second, livePause(5*time.Millisecond, 100))
	require.Equal(t, 4*time.Second, livePause(time.Second, 1))
	require.Equal(t, liveHeartbeat, livePause(8*time.Second, 3))
}
