package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Touch has a row for each arrival of a lead, and for each visit from a campaign. A row keeps its values, so that a
// report as of any position can be repeated: joins and splits have rows of their own, and an erasure deletes the
// personal data, which is in another table. The view also has the other inputs of attribution: changes of a lead's
// stage and value, which stages are won, and what days of advertising cost.
//
// The source history is read from this view: the first arrival of a lead from a source is flagged. Only a join or a
// split changes flags.
type Touch struct{}

// Kinds of touches.
const (
	kindCreated = "created"
	kindMerged  = "merged"
	kindVisit   = "visit"
)

func (Touch) Name() string { return schema.Touch }
func (Touch) Version() int { return 2 }
func (Touch) Tables() []string {
	return []string{
		"touch", "touch_personal", "touch_owner", "lead_change", "won_stages", "spend", conversionTable,
		conversionStateTable, conversionSweepTable,
	}
}
func (Touch) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{
		event.LeadPrefix, event.VisitorPrefix, event.AccountPrefix, event.SpendPrefix,
	}}
}

func (v Touch) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	return v.Prepare(batch)(ctx, tx)
}

// Prepare implements projection.Preparer. An erasure, a join or a split changes rows written before it, so a batch is
// split there.
func (Touch) Prepare(batch []projection.Event) projection.Write {
	parts := []*touches{newTouches(len(batch))}
	for i := range batch {
		part := parts[len(parts)-1]
		if part.add(&batch[i]); part.erased != nil || part.visitor != "" || part.moved.into != "" {
			parts = append(parts, newTouches(len(batch)-i-1))
		}
	}
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, part := range parts {
			if err := part.write(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	}
}

// touches holds the rows of a part of a batch, and the erasure, join or split that ends it.
type touches struct {
	plain, personal   rows
	changes, settings rows
	spend             rows
	erased            []string // leads
	origins           []event.SplitOrigin
	visitor           string // stream of a visitor who is forgotten
	forgotten         event.VisitorForgotten
	moved             move
}

// move gives arrivals of one lead to another: of a join all that it has, of a split some of them.
type move struct {
	from, into string
	position   int64
	touches    []string // of a split: ids
	begins     bool     // the lead is new
	joined     bool
}

func newTouches(count int) *touches {
	return &touches{plain: makeRows(count, 300), personal: makeRows(count, 300)}
}

func (t *touches) add(e *projection.Event) {
	switch data := e.Data.(type) {
	case event.LeadCreated:
		t.touch(e, &touchRow{
			kind: kindCreated, source: data.Source, first: true, campaign: data.Campaign, kept: data.ArrivalRef,
			visitor: data.Visitor, stage: data.Status, value: data.OpportunityValue,
			details: details{metadata: data.Metadata, ip: data.IP, userAgent: data.UserAgent, changed: data.Changed},
		})
		if slices.Contains(data.Changed, "status") {
			t.change(e, data.SeenAt(e.At), event.LeadFields{Status: data.Status})
		}
	case event.LeadMerged:
		t.touch(e, &touchRow{
			kind: kindMerged, source: data.Source, first: data.NewSource, campaign: data.Campaign,
			kept: data.ArrivalRef, visitor: data.Visitor,
			value:   data.OpportunityValue,
			details: details{metadata: data.Metadata, ip: data.IP, userAgent: data.UserAgent, changed: data.Changed},
		})
		t.change(e, e.At, event.LeadFields{Status: data.Status})
	case event.LeadUpdated:
		t.change(e, e.At, data.LeadFields)
	case event.AccountConfigured:
		t.setting(e, &data)
	case event.SpendSet:
		t.costs(e, &data)
	case event.VisitorActed:
		if data.Touch {
			t.visit(e, &data)
		}
	case event.LeadJoined:
		t.moved = move{from: data.From, into: event.LeadID(e.Stream), position: int64(e.Position), joined: true}
		t.changeRow(e, event.LeadID(e.Stream), e.At, "", data.OpportunityValue)
		t.changeRow(e, data.From, e.At, attribution.NoStage, "")
	case event.LeadSplit:
		if data.Into != "" {
			t.moved = move{
				from: event.LeadID(e.Stream), into: data.Into, position: int64(e.Position), touches: data.Touches,
				begins: !data.Undone,
			}
		}
		t.changeRow(e, event.LeadID(e.Stream), data.StatusAt, account.FoldStage(data.Status),
			cmp.Or(data.OpportunityValue, "0"))
	case event.LeadErased:
		t.origins = data.Origins
		// a new slice, since events are shared with other projectors
		t.erased = append(slices.Clip(data.Leads), event.LeadID(e.Stream))
	case event.VisitorForgotten:
		t.visitor, t.forgotten = e.Stream, data
	}
}

// touchRow holds the values of an arrival or a visit for a touch.
type touchRow struct {
	kind, source string
	first        bool // the lead's first arrival from this source
	campaign     event.Campaign
	kept         event.ArrivalRef
	visitor      string
	stage, value string
	details
}

// details are the personal data of a touch.
type details struct {
	metadata      map[string]jsontext.Value
	ip, userAgent string
	changed       []string
}

// touch adds the row of an arrival.
func (t *touches) touch(e *projection.Event, a *touchRow) {
	t.row(e, a, event.LeadID(e.Stream), a.kept.SeenAt(e.At))
}

// visit adds the row of an activity.
func (t *touches) visit(e *projection.Event, acted *event.VisitorActed) {
	t.row(e, &touchRow{
		kind: kindVisit, campaign: acted.Campaign, visitor: e.Stream, details: details{metadata: visitMetadata(acted)},
	}, "", acted.At)
}

// touchColumns and personalColumns are in the order in which row appends values.
var (
	touchColumns = []string{
		"position", "touch_id", "account", "lead_id", "at", "kind", "source", "first", "utm_source", "utm_medium",
		"utm_campaign", "utm_id", "credential", "intake_id", "visitor", "erased", "stage", "value", "key_id",
		"revision",
	}
	personalColumns = []string{"position", "account", "metadata", "ip", "user_agent", "request_id", "changed"}
)

func (t *touches) row(e *projection.Event, a *touchRow, lead string, at time.Time) {
	r := &t.plain
	r.row(len(touchColumns))
	r.bigint(int64(e.Position))
	r.text(e.ID.String())
	r.text(e.Metadata.Account)
	r.text(lead)
	r.timestamp(at)
	r.text(a.kind)
	r.text(a.source)
	r.boolean(a.first)
	r.text(a.campaign.UTMSource)
	r.text(a.campaign.UTMMedium)
	r.text(a.campaign.UTMCampaign)
	r.text(a.campaign.UTMID)
	r.text(attribution.TouchCredential(e.Metadata.Credential))
	r.text(a.kept.IntakeID)
	r.text(a.visitor)
	r.boolean(e.Erased)
	r.text(account.FoldStage(a.stage))
	r.text(a.value)
	r.bigint(e.KeyID)
	r.bigint(int64(e.Revision))
	if e.Erased {
		return
	}
	p := &t.personal
	p.row(len(personalColumns))
	p.bigint(int64(e.Position))
	p.text(e.Metadata.Account)
	p.jsonBy(func(buffer []byte) ([]byte, error) { return event.AppendJSON(buffer, a.metadata) })
	p.text(a.ip)
	p.text(a.userAgent)
	p.text(e.Metadata.RequestID)
	p.jsonBy(func(buffer []byte) ([]byte, error) { return event.AppendJSON(buffer, a.changed) })
}

// change adds a stage or a value that no touch has.
func (t *touches) change(e *projection.Event, at time.Time, sets event.LeadFields) {
	if sets.Status != "" || sets.OpportunityValue != "" {
		t.changeRow(e, event.LeadID(e.Stream), at, account.FoldStage(sets.Status), sets.OpportunityValue)
	}
}

func (t *touches) changeRow(e *projection.Event, lead string, at time.Time, stage, value string) {
	t.changes.row(6)
	t.changes.bigint(int64(e.Position))
	t.changes.text(e.Metadata.Account)
	t.changes.text(lead)
	t.changes.timestamp(at)
	t.changes.text(stage)
	t.changes.text(value)
}

// setting adds the stages that count as a conversion.
func (t *touches) setting(e *projection.Event, configured *event.AccountConfigured) {
	t.settings.row(5)
	t.settings.bigint(int64(e.Position))
	t.settings.text(event.AccountID(e.Stream))
	t.settings.timestamp(e.At)
	stages, first := []string{}, ""
	for _, stage := range configured.WonStagesOrDefault() {
		stages = append(stages, account.FoldStage(stage))
	}
	if len(configured.Stages) > 0 {
		first = account.FoldStage(configured.Stages[0])
	}
	t.settings.jsonbBy(func(buffer []byte) ([]byte, error) { return event.AppendJSON(buffer, stages) })
	t.settings.text(first)
}

// costs adds what days of advertising cost.
func (t *touches) costs(e *projection.Event, set *event.SpendSet) {
	for i := range set.Rows {
		row := &set.Rows[i]
		t.spend.row(10)
		t.spend.bigint(int64(e.Position))
		t.spend.integer(int32(i))
		t.spend.text(e.Metadata.Account)
		t.spend.timestamp(e.At)
		t.spend.date(row.Day)
		t.spend.text(row.Source)
		t.spend.text(row.UTMSource)
		t.spend.text(row.UTMMedium)
		t.spend.text(row.UTMCampaign)
		t.spend.text(row.Amount)
	}
}

// visitMetadata returns the parameters of a visit's URL, the URL and the referrer, under their names in the metadata of
// a capture.
func visitMetadata(acted *event.VisitorActed) map[string]jsontext.Value {
	metadata := map[string]jsontext.Value{}
	put := func(name, value string) {
		quoted, err := jsontext.AppendQuote(nil, value)
		if err == nil && value != "" {
			metadata[name] = quoted
		}
	}
	for name, value := range lead.PageQuery(acted.URL) {
		put(name, value)
	}
	put("page_url", acted.URL)
	put("referrer", acted.Referrer)
	return metadata
}

func (t *touches) write(ctx context.Context, tx pgx.Tx) error {
	if err := t.plain.insert(ctx, tx, "touch", touchColumns...); err != nil {
		return err
	}
	if err := t.personal.insert(ctx, tx, "touch_personal", personalColumns...); err != nil {
		return err
	}
	if err := t.changes.insert(ctx, tx, "lead_change", "position", "account", "lead_id", "at",
		"stage", "value"); err != nil {
		return err
	}
	if err := t.settings.insert(ctx, tx, "won_stages", "position", "account", "at", "stages", "first"); err != nil {
		return err
	}
	if err := t.spend.insert(ctx, tx, "spend", "position", "ordinal", "account", "at", "day", "source", "utm_source",
		"utm_medium", "utm_campaign", "amount"); err != nil {
		return err
	}
	if err := t.erase(ctx, tx); err != nil {
		return err
	}
	return t.move(ctx, tx)
}

// sealedBy limits a condition on the rows of a visitor to those that the keys $3 sealed. $2 is whether all are
// forgotten.
const sealedBy = ` AND ($2 OR key_id = ANY ($3::bigint[]))`

// erase deletes the personal data of earlier touches: of those that the lead has, of those that came to it and that
// another lead has now, and of those that came to other leads before it left them. Only the first are erased.
func (t *touches) erase(ctx context.Context, tx pgx.Tx) (err error) {
	const gone = `
		WITH gone AS (UPDATE touch SET erased = true WHERE NOT erased AND %s RETURNING position)
		DELETE FROM touch_personal p USING gone WHERE p.position = gone.position`
	switch {
	case t.erased != nil:
		for _, id := range t.erased {
			if _, err := tx.Exec(ctx, fmt.Sprintf(gone, `position IN (`+schema.TouchesOf("", "$1")+`)`),
				id); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `
			DELETE FROM touch_personal WHERE position IN (SELECT position FROM touch WHERE lead_id = ANY ($1)
			  AND lead_id <> '')`, t.erased)
		for _, origin := range t.origins {
			if err == nil {
				_, err = tx.Exec(ctx, `
					DELETE FROM touch_personal WHERE position IN (
					       SELECT position FROM touch WHERE lead_id = $1 AND lead_id <> ''
					       AND revision < $2)`, origin.LeadID, origin.Before)
			}
		}
	case t.visitor != "":
		_, err = tx.Exec(ctx, fmt.Sprintf(gone, `kind = 'visit' AND visitor = $1`+sealedBy),
			t.visitor, len(t.forgotten.Keys) == 0, t.forgotten.KeyIDs())
	}
	return err
}

// move gives arrivals to another lead, and flags the first arrival from each source of both leads. A split also shows
// that neither lead is erased, although arrivals that cannot be read were taken for those of an erased lead.
func (t *touches) move(ctx context.Context, tx pgx.Tx) error {
	m := t.moved
	if m.into == "" {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO touch_owner (position, since, owner, account, begins)
		SELECT position, $2, $3, account, $4 AND position = min(position) OVER ()
		  FROM touch WHERE position IN (`+schema.TouchesOf("", "$1")+`) AND ($5 OR touch_id = ANY ($6))`,
		m.from, m.position, m.into, m.begins, m.joined, m.touches)
	if err != nil {
		return err
	}
	if m.joined { // of equal times the one of the surviving lead stays, as in lead.Evolve
		_, err = tx.Exec(ctx, `
			UPDATE touch SET first = false WHERE position IN (
			       SELECT position
			         FROM (SELECT position, row_number() OVER (
			                      PARTITION BY source
			                      ORDER BY at, position IN (SELECT position FROM touch_owner WHERE owner = $1
			                        AND since = $2)) AS rank
			                 FROM touch WHERE position IN (`+schema.TouchesOf("", "$1")+`) AND first) AS ranked
			        WHERE rank > 1)`, m.into, m.position)
		return err
	}
	for _, id := range []string{m.from, m.into} {
		_, err := tx.Exec(ctx, `
			UPDATE touch SET first = ranked.rank = 1, erased = false
			  FROM (SELECT position, row_number() OVER (PARTITION BY source ORDER BY at, position) AS rank
			          FROM touch WHERE position IN (`+schema.TouchesOf("", "$1")+`)) AS ranked
			 WHERE touch.position = ranked.position AND (first <> (ranked.rank = 1) OR erased)`, id)
		if err != nil {
			return err
		}
	}
	return nil
}
