package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/transparency"
	"github.com/leadlog/leadlog/projection/verify"
	"github.com/leadlog/leadlog/projection/view"
)

// people has a log of sealed leads, each at an odd position and followed by its claim, and the views of the log.
type people struct {
	*projectiontest.World
	vault *sealed.Vault
	store *sealed.Store
	leads []string // streams
}

func newPeople(t *testing.T, leads int, projectors ...projection.Projector) *people {
	t.Helper()
	w := projectiontest.NewOnPostgres(t)
	box, err := sealbox.New(bytes.Repeat([]byte{1}, sealbox.KeySize))
	require.NoError(t, err)
	vault := sealed.NewVault(w.Pool, box)
	p := &people{World: w, vault: vault}
	p.store = p.open()
	for n := range leads {
		e := w.NewEvent()
		e.Type, e.Data, err = event.Encode(event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Phone: fmt.Sprintf("+91%d", n), Status: "new"}, Source: "api",
		})
		require.NoError(t, err)
		e.Metadata.Account = "acme"
		stream := event.LeadStream(e.ID.String())
		_, err = p.store.Append(t.Context(), eventstore.Write{
			Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{e},
		})
		require.NoError(t, err)
		w.Append(t, "acme", event.ClaimPrefix+w.NewID(), event.ClaimTaken{Kind: "phone", Holder: event.LeadID(stream)})
		p.leads = append(p.leads, stream)
	}
	p.project(t, projectors...)
	return p
}

// open opens the log as a new process.
func (p *people) open() *sealed.Store {
	return sealed.Wrap(p.Store, p.vault, true, slog.New(slog.DiscardHandler))
}

// project rebuilds views: all, or those of the projectors.
func (p *people) project(t *testing.T, projectors ...projection.Projector) {
	t.Helper()
	pgtest.Exec(t, p.Pool, `DELETE FROM views.checkpoint`)
	if len(projectors) == 0 {
		projectors = view.All()
	}
	runner, err := projection.New(projection.Options{
		URL: p.URL, Store: p.store, Projectors: projectors, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	projectiontest.CatchUp(t, runner)
}

// rewrite changes the log directly in the database.
func (p *people) rewrite(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, p.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL`)
	pgtest.Exec(t, p.Pool, sql, args...)
}

// verify verifies only the log, and returns the checkpoint of its tree.
func (p *people) verify(t *testing.T, signed ...merkle.Checkpoint) (findings []string, whole merkle.Checkpoint) {
	t.Helper()
	findings, err := verify.Verification{
		URL: p.URL, Pool: p.Pool, Store: p.open().Forensic(), Signed: signed, Limit: 3,
		Progress: func(_, _ eventstore.Position) {},
		LogHead:  func(tree tlog.Tree) { whole.Tree = tree },
	}.RunLog(t.Context())
	require.NoError(t, err)
	return findings, whole
}

func damaged(n int, stream string) string {
	return fmt.Sprintf("event at position %d of stream %s, revision 0, does not open: it or its key was changed, or "+
		"moved here from another stream", 2*n+1, stream)
}

func TestVerify_DetectsTamperedLead(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 3, ofLog...)
	for name, change := range map[string]string{
		"source":            `data = replace(convert_from(data, 'UTF8'), '"api"', '"ads"')::bytea`,
		"day":               `recorded_at = recorded_at - '1 day'::interval`,
		"account":           `metadata = replace(convert_from(metadata, 'UTF8'), 'acme', 'acmf')::bytea`,
		"nothing is sealed": `data = '{"phone":"+911","status":"new","source":"ads"}'::bytea`,
	} {
		t.Run(name, func(t *testing.T) {
			defer changed(t, p.World, change, 3)()
			findings, _ := p.verify(t)
			if name == "nothing is sealed" {
				require.Contains(t, findings,
					"event at position 3 of stream "+p.leads[1]+", revision 0, is not sealed, though "+
						"earlier events are")
			} else {
				require.Contains(t, findings, damaged(1, p.leads[1]))
			}
		})
	}
}

func TestVerifyHead_DetectsRewrittenLog(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 3, ofLog...)
	findings, early := p.verify(t)
	require.Empty(t, findings)
	require.EqualValues(t, 6, early.N)
	p.Append(t, "acme", event.ClaimPrefix+p.NewID(), event.ClaimReleased{Kind: "idempotency"})
	findings, late := p.verify(t, early)
	require.Empty(t, findings, "the log has grown")
	require.EqualValues(t, 7, late.N)

	require.NoError(t, p.store.Destroy(t.Context(), p.leads[2]))
	findings, whole := p.verify(t, late, early)
	require.NotContains(t, fmt.Sprint(findings), "the log: ", "a person who is forgotten is on the log as before")
	require.Equal(t, late, whole)

	p.rewrite(t,
		`UPDATE log.event SET metadata = replace(convert_from(metadata, 'UTF8'), 'acme', 'acmf')::bytea
			WHERE position = 7`)
	findings, _ = p.verify(t, late, early)
	require.Contains(t, findings,
		"the log: its first 7 events are not those of the checkpoint that was signed, though the first 6 are")
	p.rewrite(t, `DELETE FROM log.event WHERE position = 7`)
	findings, _ = p.verify(t, late, early)
	require.Contains(t, findings,
		"the log: has lost events: a checkpoint of 7 was signed, and there are 6, of which the first 6 are as they "+
			"were signed")
	p.rewrite(t, `UPDATE log.event SET stream = 'claim-other' WHERE position = 2`)
	findings, _ = p.verify(t, early)
	require.Contains(t, findings, "the log: its first 6 events are not those of the checkpoint that was signed")
}

func TestVerify_DetectsDamagedTiles(t *testing.T) {
	t.Parallel()
	p := newPeople(t, 200, ofLog...)
	const origin = "leads.example.com/log"
	signer, err := merkle.NewSigner(origin, bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	publisher := transparency.New(transparency.Options{
		Pool: p.Pool, Log: p.Store, Signer: signer, Logger: slog.New(slog.DiscardHandler),
		WriteInterval: 5 * time.Millisecond,
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { publisher.Run(ctx) })
	require.Eventually(t, func() bool {
		status, err := publisher.Status(t.Context())
		require.NoError(t, err)
		return status.Published == 400
	}, projectiontest.Soon, 5*time.Millisecond)
	stop()
	running.Wait()
	// the tree lags
	p.Append(t, "acme", event.ClaimPrefix+p.NewID(), event.ClaimTaken{Kind: "phone", Holder: event.LeadID(p.leads[0])})
	found := func() []string {
		findings, err := verify.Verification{
			URL: p.URL, Pool: p.Pool, Store: p.store.Forensic(), Origin: origin, Limit: 5,
			Progress: func(_, _ eventstore.Position) {},
		}.RunLog(t.Context())
		require.NoError(t, err)
		return slices.DeleteFunc(findings, func(f string) bool {
			return !strings.Contains(f, "tree of the log") && !strings.HasPrefix(f, "the log:")
		})
	}
	require.Empty(t, found())
	for change, says := range map[string]string{
		`UPDATE audit.tile SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 0
			AND number = 1`: "tile 1 of level 0",
		`UPDATE audit.tile SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1)
			WHERE level = 1`: "tile 0 of level 1",
		`DELETE FROM audit.tile WHERE level = 0
			AND number = 0`: "tile 0 of level 0",
		`UPDATE audit.checkpoint
			SET root = set_byte(root, 0,
			  get_byte(root, 0) # 1)`: "its first 400 events are not those of the checkpoint that was signed",
		`UPDATE audit.checkpoint
			SET size = 1000`: "has lost events: a checkpoint of 1000 was signed",
	} {
		tx, err := p.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(),
			`CREATE TABLE public.tile AS TABLE audit.tile; CREATE TABLE public.head AS TABLE audit.checkpoint`)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), change)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		require.Contains(t, strings.Join(found(), "\n"), says)
		_, err = p.Pool.Exec(t.Context(),
			`TRUNCATE audit.tile, audit.checkpoint; INSERT INTO audit.tile TABLE public.tile; INSERT INTO
				audit.checkpoint TABLE public.head; DROP TABLE public.tile, public.head`)
		require.NoError(t, err)
	}
	require.Empty(t, found())
}
