package projection

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// TokenAudit keeps what happened to API tokens: who did it, from where, by which request.
type TokenAudit struct{}

// Name implements Projector.
func (TokenAudit) Name() string { return schema.TokenEvent }

// Version implements Projector.
func (TokenAudit) Version() int { return 1 }

// Tables implements Projector.
func (TokenAudit) Tables() []string { return []string{"token_event"} }

// Filter implements Projector.
func (TokenAudit) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.TokenPrefix}}
}

// What auditors see of an event. The hash of a token's value is never among it.
type (
	tokenCreatedRecord struct {
		Name          string `json:"name"`
		Prefix        string `json:"prefix"`
		ExpiresInDays int    `json:"expiresInDays"`
		ExpiresAt     string `json:"expiresAt"`
	}
	tokenRotatedRecord struct {
		Prefix            string `json:"prefix"`
		ExpiresAt         string `json:"expiresAt"`
		PreviousExpiresAt string `json:"previousExpiresAt"`
	}
	tokenDeletedRecord struct{}
)

// answerTime writes a time as all answers do.
func answerTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// auditRecord is what auditors see of an event's data, or nil when the event is none of theirs.
func auditRecord(data event.Data) any {
	switch d := data.(type) {
	case event.TokenCreated:
		return tokenCreatedRecord{d.Name, d.Prefix, d.Days, answerTime(d.ExpiresAt)}
	case event.TokenRotated:
		return tokenRotatedRecord{d.Prefix, answerTime(d.ExpiresAt), answerTime(d.PreviousExpiresAt)}
	case event.TokenDeleted:
		return tokenDeletedRecord{}
	}
	return nil
}

// Apply implements Projector.
func (TokenAudit) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	var positions []int64
	var eventIDs, tokenIDs, accounts, types, actors, ips, agents, requests []string
	var times []time.Time
	var records [][]byte
	for _, e := range batch {
		record := auditRecord(e.Data)
		if record == nil {
			continue
		}
		encoded, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("event at position %d: %w", e.Position, err)
		}
		positions, eventIDs = append(positions, int64(e.Position)), append(eventIDs, e.ID.String())
		tokenIDs, accounts = append(tokenIDs, event.TokenID(e.Stream)), append(accounts, e.Metadata.Account)
		types, times = append(types, event.PublicName(e.Type)), append(times, e.At)
		actors, requests = append(actors, e.Metadata.Actor), append(requests, e.Metadata.RequestID)
		ips, agents, records = append(ips, e.Metadata.IP), append(agents, e.Metadata.UserAgent), append(records, encoded)
	}
	if len(positions) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO token_event (position, event_id, token_id, account, type, at, actor, ip, user_agent, request_id, data)
		SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[],
		                     $8::text[], $9::text[], $10::text[], $11::json[])`,
		positions, eventIDs, tokenIDs, accounts, types, times, actors, ips, agents, requests, records)
	return err
}
