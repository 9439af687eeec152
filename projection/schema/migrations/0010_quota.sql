-- +goose Up

CREATE SCHEMA IF NOT EXISTS quota;

-- Not logged: after a crash every bucket is full, and no write to one waits for the disk.
CREATE UNLOGGED TABLE IF NOT EXISTS quota.bucket (
    key    text             COLLATE "C" NOT NULL,
    tokens double precision NOT NULL,
    at     timestamptz      NOT NULL,
    CONSTRAINT bucket_key PRIMARY KEY (key)
) WITH (fillfactor = 50);

COMMENT ON TABLE quota.bucket IS 'The token buckets that all processes share, which take a handful at a time.';
COMMENT ON COLUMN quota.bucket.tokens IS 'How many there were at that time.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION quota.lend(of text, rate double precision, burst double precision, want integer,
    OUT granted integer, OUT remaining double precision)
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
DECLARE
    moment timestamptz;
BEGIN
    INSERT INTO quota.bucket (key, tokens, at) VALUES (of, burst, clock_timestamp()) ON CONFLICT (key) DO NOTHING;
    SELECT b.tokens, b.at INTO remaining, moment FROM quota.bucket b WHERE b.key = of FOR UPDATE;
    -- The time is taken under the row's lock, and a clock that was set back adds nothing.
    remaining := least(burst, remaining + rate * greatest(0, extract(epoch FROM clock_timestamp() - moment)::double precision));
    granted := greatest(0, least(want, floor(remaining)::integer));
    remaining := remaining - granted;
    UPDATE quota.bucket b SET tokens = remaining, at = clock_timestamp() WHERE b.key = of;
END
$$;
-- +goose StatementEnd
