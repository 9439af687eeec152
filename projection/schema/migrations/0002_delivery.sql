-- +goose Up

-- Deliveries to webhook endpoints. They are no view: a row sets off a request to somebody else, and is never made twice.
-- Whoever drops the schema views to build it anew must find them there still, and this migration runs again.
CREATE SCHEMA IF NOT EXISTS delivery;

CREATE TABLE IF NOT EXISTS delivery.checkpoint (
    projector  text        COLLATE "C" NOT NULL,
    version    integer     NOT NULL,
    epoch      text        COLLATE "C" NOT NULL,
    position   bigint      NOT NULL CHECK (position >= 0),
    updated_at timestamptz NOT NULL,
    CONSTRAINT checkpoint_projector PRIMARY KEY (projector)
);

CREATE TABLE IF NOT EXISTS delivery.origin (
    epoch    text   COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT origin_epoch PRIMARY KEY (epoch)
);

COMMENT ON TABLE delivery.origin IS 'Where the log ended when deliveries began. What happened before is sent to nobody.';

CREATE TABLE IF NOT EXISTS delivery.endpoint (
    webhook_id      text        COLLATE "C" NOT NULL,
    account         text        COLLATE "C" NOT NULL,
    url             text        NOT NULL,
    events          text[]      NOT NULL,
    deleted         boolean     NOT NULL DEFAULT false,
    CONSTRAINT endpoint_id PRIMARY KEY (webhook_id)
);

CREATE INDEX IF NOT EXISTS endpoint_account ON delivery.endpoint (account) WHERE NOT deleted;

COMMENT ON TABLE delivery.endpoint IS 'Endpoints as of the checkpoint, for who gets what. Deleted ones stay while rows may wait for them.';

CREATE TABLE IF NOT EXISTS delivery.health (
    webhook_id      text        COLLATE "C" NOT NULL,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    CONSTRAINT health_id PRIMARY KEY (webhook_id)
);

COMMENT ON TABLE delivery.health IS 'How attempts at an endpoint went. Written by couriers, never by the fan-out.';

-- Where a later migration has put others in the place of these two, they are not made again.
-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('delivery.queue') IS NOT NULL THEN
        RETURN;
    END IF;

    CREATE TABLE IF NOT EXISTS delivery.delivery (
        seq         bigint      GENERATED ALWAYS AS IDENTITY,
        delivery_id text        COLLATE "C" NOT NULL,
        webhook_id  text        COLLATE "C" NOT NULL,
        event_id    text        COLLATE "C" NOT NULL,
        generation  integer     NOT NULL,
        type        text        COLLATE "C" NOT NULL,
        stream      text        COLLATE "C" NOT NULL,
        revision    bigint      NOT NULL,
        position    bigint      NOT NULL,
        renderer    integer     NOT NULL,
        state       text        COLLATE "C" NOT NULL DEFAULT 'queued',
        attempts    integer     NOT NULL DEFAULT 0,
        due_at      timestamptz NOT NULL DEFAULT now(),
        lease       integer,
        created_at  timestamptz NOT NULL DEFAULT now(),
        finished_at timestamptz,
        CONSTRAINT delivery_seq PRIMARY KEY (seq),
        CONSTRAINT delivery_once UNIQUE (webhook_id, event_id, generation),
        CONSTRAINT delivery_state CHECK (state IN ('queued', 'delivered', 'failed', 'cancelled'))
    );

    CREATE INDEX IF NOT EXISTS delivery_due ON delivery.delivery (webhook_id, due_at, seq) WHERE state = 'queued' AND lease IS NULL;
    CREATE INDEX IF NOT EXISTS delivery_leased ON delivery.delivery (lease) WHERE state = 'queued' AND lease IS NOT NULL;
    CREATE INDEX IF NOT EXISTS delivery_newest ON delivery.delivery (webhook_id, seq DESC);
    CREATE INDEX IF NOT EXISTS delivery_id ON delivery.delivery (delivery_id);

    COMMENT ON TABLE delivery.delivery IS 'One row for each event that an endpoint is to get, in the order of the log.';
    COMMENT ON COLUMN delivery.delivery.generation IS '0: live; each replay is the next.';
    COMMENT ON COLUMN delivery.delivery.type IS 'Public name, without version.';
    COMMENT ON COLUMN delivery.delivery.renderer IS 'Version of the code that makes the body out of the stream up to the revision.';
    COMMENT ON COLUMN delivery.delivery.lease IS 'The courier that has the row in hand: the key of an advisory lock that its session holds.';

    CREATE TABLE IF NOT EXISTS delivery.attempt (
        seq         bigint      NOT NULL,
        number      integer     NOT NULL,
        at          timestamptz NOT NULL,
        status      integer     NOT NULL,
        duration_ms integer     NOT NULL,
        response    text        NOT NULL,
        error       text        NOT NULL,
        CONSTRAINT attempt_number PRIMARY KEY (seq, number)
    );

    COMMENT ON COLUMN delivery.attempt.seq IS 'Of the delivery.';
    COMMENT ON COLUMN delivery.attempt.status IS '0: there was no answer.';
    COMMENT ON COLUMN delivery.attempt.response IS 'The first 1 KiB.';
END
$$;
-- +goose StatementEnd

CREATE SEQUENCE IF NOT EXISTS delivery.courier AS integer CYCLE;
