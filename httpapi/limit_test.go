package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/quota"
)

func TestTheHeadersTellTheQuota(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	tellQuota(header, quota.Capture, quota.NewLocal(1, (&clock{noon}).now).Take("a", quota.Limit{Rate: 10, Burst: 100}))
	require.Equal(t, `"capture";q=100;w=10`, header.Get("RateLimit-Policy"))
	require.Equal(t, `"capture";r=99;t=1`, header.Get("RateLimit"))
}

// clock is a time that only tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }
