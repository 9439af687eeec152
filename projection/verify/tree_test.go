package verify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// trail returns a log with the token events of two accounts, and its views: all, or those of the projectors. The token
// of the account acme has its events at positions 1, 3, 5 and 7.
func trail(t *testing.T, projectors ...projection.Projector) (w *projectiontest.World, id string) {
	t.Helper()
	w = projectiontest.NewOnPostgres(t)
	id, other := w.NewID(), w.NewID()
	expires := projectiontest.Start.AddDate(0, 0, 30)
	for _, fact := range []event.Data{
		event.TokenCreated{
			Name: "CI", Prefix: "leadlog_a", Hash: []byte("hash"), Days: 30, ExpiresAt: expires, Slot: 1,
		},
		event.TokenRotated{Prefix: "leadlog_b", Hash: []byte("hush"), ExpiresAt: expires, PreviousExpiresAt: expires},
	} {
		w.Append(t, "acme", event.TokenStream(id), fact)
		w.Append(t, "globex", event.TokenStream(other), fact)
	}
	use := event.TokenUseStream(id, projectiontest.Start)
	w.Append(t, "acme", use, event.TokenRefused{Reason: "rotated", Prefix: "leadlog_a"})
	w.Append(t, "acme", use, event.TokenUsed{})
	w.Append(t, "acme", event.TokenStream(id), event.TokenDeleted{})
	projectiontest.CatchUp(t, w.Runner(t, projectors...))
	return w, id
}

// changed changes an event directly in the database, until restore is called.
func changed(t *testing.T, w *projectiontest.World, change string, position int) (restore func()) {
	t.Helper()
	pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL; CREATE TABLE public.before AS TABLE log.event`)
	tag, err := w.Pool.Exec(t.Context(), `UPDATE log.event SET `+change+` WHERE position = $1`, position)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	return func() {
		pgtest.Exec(t, w.Pool,
			`DELETE FROM log.event; INSERT INTO log.event TABLE public.before; DROP TABLE public.before`)
	}
}

func TestVerifyTree_NamesChangedEvent(t *testing.T) {
	t.Parallel()
	w, id := trail(t, ofLog...)
	for name, c := range map[string]struct {
		change   string
		position int
	}{
		"of the name": {`data = replace(convert_from(data, 'UTF8'), '"CI"', '"CJ"')::bytea`, 1},
		"of the hash, which no answer shows": {
			`data = overlay(data PLACING 'X' FROM position('aGFzaA' IN convert_from(data, 'UTF8')) FOR 1)`, 1,
		},
		"of the slot, which no answer shows": {
			`data = replace(convert_from(data, 'UTF8'), '"slot":1', '"slot":2')::bytea`, 1,
		},
		"of the expiry": {
			`data = replace(convert_from(data, 'UTF8'), '2026-03-31', '2026-03-30')::bytea`, 3,
		},
		"of the reason": {
			`data = replace(convert_from(data, 'UTF8'), 'rotated', 'rotatec')::bytea`, 5,
		},
		"of the actor": {
			`metadata = replace(convert_from(metadata, 'UTF8'), 'user:ada', 'user:adb')::bytea`, 7,
		},
		"of the address": {
			`metadata = replace(convert_from(metadata, 'UTF8'), '192.0.2.7', '192.0.2.8')::bytea`, 3,
		},
		"of a member's name": {
			`metadata = replace(convert_from(metadata, 'UTF8'), '"credential"', '"credentiam"')::bytea`, 7,
		},
		"of the time": {`recorded_at = recorded_at + '1 microsecond'`, 7},
		"of its id":   {`event_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'`, 5},
	} {
		t.Run(name, func(t *testing.T) {
			defer changed(t, w, c.change, c.position)()
			stream := event.TokenStream(id)
			if c.position == 5 {
				stream = event.TokenUseStream(id, projectiontest.Start)
			}
			var named []string
			for _, finding := range runLog(t, w) {
				if strings.HasPrefix(finding, "audit tree") {
					named = append(named, finding)
				}
			}
			require.Equal(t, []string{fmt.Sprintf(
				"audit tree of account acme: event at position %d of stream %s is not the one that the tree "+
					"was made of", c.position, stream,
			)}, named)
		})
	}
}

func TestVerifyTree_UnreadableEvent(t *testing.T) {
	t.Parallel()
	w, id := trail(t, ofLog...)
	pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL;
		UPDATE log.event SET data = overlay(data PLACING '[' FROM 1 FOR 1) WHERE position = 3`)
	found := runLog(t, w)
	require.Contains(t, found, "event at position 3 of stream token-"+id+" is not readable as token.rotated.v1")
	require.NotContains(t, strings.Join(found, "\n"), "audit tree")
}

func TestVerifyTree_DetectsChangedTree(t *testing.T) {
	t.Parallel()
	w, _ := trail(t, ofLog...)
	pgtest.Exec(t, w.Pool,
		`UPDATE views.token_tree SET hashes = set_byte(hashes, 33, get_byte(hashes, 33) # 1) WHERE account = 'acme'`)
	found := strings.Join(run(t, w, ofLog...), "\n")
	require.Equal(t, 1, strings.Count(found, "audit tree of account acme: event at position"))
	require.Contains(t, found, "audit tree of account acme: event at position 3 of")
	require.Contains(t, found, "view token_event, table token_tree, row acme 0 0: differs from the log")
}

func TestVerifyTree_SameAfterReplay(t *testing.T) {
	t.Parallel()
	projectors := []projection.Projector{view.Lead{}, view.TokenEvent{}, view.Token{}}
	w, _ := trail(t, projectors...)
	require.Empty(t, run(t, w, projectors...))
	var first, again string
	tree := `SELECT string_agg(account || octet_length(hashes) || encode(hashes, 'hex'), ' ' ORDER BY account, number)
		FROM views.token_tree WHERE level = 0`
	require.NoError(t, w.Pool.QueryRow(t.Context(), tree).Scan(&first))
	require.Regexp(t, `^acme128\w+ globex64\w+$`, first, "four leaves of one, and two of the other")
	pgtest.Exec(t, w.Pool, `DELETE FROM views.checkpoint`)
	projectiontest.CatchUp(t, w.Runner(t, projectors...))
	require.NoError(t, w.Pool.QueryRow(t.Context(), tree).Scan(&again))
	require.Equal(t, first, again)
	used := pgtest.Value[time.Time](t, w.Pool, `SELECT last_used_at FROM views.token WHERE account = 'acme'`)
	require.False(t, used.IsZero())
}

func TestVerifyTree_DetectsRewrittenLog(t *testing.T) {
	t.Parallel()
	w, _ := trail(t, ofLog...)
	root, err := tlog.TreeHash(3, schema.TokenTree("acme").Hashes(t.Context(), w.Pool))
	require.NoError(t, err)
	kept := merkle.Checkpoint{Account: "acme"}
	kept.Tree = tlog.Tree{N: 3, Hash: root}
	require.Empty(t, runLog(t, w, kept))
	pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL;
		UPDATE log.event SET data = replace(convert_from(data, 'UTF8'), '"CI"', '"CJ"')::bytea WHERE position = 1;
		DELETE FROM views.checkpoint`)
	project(t, w)
	require.Empty(t, run(t, w, ofLog...), "log and views agree")
	require.Equal(t,
		[]string{"audit tree of account acme: its first 3 events are not those of the checkpoint that was signed"},
		runLog(t, w, kept))
	kept.N = 9
	require.Equal(t,
		[]string{"audit tree of account acme: has lost events: a checkpoint of 9 was signed, and there are 4"},
		runLog(t, w, kept))
}
