-- +goose Up

-- What the owner of a webhook endpoint can do: switch it off, rotate its secret, send again. All but views.endpoint
-- survives the schema views and may run again.
ALTER TABLE views.endpoint
    ADD COLUMN disabled_reason text COLLATE "C",
    ADD COLUMN disabled_at     timestamptz;

COMMENT ON COLUMN views.endpoint.disabled_reason IS 'Null: it is enabled.';

CREATE TABLE IF NOT EXISTS secret.earlier (
    webhook_id text        COLLATE "C" NOT NULL,
    key_id     text        COLLATE "C" NOT NULL,
    sealed     bytea       NOT NULL,
    until      timestamptz NOT NULL
);

CREATE INDEX IF NOT EXISTS earlier_webhook ON secret.earlier (webhook_id, until DESC);

COMMENT ON TABLE secret.earlier IS 'Secrets that were replaced and still sign, beside the one in secret.webhook. Destroyed when their time is up.';

ALTER TABLE delivery.endpoint ADD COLUMN IF NOT EXISTS disabled boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN delivery.endpoint.disabled IS 'Nothing is queued for it, and what is queued is cancelled when its turn comes.';

ALTER TABLE delivery.health ADD COLUMN IF NOT EXISTS failing_since timestamptz;

COMMENT ON TABLE delivery.health IS 'How attempts at an endpoint went. Written by couriers.';
COMMENT ON COLUMN delivery.health.failing_since IS 'The first failure after the last success. The fan-out clears it when the endpoint is enabled or gets another URL.';

ALTER TABLE delivery.delivery ADD COLUMN IF NOT EXISTS retried bigint NOT NULL DEFAULT 0;

COMMENT ON COLUMN delivery.delivery.retried IS 'Position of the last request to retry that was carried out.';
COMMENT ON COLUMN delivery.delivery.delivery_id IS 'A function of endpoint, event and generation, so that these three are unique with it. Its time is that of the event, or of the request to replay it.';

CREATE TABLE IF NOT EXISTS delivery.replay (
    webhook_id   text        COLLATE "C" NOT NULL,
    generation   integer     NOT NULL,
    request_id   text        COLLATE "C" NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    events       text[]      NOT NULL,
    since        timestamptz NOT NULL,
    until        timestamptz NOT NULL,
    requested    bigint      NOT NULL,
    reached      bigint,
    queued       bigint      NOT NULL DEFAULT 0,
    finished_at  timestamptz,
    CONSTRAINT replay_generation PRIMARY KEY (webhook_id, generation)
);

CREATE INDEX IF NOT EXISTS replay_open ON delivery.replay (requested) WHERE finished_at IS NULL;

COMMENT ON TABLE delivery.replay IS 'Requests to send again what happened in a span of time, and how far each has come.';
COMMENT ON COLUMN delivery.replay.request_id IS 'The event that asked for it.';
COMMENT ON COLUMN delivery.replay.events IS 'What the endpoint asked for when the replay was requested.';
COMMENT ON COLUMN delivery.replay.requested IS 'Position of the request: what is behind it goes live.';
COMMENT ON COLUMN delivery.replay.reached IS 'Everything on the log up to this position is queued. Null: not begun.';
