-- +goose Up

-- What lists ask beside a source or a stage stands in the indexes of these too, so that a search within them reads no lead that it
-- does not find. A new lead pays 3 µs and 290 bytes of WAL for both; one whose temperature changes touches its indexes again.
DROP INDEX views.lead_newest;
DROP INDEX views.lead_source;
DROP INDEX views.lead_status;
CREATE INDEX lead_newest ON views.lead (account, created_at) INCLUDE (temperature, search);
CREATE INDEX lead_source ON views.lead (account, source, created_at) INCLUDE (temperature, status, search);
CREATE INDEX lead_status ON views.lead (account, status, created_at) INCLUDE (temperature, source, search);

-- What happened to tokens, of one kind or in a span of time, without reading all of it. Few rows ever come.
CREATE INDEX token_event_type ON views.token_event (account, type, position);
CREATE INDEX token_event_at ON views.token_event (account, at);
