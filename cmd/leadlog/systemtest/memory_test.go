package systemtest

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// Clients send more than twice the memory limit of the service, and do not read its answers. The service must not
// exceed the limit, and must refuse some requests and serve others.
func TestMemory_BoundedUnderLargeBodies(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	settings["GOMEMLIMIT"] = "256MiB"
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	address := strings.TrimPrefix(base, "http://")
	line := fmt.Sprintf(`{"email":"a@example.com","note":%q}`, rand.Text()) + strings.Repeat(" ", 20<<10) + "\n"
	block := []byte(strings.Repeat(line, 25)) // half a megabyte
	var sending sync.WaitGroup
	for i := range 40 {
		sending.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer conn.Close()
			path, length := "/api/v1/crm/leads/batch", 30<<20
			if i%4 == 0 {
				path, length = "/api/v1/crm/leads", 2<<20
			}
			_ = conn.SetDeadline(time.Now().Add(8 * time.Second))
			_, err = fmt.Fprintf(conn,
				"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
				path, jwt, length)
			for sent := 0; err == nil && sent < length; sent += len(block) {
				_, err = conn.Write(block[:min(len(block), length-sent)])
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1)) // until its deadline
		})
	}
	sending.Wait()
	mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).is(t, 201)
	peak := mapped(t, base)
	t.Logf("at most %d MiB", peak>>20)
	require.Less(t, peak, int64(256<<20))
	p.stop(t)
}

// mapped returns the peak of memory that Go's runtime has obtained from the system, in bytes, without that of the race
// detector.
func mapped(t *testing.T, base string) int64 {
	t.Helper()
	_, after, found := strings.Cut(scrape(t, base), "\ngo_memstats_sys_bytes ")
	require.True(t, found)
	value, _, _ := strings.Cut(after, "\n")
	bytes, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	return int64(bytes)
}
