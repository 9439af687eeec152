package view

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Trail has a row for each act in an account, and for each recorded access to personal data. A changed setting is shown
// with its old and its new value, which the view compares itself.
type Trail struct{}

func (Trail) Name() string     { return schema.Trail }
func (Trail) Version() int     { return 2 }
func (Trail) Tables() []string { return []string{"trail", "trail_setting"} }

// Filter also names the streams: a view that selects events of any stream makes the process read and decode the whole
// log, two thirds of which are claims.
func (Trail) Filter() eventstore.Filter {
	return eventstore.Filter{Types: event.TrailTypes(), StreamPrefixes: []string{
		event.LeadPrefix, event.TokenPrefix, event.TokenUsePrefix, event.WebhookPrefix, event.AccountPrefix,
		event.IntakePrefix, event.RecordPrefix, event.SpendPrefix,
	}}
}

func (Trail) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	types := event.TrailTypes()
	acts := slices.DeleteFunc(slices.Clone(batch), func(e projection.Event) bool {
		return !slices.Contains(types, e.Type)
	})
	if len(acts) == 0 {
		return nil
	}
	before, err := loadSettings(ctx, tx, acts)
	if err != nil {
		return err
	}
	var trail rows
	for _, e := range acts {
		data, err := before.shown(e)
		if err != nil {
			return fmt.Errorf("event at position %d: %w", e.Position, err)
		}
		m := e.Metadata
		if isLead(e.Stream) { // sealed with the person's key, and deleted with it
			m.IP, m.UserAgent, m.RequestID = "", "", m.Correlation
		}
		trail.row(11)
		trail.bigint(int64(e.Position))
		trail.text(e.ID.String())
		trail.text(m.Account)
		trail.text(event.TrailName(e.Type))
		trail.timestamp(e.At)
		trail.text(m.Actor)
		trail.text(trailSubject(e))
		trail.text(m.IP)
		trail.text(m.UserAgent)
		trail.text(m.RequestID)
		trail.json(data)
	}
	err = trail.insert(ctx, tx, "trail", "position", "event_id", "account", "type", "at", "actor", "subject", "ip",
		"user_agent", "request_id", "data")
	if err != nil {
		return err
	}
	return before.save(ctx, tx)
}

func isLead(stream string) bool { return event.LeadID(stream) != stream }

// trailSubject returns the id of the subject of an act.
func trailSubject(e projection.Event) string {
	switch d := e.Data.(type) {
	case event.DataRevealed:
		return d.LeadID + d.ArrivalID
	case event.DataExported:
		return d.ExportID
	case event.DataSearched:
		return d.What
	case event.SpendSet:
		return e.Metadata.Account
	}
	for _, id := range []func(string) string{
		event.TokenID, event.WebhookID, event.IntakeID, event.AccountID, event.LeadID, event.RecordID,
	} {
		if found := id(e.Stream); found != e.Stream {
			return found
		}
	}
	return ""
}

// settings holds the settings of streams, by stream. Those that changed are saved.
type settings struct {
	now     map[string]jsontext.Value
	changed map[string]string // accounts of the changed streams
}

// setting reports whether a fact has all settings of its stream.
func setting(data event.Data) bool {
	switch data.(type) {
	case event.AccountConfigured, event.WebhookRegistered, event.WebhookUpdated,
		event.IntakeCreated, event.IntakeChanged:
		return true
	}
	return false
}

func loadSettings(ctx context.Context, tx pgx.Tx, acts []projection.Event) (settings, error) {
	s := settings{map[string]jsontext.Value{}, map[string]string{}}
	var streams []string
	for _, e := range acts {
		if setting(e.Data) {
			streams = append(streams, e.Stream)
		}
	}
	if len(streams) == 0 {
		return s, nil
	}
	found, err := tx.Query(ctx, `SELECT stream, settings FROM trail_setting WHERE stream = ANY ($1)`, streams)
	if err != nil {
		return s, err
	}
	var stream string
	var value []byte
	_, err = pgx.ForEachRow(found, []any{&stream, &value}, func() error {
		s.now[stream] = bytes.Clone(value)
		return nil
	})
	return s, err
}

func (s settings) save(ctx context.Context, tx pgx.Tx) error {
	var streams, accounts, values []string
	for stream, account := range s.changed {
		streams, accounts, values = append(streams, stream), append(accounts, account),
			append(values, string(s.now[stream]))
	}
	if len(streams) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO trail_setting (stream, account, settings)
		SELECT stream, account, settings::json FROM unnest($1::text[], $2::text[], $3::text[]) AS new (stream, account,
		  settings)
		ON CONFLICT (stream) DO UPDATE SET settings = excluded.settings`, streams, accounts, values)
	return err
}

// shown returns the data of an event for the trail.
func (s settings) shown(e projection.Event) (jsontext.Value, error) {
	switch d := e.Data.(type) {
	case event.LeadReleased: // without the value
		return json.Marshal(map[string]string{"field": d.Field})
	case event.LeadConsented: // without the words
		return json.Marshal(d.Purposes, json.Deterministic(true))
	case event.LeadJoined:
		return json.Marshal(map[string]string{"from": d.From})
	case event.LeadSplit: // without the lead
		return json.Marshal(splitShown{d.From, d.Into, d.Undone, d.Touches}, json.Deterministic(true))
	case event.SpendSet: // without the rows, of which there may be many
		return json.Marshal(newSpendShown(d), json.Deterministic(true))
	case event.LeadErased:
		// without the claims and the visitors
		return json.Marshal(map[string][]string{"leads": append([]string{}, d.Leads...)})
	}
	if audit.IsLeaf(e.Type) {
		return audit.Shown(e.Data)
	}
	_, data, err := event.Encode(e.Data)
	if err != nil || !setting(e.Data) {
		return data, err
	}
	var now, old map[string]jsontext.Value
	if err := json.Unmarshal(data, &now); err != nil {
		return nil, err
	}
	if configured, is := e.Data.(event.AccountConfigured); is {
		if err := withDefaults(now, configured); err != nil {
			return nil, err
		}
	}
	var named []string // the changed settings, and the changed secrets, which are not on the log
	if changed, has := now["changed"]; has {
		if err := json.Unmarshal(changed, &named); err != nil {
			return nil, err
		}
	}
	delete(now, "changed")
	delete(now, "slot") // internal
	before, known := s.now[e.Stream]
	if s.now[e.Stream], err = json.Marshal(now, json.Deterministic(true)); err != nil {
		return nil, err
	}
	s.changed[e.Stream] = e.Metadata.Account
	if _, configured := e.Data.(event.AccountConfigured); !known && !configured {
		return s.now[e.Stream], nil
	}
	if known {
		if err := json.Unmarshal(before, &old); err != nil {
			return nil, err
		}
	}
	return changes(old, now, named)
}

// withDefaults sets the settings that an account has by default. The log has a default only if it was given, which is
// no change.
func withDefaults(now map[string]jsontext.Value, configured event.AccountConfigured) error {
	for name, value := range map[string]any{
		"tokensSeeLeads": configured.TokensSeeLeadsOrDefault(), "visitorDays": configured.VisitorDaysOrDefault(),
		"quarantine": configured.Quarantine, "quarantineDays": configured.QuarantineDaysOrDefault(),
		"wonStages": configured.WonStagesOrDefault(), "storagePerDay": configured.StoragePerDayOrDefault(),
		"sharedAfter": configured.SharedAfterOrDefault(), "retentionDays": configured.RetentionDays,
		"keepStages":      configured.KeepStagesOrDefault(),
		"maskInConsole":   configured.MaskInConsoleOrDefault(),
		"ignoredContacts": append([]string{}, configured.IgnoredContacts...),
	} {
		encoded, err := json.Marshal(value)
		if err != nil {
			return err
		}
		now[name] = encoded
	}
	return nil
}

// splitShown is what the trail has of a split.
type splitShown struct {
	From    string   `json:"from,omitzero"`
	Into    string   `json:"into,omitzero"`
	Undone  bool     `json:"undone,omitzero"`
	Touches []string `json:"touches"`
}

// spendShown is what the trail has of amounts that were set.
type spendShown struct {
	Rows  int    `json:"rows"`
	Since string `json:"since"` // the first day
	Until string `json:"until"` // the last day
}

func newSpendShown(set event.SpendSet) spendShown {
	shown := spendShown{Rows: len(set.Rows)}
	for _, row := range set.Rows {
		if shown.Since == "" || row.Day < shown.Since {
			shown.Since = row.Day
		}
		shown.Until = max(shown.Until, row.Day)
	}
	return shown
}

// hidden is shown instead of a secret.
var hidden = jsontext.Value(`"***"`)

// change is a changed setting.
type change struct {
	Old jsontext.Value `json:"old"`
	New jsontext.Value `json:"new"`
}

// changes compares settings. A named setting that is in neither version is a secret, and no value is shown.
func changes(old, now map[string]jsontext.Value, named []string) (jsontext.Value, error) {
	found := map[string]change{}
	for name, value := range now {
		if !bytes.Equal(old[name], value) {
			found[name] = change{orNull(old[name]), value}
		}
	}
	for name, value := range old {
		if _, has := now[name]; !has {
			found[name] = change{value, orNull(nil)}
		}
	}
	for _, name := range named {
		_, compared := found[name]
		_, was := old[name]
		_, is := now[name]
		if !compared && !was && !is {
			found[name] = change{hidden, hidden}
		}
	}
	return json.Marshal(found, json.Deterministic(true))
}

func orNull(value jsontext.Value) jsontext.Value {
	if value == nil {
		return jsontext.Value("null")
	}
	return value
}
