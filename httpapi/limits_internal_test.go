package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/turns"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi/quota"
)

func TestQuota_Headers(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	setQuotaHeaders(header, quota.Capture.Policy(), quota.NewLocal(1, (&clock{noon}).now).Take("a", quota.Limit{
		Rate: 10, Burst: 100,
	}))
	require.Equal(t, `"capture";q=100;w=10`, header.Get("RateLimit-Policy"))
	require.Equal(t, `"capture";r=99;t=1`, header.Get("RateLimit"))
}

// clock is a manual clock.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// One IPv6 network has more addresses than the table of quotas has entries.
func TestCredentials_NetworkIsLimited(t *testing.T) {
	t.Parallel()
	a := &api{failures: quota.NewLocal(cachedAddresses, (&clock{noon}).now)}
	take := func(address netip.Addr) bool {
		return (&exchange{api: a, client: address}).takeFromAddress("lookup").Allowed
	}
	network := netip.MustParseAddr("2001:db8:1::1")
	for range failureLimit.Burst {
		require.True(t, take(network))
	}
	require.False(t, take(network))
	allowed := 0
	for i := range 1 << 16 {
		if take(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 5: 2, 6: byte(i >> 8), 7: byte(i)})) {
			allowed++
		}
	}
	require.Equal(t, 16*failureLimit.Burst, allowed)
	require.False(t, take(network), "the quota of the first network is kept")
	require.True(t, take(netip.MustParseAddr("2001:db8:3::1")), "another network has its own quota")
	allowed = 0
	for i := range 1 << 16 {
		if take(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 4: byte(i >> 8), 5: byte(i), 6: 1})) {
			allowed++
		}
	}
	require.Less(t, allowed, 256*failureLimit.Burst)
	require.False(t, take(network))
}

// Beyond the limit of wrong proofs, an address causes no read of the log, and no read of a body unless the headers
// prove the post.
func TestProofs_LimitPrecedesWork(t *testing.T) {
	t.Parallel()
	a := &api{
		Options: Options{Now: time.Now}, failures: quota.NewLocal(cachedAddresses, (&clock{noon}).now),
		metrics: newMetrics(nil),
	}
	post := func(settings event.IntakeSettings, authorization string) *exchange {
		cached := &command.Cached[intake.State]{State: intake.State{Settings: settings}}
		return &exchange{
			api: a, r: &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {authorization}}},
			intake: &command.Intake{Cached: cached, Secrets: intake.Secrets{Secret: "s"}},
		}
	}
	a.failures.Spend("proof "+post(event.IntakeSettings{}, "").address(), proofLimit, proofLimit.Burst)
	var limited limitError
	for _, wrong := range []error{intake.ErrProof, errOrigin} {
		require.ErrorAs(t, post(event.IntakeSettings{}, "").byIntake(func() (bool, error) { return false, wrong }),
			&limited)
	}
	_, err := post(event.IntakeSettings{Kind: intake.GoogleLeadForm}, "").checkHeaders()
	require.ErrorAs(t, err, &limited)
	_, err = post(event.IntakeSettings{Kind: intake.MetaLeadAds}, "").receiveGet()
	require.ErrorAs(t, err, &limited)
	bearer := event.IntakeSettings{Kind: intake.Webhook, Signature: &event.IntakeSignature{Scheme: intake.SchemeBearer}}
	confirmed, err := post(bearer, "Bearer s").checkHeaders()
	require.NoError(t, err, "a valid secret is not refused for what its address sent")
	require.True(t, confirmed)
	_, err = post(bearer, "Bearer x").checkHeaders()
	require.ErrorIs(t, err, intake.ErrProof)
}

func TestLoad_RefusalChargesNothing(t *testing.T) {
	t.Parallel()
	all := newBudget(2, 2)
	own, other := all.of("acme"), all.of("other")
	require.True(t, other.reserve(2))
	for range 3 {
		_, err := own.enter()
		require.ErrorIs(t, err, errOverloaded)
	}
	other.release(2)
	require.True(t, own.reserve(2), "the refused requests hold no budget")
	require.False(t, own.reserve(1))
	own.release(2)
	require.Empty(t, all.byHolder, "an account without requests has no entry")
}

// Costly posts to one intake delay no posts to another.
func TestArrive_TurnOfIntake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mapping, err := intake.Compile(event.IntakeSettings{Kind: intake.Form})
		require.NoError(t, err)
		commands := command.NewHandlers(command.Options{})
		post := func(id string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			x := &exchange{api: &api{Options: Options{Commands: commands}}, ctx: ctx}
			x.intake = &command.Intake{ID: id, Mapping: mapping, Cached: &command.Cached[intake.State]{}}
			x.caller.Account = "a"
			_, _, _, err := x.mapped(event.ArrivalRaw{}, nil)
			return err
		}
		require.NoError(t, commands.Turns().Do(t.Context(), "a", "form", func() turns.Cost {
			time.Sleep(time.Second)
			return turns.Cost{Bytes: 1 << 20}
		}))
		require.ErrorIs(t, post("form"), context.DeadlineExceeded)
		require.NoError(t, post("other"))
		time.Sleep(3 * time.Second)
		require.NoError(t, post("form"))
	})
}

// An answer that takes longer than one interval is sent at the end of the next interval.
func TestForm_AnswersAtMultiples(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{0, formPace / 2, formPace + formPace/2} {
		f := formPost{exchange: &exchange{r: &http.Request{}}, begun: time.Now().Add(-took)}
		f.pace()
		require.GreaterOrEqual(t, time.Since(f.begun), took-took%formPace+formPace)
	}
}
