-- +goose Up

-- What the report on sources counts. A row a day keeps it small, however many arrivals there are.
CREATE TABLE views.source_day (
    account text   COLLATE "C" NOT NULL,
    day     date   NOT NULL,
    source  text   COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    merged  bigint NOT NULL,
    refused bigint NOT NULL,
    CONSTRAINT source_day_key PRIMARY KEY (account, day, source)
);

COMMENT ON TABLE views.source_day IS 'What became of the arrivals of a day (UTC), by the source that each came from.';
COMMENT ON COLUMN views.source_day.created IS 'Arrivals that opened a lead: first touches.';
COMMENT ON COLUMN views.source_day.merged IS 'Arrivals that merged into a lead: later touches.';
COMMENT ON COLUMN views.source_day.refused IS 'Arrivals that were answered with a conflict.';

-- The history of all of an account's leads, in the order of the log.
CREATE INDEX source_history_account ON views.source_history (account, position);
