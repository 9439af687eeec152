package verify_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/verify"
	"github.com/leadlog/leadlog/projection/view"
)

func TestVerify_NamesDamagedEvents(t *testing.T) {
	t.Parallel()
	w := newPeople(t, 6, ofLog...)
	streams := w.leads
	found := func() []string {
		findings, _ := w.verify(t)
		return findings
	}
	require.Empty(t, found())

	spoil := func(sql string, streams ...string) { w.rewrite(t, sql, streams) }
	const damage = `UPDATE log.event SET data = set_byte(data, length(data) - 10, CASE get_byte(data, length(data) - 10)
		WHEN 65 THEN 66 ELSE 65 END)
		 WHERE stream = ANY ($1)`
	spoil(damage, streams[0], streams[3])
	spoil(`UPDATE views.lead SET status = 'won' WHERE 'lead-' || lead_id = ANY ($1)`, streams[5])
	says := func(n int) string { return damaged(n, streams[n]) }
	findings, err := verify.Verification{
		URL: w.URL, Pool: w.Pool, Store: w.open().Forensic(), Limit: 3, Progress: func(_, _ eventstore.Position) {},
	}.Only(ofLog...).Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{says(0), says(3)}, findings[:2])
	require.Contains(t, findings, "view lead, row "+event.LeadID(streams[5])+": differs from the log")
	require.False(t, anyContains(findings, "cannot be read: its key is missing"), "%q", findings)

	spoil(`UPDATE person.key SET sealed = '\x00' WHERE stream = ANY ($1)`, streams[4])
	findings = found()
	require.Equal(t, []string{says(0), says(3), says(4)}, findings[:3], "a key that is damaged ends nothing either")
	require.False(t, anyContains(findings, "cannot be read: its key is missing"), "%q", findings)

	spoil(damage, streams[1], streams[2], streams[5]) // the last one is the event that the views have seen last
	findings = found()
	require.Equal(t, []string{says(0), says(1), says(2)}, findings[:3], "at most so many of a kind")
	require.NotContains(t, findings, says(3))

	for _, err := range w.store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		require.ErrorIs(t, err, sealed.ErrDamaged, "a consumer of the events gets none of these")
		break
	}
}

func TestVerify_DetectsLostContent(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 0, view.Arrival{})
	e := p.NewEvent()
	var err error
	e.Type, e.Data, err = event.Encode(event.ArrivalReceived{Raw: event.ArrivalRaw{Body: "name=Asha"}})
	require.NoError(t, err)
	e.Metadata.Account = "acme"
	stream := event.ArrivalStream(e.ID.String())
	storetest.AppendNext(t, p.store, stream, e)
	p.project(t, view.Arrival{})
	findings, before := p.verify(t)
	require.Empty(t, findings)
	pgtest.Exec(t, p.Pool, `DELETE FROM person.content`)
	findings, after := p.verify(t)
	require.Equal(t, []string{"event at position 1 of stream " + stream +
		", revision 0, has lost its content: the row of person.content is missing or was changed"}, findings)
	require.Equal(t, before, after, "the log is as it was")
}

// This is the state after the restore of keys from before the log's last leads.
func TestVerify_LeadWithoutKey(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 2, ofLog...)
	pgtest.Exec(t, p.Pool, `DELETE FROM person.key WHERE stream = $1`, p.leads[1])
	pgtest.Exec(t, p.Pool, `DELETE FROM views.lead`)
	p.store = p.open()
	p.project(t, ofLog...)
	findings, err := verify.Verification{
		URL: p.URL, Pool: p.Pool, Store: p.open().Forensic(), Limit: 3, Progress: func(_, _ eventstore.Position) {},
	}.Only(ofLog...).Run(t.Context())
	require.NoError(t, err)
	require.Equal(t,
		[]string{
			"lead " + event.LeadID(p.leads[1]) + " of account acme cannot be read: its key is missing, and it " +
				"was not erased",
		}, findings)
}

// TestVerify_DetectsRepeatedEvent: a copy of an event at the end of its stream can be opened like the original, and
// resets the lead to an earlier state.
func TestVerify_DetectsRepeatedEvent(t *testing.T) {
	t.Parallel()
	w := newPeople(t, 2, ofLog...)
	w.rewrite(t, `INSERT INTO log.event
		SELECT 1 + (SELECT max(position) FROM log.event), recorded_at, revision + 1, event_id, stream, type, data,
		  metadata
		  FROM log.event WHERE stream = $1`, w.leads[0])
	findings, _ := w.verify(t)
	require.Contains(t, findings, "event at position 5 of stream "+w.leads[0]+" repeats the event at position 1")
}

// Each event can be opened at any revision of its stream, and the order of events decides which of two values a lead
// has.
func TestVerify_DetectsReorderedEvents(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 2, ofLog...)
	for _, name := range []string{"Asha", "Asha Rao"} {
		e := p.NewEvent()
		var err error
		e.Type, e.Data, err = event.Encode(event.LeadMerged{
			Source: "website", LeadFields: event.LeadFields{Name: name}, Changed: []string{"name"},
		})
		require.NoError(t, err)
		e.Metadata.Account = "acme"
		storetest.AppendNext(t, p.store, p.leads[0], e)
	}
	p.project(t, ofLog...)
	findings, _ := p.verify(t)
	require.Empty(t, findings)
	p.rewrite(t, `
		UPDATE log.event e SET recorded_at = o.recorded_at, event_id = o.event_id, type = o.type, data = o.data,
		  metadata = o.metadata
		  FROM log.event o WHERE e.stream = $1 AND o.stream = e.stream AND e.revision + o.revision = 3
		  AND e.revision > 0 AND o.revision > 0`, p.leads[0])
	p.project(t, ofLog...)
	findings, _ = p.verify(t)
	require.Equal(t,
		[]string{"event at position 6 of stream " + p.leads[0] + " is older than the event that it follows"}, findings)
}

// act appends an activity of a visitor by a new process.
func (p *people) act(t *testing.T, visitor string) {
	t.Helper()
	e := p.NewEvent()
	var err error
	e.Type, e.Data, err = event.Encode(event.VisitorActed{VisitorID: "v", Kind: "click"})
	require.NoError(t, err)
	e.Metadata.Account = "acme"
	storetest.AppendNext(t, p.open(), visitor, e)
}

// unread reports whether verify detects that a visitor cannot be read.
func (p *people) unread(t *testing.T, visitor string) bool {
	t.Helper()
	findings, _ := p.verify(t)
	return anyContains(findings, visitor+" of account acme cannot be read: its key is missing, and it was not erased")
}

// loses deletes all keys of a visitor, and returns their ids.
func (p *people) loses(t *testing.T, visitor string) (ids []string) {
	t.Helper()
	rows, err := p.Pool.Query(t.Context(), `DELETE FROM person.key WHERE stream = $1 RETURNING id::text`, visitor)
	require.NoError(t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return ids
}

// A missing key of a visitor is reported like one of a lead, unless the visitor was erased with a lead before its
// current activity.
func TestVerify_VisitorWithoutKey(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 1, ofLog...)
	visitor := event.VisitorStream("acme", "v")
	found := func() bool {
		p.loses(t, visitor)
		return p.unread(t, visitor)
	}
	p.act(t, visitor)
	require.True(t, found())
	p.Append(t, "acme", p.leads[0], event.LeadErased{Visitors: []string{visitor}})
	require.False(t, found(), "the key goes first, and then it is said")
	p.Append(t, "acme", visitor, event.VisitorForgotten{})
	require.False(t, found())
	p.act(t, visitor)
	require.True(t, found())
}

// One key is lost. The events sealed with it are reported as lost, and those of the next key are not.
func TestVerify_LostKeyAfterForgottenKey(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 1, ofLog...)
	visitor := event.VisitorStream("acme", "v")
	p.act(t, visitor)
	first := p.loses(t, visitor)
	p.act(t, visitor)
	require.True(t, p.unread(t, visitor))
	p.Append(t, "acme", visitor, event.VisitorForgotten{Keys: first})
	require.False(t, p.unread(t, visitor))
	second := p.loses(t, visitor)
	require.True(t, p.unread(t, visitor))
	p.Append(t, "acme", visitor, event.VisitorForgotten{Keys: second})
	require.False(t, p.unread(t, visitor))
}

// A restored key of a visitor who was forgotten seals one more activity before it is destroyed again. It counts as not
// recorded.
func TestVerify_SealedWithRestoredKey(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 1, ofLog...)
	visitor := event.VisitorStream("acme", "v")
	p.act(t, visitor)
	pgtest.Exec(t, p.Pool, `CREATE TABLE person.backup AS TABLE person.key`)
	p.loses(t, visitor)
	p.Append(t, "acme", visitor, event.VisitorForgotten{})
	pgtest.Exec(t, p.Pool, `INSERT INTO person.key SELECT * FROM person.backup WHERE stream = $1`, visitor)
	p.act(t, visitor)
	p.loses(t, visitor)
	require.False(t, p.unread(t, visitor))
	p.act(t, visitor)
	p.loses(t, visitor)
	require.True(t, p.unread(t, visitor))
}
