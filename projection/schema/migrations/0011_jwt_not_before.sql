-- +goose Up

ALTER TABLE views.account ADD COLUMN jwt_not_before timestamptz;

COMMENT ON COLUMN views.account.jwt_not_before IS 'JWTs issued before are refused; NULL: none is for its age.';
