package query_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// A store without transactions may have a claim that names a lead which is part of another by now: whoever joined the two
// was killed before the claim moved.
func TestALeadIsFoundByAClaimThatNamesAPartOfIt(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	names := claim.NewNames(bytes.Repeat([]byte{1}, 32))
	first, second, third := w.NewID(), w.NewID(), w.NewID()
	const phone = "+919876543210"
	w.Append(t, "acme", names.Stream("acme", claim.Phone, phone), event.ClaimTaken{Kind: string(claim.Phone), Holder: first})
	w.Append(t, "acme", event.LeadStream(first), event.LeadCreated{Name: "Asha", Phone: phone, Status: "new", Source: "api"})
	was := event.LeadSnapshot{Name: "Asha", Phone: phone, Phones: []string{phone}, Status: "new", Source: "api"}
	from, joined := first, []string(nil)
	for _, into := range []string{second, third} {
		w.Append(t, "acme", event.LeadStream(into), event.LeadCreated{Name: into, Status: "new", Source: "api"})
		w.Append(t, "acme", event.LeadStream(from), event.LeadDeparted{Into: into})
		w.Append(t, "acme", event.LeadStream(into), event.LeadJoined{From: from, Joined: joined, Was: was})
		from, joined = into, append(joined, from)
	}
	w.Project(t)
	list, err := query.New(w.Pool, w.Store, query.WithClaims(names)).Leads(t.Context(), "acme", query.LeadFilter{Phone: phone}, whole)
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, third, list.Items[0].LeadID)
}
