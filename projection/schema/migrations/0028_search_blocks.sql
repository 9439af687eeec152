-- +goose Up

-- What a search leaves out: for some hundred leads in the order of their creation one row, which tells by a few bits what
-- cannot be found among them. It is made when there is time for it, in 30 bytes a lead, so a capture does not wait for it;
-- trigrams would cost each of them more than its row does.
CREATE TABLE views.lead_block (
    until   timestamptz NOT NULL,
    since   timestamptz NOT NULL,
    account text        COLLATE "C" NOT NULL,
    grams   bytea,
    CONSTRAINT lead_block_until PRIMARY KEY (account, until)
);
-- In the row, uncompressed: a bit is read where it stands. Two rows fill a page.
ALTER TABLE views.lead_block ALTER COLUMN grams SET STORAGE PLAIN;
CREATE INDEX lead_block_unknown ON views.lead_block (account) WHERE grams IS NULL;

COMMENT ON TABLE views.lead_block IS 'Leads of an account in the order of their creation, block by block, each from the end of the one before. Leads behind the last are in none yet.';
COMMENT ON COLUMN views.lead_block.since IS 'Of the first leads that are in it; -infinity in the first block.';
COMMENT ON COLUMN views.lead_block.until IS 'Of the first leads that are not.';
COMMENT ON COLUMN views.lead_block.grams IS 'A Bloom filter of these leads: each part of one to four bytes of what they are searched by sets a bit, and so do temperature, and temperature with source. NULL: one of them has changed, and it is to be made anew.';

-- The history of one source in the order of time, few as may have come from it. A new lead pays 2 µs and 110 bytes of WAL.
CREATE INDEX source_history_source ON views.source_history (account, source, first_seen_at, position);
