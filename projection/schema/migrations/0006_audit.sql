-- +goose Up

-- Both views are of another version from here on: leadlog replay builds them anew. Until then their rows stay as they are.
ALTER TABLE views.token ADD COLUMN last_used_at timestamptz;

COMMENT ON COLUMN views.token.last_used_at IS 'Of the latest sample, which is the first use of its minute.';

ALTER TABLE views.token_event
    ADD COLUMN digest text   NOT NULL DEFAULT '',
    ADD COLUMN leaf   bigint NOT NULL DEFAULT -1;

COMMENT ON COLUMN views.token_event.digest IS 'SHA-256 of all that the log holds of the event, in hexadecimal.';
COMMENT ON COLUMN views.token_event.leaf IS 'Place in the account''s tree, from 0; -1 in rows of before there was one.';

CREATE TABLE views.token_tree (
    account text   COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL,
    hash    bytea  NOT NULL,
    CONSTRAINT token_tree_ordinal PRIMARY KEY (account, ordinal)
);

COMMENT ON TABLE views.token_tree IS 'The Merkle tree over each account''s token events, as golang.org/x/mod/sumdb/tlog stores one.';
COMMENT ON COLUMN views.token_tree.ordinal IS 'A leaf, and behind it the subtrees that it completes.';
