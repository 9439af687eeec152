-- +goose Up

ALTER TABLE views.token ADD COLUMN announced_at timestamptz;

COMMENT ON COLUMN views.token.announced_at IS 'When it was said that the token ends; NULL: not of this end.';

CREATE INDEX token_unannounced ON views.token (expires_at) WHERE deleted_at IS NULL AND announced_at IS NULL;
