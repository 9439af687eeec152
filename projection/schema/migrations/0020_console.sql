-- +goose Up

-- The view source_day is of another version from here on: leadlog replay builds it anew.
ALTER TABLE views.source_day ADD COLUMN lines bigint NOT NULL DEFAULT 0;

COMMENT ON COLUMN views.source_day.lines IS 'Those of all these arrivals that were lines of a batch or of a file.';

-- What an account's endpoints were to get on a day, counted as it is queued: to count the deliveries of a month takes longer
-- the more there are.
CREATE TABLE IF NOT EXISTS delivery.account_day (
    account text   COLLATE "C" NOT NULL,
    day     date   NOT NULL,
    queued  bigint NOT NULL,
    CONSTRAINT account_day_key PRIMARY KEY (account, day)
) WITH (fillfactor = 50);

COMMENT ON TABLE delivery.account_day IS 'How many deliveries of a day (UTC) an account''s endpoints had, those of forgotten persons too.';

INSERT INTO delivery.account_day (account, day, queued)
SELECT account, day, count(*)
  FROM (SELECT current_date + n, delivery.first_id(current_date + n), delivery.first_id(current_date + n + 1)
          FROM generate_series(-31, 1) AS n) AS days (day, first, next)
  JOIN delivery.delivery ON delivery_id >= first AND delivery_id < next
  JOIN delivery.endpoint USING (webhook_id)
 GROUP BY account, day
    ON CONFLICT DO NOTHING;

-- What leads that are won are worth, in an index of these alone: a report of a year is read out of it, and a capture that
-- wins nothing, which is nearly every one, does not touch it.
ALTER TABLE views.lead ADD COLUMN won numeric
    GENERATED ALWAYS AS (CASE WHEN status = 'won' THEN nullif(state ->> 'OpportunityValue', '')::numeric END) STORED;
CREATE INDEX lead_won ON views.lead (account, created_at) INCLUDE (source, won) WHERE status = 'won';

COMMENT ON COLUMN views.lead.won IS 'Value of the opportunity, if it is won.';

-- In the order of time, so that the history of some days is found without reading what came before. The position tells
-- apart what was first seen in one millisecond.
CREATE INDEX source_history_newest ON views.source_history (account, first_seen_at, position);
DROP INDEX views.source_history_account;
