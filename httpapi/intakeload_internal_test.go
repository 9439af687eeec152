package httpapi

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/httpapi/quota"
)

// deadlined is a response on a connection.
type deadlined struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (d deadlined) SetReadDeadline(at time.Time) error { return d.conn.SetReadDeadline(at) }

func TestLoad_IntakeMinimumRate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chunks, bytes int // one chunk a second, the first at once
		stalls        bool
		late          time.Duration // when the body is refused; 0: never
	}{
		"small":                    {chunks: 1, bytes: 1000},
		"nothing":                  {stalls: true, late: bodyGrace},
		"stalls":                   {chunks: 1, bytes: 1, stalls: true, late: bodyGrace},
		"stalls after most of it":  {chunks: 1, bytes: maxArrival - 1, stalls: true, late: bodyGrace},
		"slow, but fast enough":    {chunks: 15, bytes: bodyRate},
		"too slow":                 {chunks: 1000, bytes: bodyRate / 4, late: 6 * time.Second},
		"early bytes do not count": {chunks: 2, bytes: maxArrival / 4, stalls: true, late: time.Second + bodyGrace},
		"too long":                 {chunks: 1000, bytes: bodyRate * 5 / 4, late: bodyTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			server, client := net.Pipe()
			defer client.Close()
			var sending sync.WaitGroup
			sending.Go(func() {
				for i := range c.chunks {
					if i > 0 {
						time.Sleep(time.Second)
					}
					if _, err := client.Write(make([]byte, c.bytes)); err != nil {
						return
					}
				}
				if !c.stalls {
					client.Close()
				}
			})
			x := &exchange{
				api: &api{load: newLoad(Options{})}, w: deadlined{httptest.NewRecorder(), server},
				r: &http.Request{Body: server, ContentLength: -1}, kind: quota.Arrival,
				intake: &command.Intake{ID: "i"},
			}
			begun := time.Now()
			body, err := x.readBodyUpTo(maxArrival, errArrivalLarge)
			if c.late == 0 {
				require.NoError(t, err, name)
				require.Len(t, body, c.chunks*c.bytes, name)
			} else {
				require.ErrorIs(t, err, errSlowBody, name)
				require.Equal(t, c.late, time.Since(begun).Truncate(time.Second), name)
				_, err = server.Read(make([]byte, 1))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded, "net/http does not wait for the rest")
				require.Equal(t, c.late, time.Since(begun).Truncate(time.Second), name)
			}
			server.Close()
			sending.Wait()
		})
	}
}

// A request that is refused for one share uses none of the other.
func TestLoad_IntakeShares(t *testing.T) {
	t.Parallel()
	b := newIntakeBudget(16, 1)
	require.True(t, b.reserve("a", "i", 2))
	require.False(t, b.reserve("a", "j", 1), "an address may use an eighth")
	require.True(t, b.reserve("b", "i", 2))
	require.False(t, b.reserve("c", "i", 1), "an intake may use a quarter")
	require.True(t, b.reserve("c", "j", 2))
	b.release("a", "i", 2)
	require.True(t, b.reserve("c2", "i", 2))
	for _, holder := range []string{"b", "c2"} {
		b.release(holder, "i", 2)
	}
	b.release("c", "j", 2)
	require.Empty(t, b.byAddress.byHolder)
	require.Empty(t, b.byIntake.byHolder)
	require.Zero(t, b.byAddress.inUse())
}
