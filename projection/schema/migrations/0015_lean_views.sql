-- +goose Up

-- Indexes that cost less with each row. New leads are the newest: in ascending order they go to the end of their
-- account's part, where pages fill up; lists read backwards. The id that breaks ties is looked up in the row. Where
-- the account would be the same in all rows of a large one, what tells them apart comes first.
DROP INDEX views.lead_newest, views.lead_status, views.lead_source, views.lead_phone, views.lead_email;
CREATE INDEX lead_newest ON views.lead (account, created_at);
CREATE INDEX lead_status ON views.lead (account, status, created_at);
CREATE INDEX lead_source ON views.lead (account, source, created_at);
CREATE INDEX lead_phone ON views.lead (phone, account) WHERE phone <> '';
CREATE INDEX lead_email ON views.lead (email, account) WHERE email <> '';

-- Most changes touch no column that an index has: with room on the page they touch no index either.
ALTER TABLE views.lead SET (fillfactor = 85);
ALTER TABLE views.source_history SET (fillfactor = 90);

-- The view lead is of another version from here on: leadlog replay builds it anew. Until then its rows stay as they are.
COMMENT ON COLUMN views.lead.state IS 'The whole lead but for its sources, without what is empty. Not jsonb, which writes numbers its own way: what a caller sent is shown as it was sent.';
