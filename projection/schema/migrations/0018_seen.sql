-- +goose Up

-- The event that a projector applied last. When the log does not have it there any more, it is another log under the same
-- name, as after the restore of a backup, and whatever was written to it since would be skipped.
ALTER TABLE views.checkpoint
    ADD COLUMN seen_stream text COLLATE "C", ADD COLUMN seen_revision bigint, ADD COLUMN seen_event text COLLATE "C";

COMMENT ON COLUMN views.checkpoint.seen_event IS 'The event that was applied last, at seen_revision of seen_stream; NULL: none yet, or unknown.';

ALTER TABLE delivery.checkpoint
    ADD COLUMN IF NOT EXISTS seen_stream text COLLATE "C", ADD COLUMN IF NOT EXISTS seen_revision bigint,
    ADD COLUMN IF NOT EXISTS seen_event text COLLATE "C";
