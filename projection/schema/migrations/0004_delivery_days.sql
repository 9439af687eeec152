-- +goose Up

-- The record of deliveries and attempts in partitions of a day each, which are thrown away whole, and beside it a queue
-- that has nothing but what is still to be sent. A delivery's id begins with its time, so it says its day: a key that
-- holds in one partition holds in all. Like all of the schema delivery, this survives the schema views and may run again.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION delivery.first_id(day date) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', 1 + ((at >> (5 * digit)) & 31)::integer, 1), '' ORDER BY digit DESC)
      FROM (SELECT (extract(epoch FROM day::timestamp) * 1000)::bigint) AS milliseconds (at), generate_series(0, 9) AS digit
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION delivery.first_id IS 'What every ULID of the day (UTC) or a later one sorts after, in collation "C".';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION delivery.open_day(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    suffix CONSTANT text := to_char(day, '_YYYYMMDD');
    kind text;
BEGIN
    IF to_regclass('delivery.attempt' || suffix) IS NOT NULL THEN
        RETURN; -- made last, so both are there
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('leadlog delivery days', 0));
    FOREACH kind IN ARRAY ARRAY['delivery', 'attempt'] LOOP
        CONTINUE WHEN to_regclass('delivery.' || kind || suffix) IS NOT NULL;
        -- Room on the page for the row's next version. Attached, and not made as a partition: nobody waits for that.
        EXECUTE format('CREATE TABLE delivery.%I (LIKE delivery.%I INCLUDING ALL) WITH (fillfactor = 80)', kind || suffix, kind);
        EXECUTE format('ALTER TABLE delivery.%I ATTACH PARTITION delivery.%I FOR VALUES FROM (%L) TO (%L)',
                       kind, kind || suffix, delivery.first_id(day), delivery.first_id(day + 1));
    END LOOP;
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION delivery.open_day IS 'Makes the partitions of a day (UTC), unless they are there.';

-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('delivery.queue') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE TEMPORARY TABLE earlier_delivery ON COMMIT DROP AS SELECT * FROM delivery.delivery;
    CREATE TEMPORARY TABLE earlier_attempt ON COMMIT DROP AS SELECT * FROM delivery.attempt;
    DROP TABLE delivery.delivery, delivery.attempt;

    CREATE TABLE delivery.delivery (
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
        created_at  timestamptz NOT NULL DEFAULT now(),
        finished_at timestamptz,
        CONSTRAINT delivery_id PRIMARY KEY (delivery_id),
        CONSTRAINT delivery_state CHECK (state IN ('queued', 'delivered', 'failed', 'cancelled'))
    ) PARTITION BY RANGE (delivery_id);

    CREATE INDEX delivery_newest ON delivery.delivery (webhook_id, delivery_id DESC);

    CREATE TABLE delivery.attempt (
        delivery_id text        COLLATE "C" NOT NULL,
        at          timestamptz NOT NULL,
        status      integer     NOT NULL,
        duration_ms integer     NOT NULL,
        response    text        NOT NULL,
        error       text        NOT NULL,
        CONSTRAINT attempt_at PRIMARY KEY (delivery_id, at)
    ) PARTITION BY RANGE (delivery_id);

    -- A lease is changed in place: no index has it, and the pages have room.
    CREATE TABLE delivery.queue (
        delivery_id text        COLLATE "C" NOT NULL,
        webhook_id  text        COLLATE "C" NOT NULL,
        type        text        COLLATE "C" NOT NULL,
        stream      text        COLLATE "C" NOT NULL,
        revision    bigint      NOT NULL,
        position    bigint      NOT NULL,
        renderer    integer     NOT NULL,
        attempts    integer     NOT NULL DEFAULT 0,
        due_at      timestamptz NOT NULL DEFAULT now(),
        lease       integer,
        CONSTRAINT queue_id PRIMARY KEY (delivery_id)
    ) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

    CREATE INDEX queue_due ON delivery.queue (webhook_id, due_at, position);

    CREATE TABLE delivery.session (
        id integer NOT NULL,
        CONSTRAINT session_id PRIMARY KEY (id)
    );

    COMMENT ON TABLE delivery.delivery IS 'One row for each event that an endpoint is to get, or got.';
    COMMENT ON COLUMN delivery.delivery.delivery_id IS 'A function of endpoint, event and generation, so that these three are unique with it. Its time is that of the event.';
    COMMENT ON COLUMN delivery.delivery.generation IS '0: live; each replay is the next.';
    COMMENT ON COLUMN delivery.delivery.type IS 'Public name, without version.';
    COMMENT ON COLUMN delivery.delivery.renderer IS 'Version of the code that makes the body out of the stream up to the revision.';
    COMMENT ON COLUMN delivery.delivery.state IS 'queued: there is a row in the queue.';
    COMMENT ON COLUMN delivery.attempt.status IS '0: there was no answer.';
    COMMENT ON COLUMN delivery.attempt.response IS 'The first 1 KiB.';
    COMMENT ON TABLE delivery.queue IS 'What is still to be sent. A row goes when its delivery is finished.';
    COMMENT ON COLUMN delivery.queue.attempts IS 'Made so far, which is the place on the schedule.';
    COMMENT ON COLUMN delivery.queue.lease IS 'The session of the courier that has the row in hand.';
    COMMENT ON TABLE delivery.session IS 'Sessions that may hold leases. One that has gone holds no advisory lock on its id.';

    PERFORM delivery.open_day(day) FROM (
        SELECT DISTINCT (to_timestamp((
                   SELECT sum((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(delivery_id, digit, 1)) - 1)::bigint << (5 * (10 - digit)))
                     FROM generate_series(1, 10) AS digit) / 1000.0) AT TIME ZONE 'UTC')::date
          FROM earlier_delivery) AS days (day);
    INSERT INTO delivery.delivery
    SELECT delivery_id, webhook_id, event_id, generation, type, stream, revision, position, renderer, state, created_at, finished_at
      FROM earlier_delivery;
    INSERT INTO delivery.attempt
    SELECT delivery_id, at, status, duration_ms, response, error FROM earlier_attempt JOIN earlier_delivery USING (seq);
    INSERT INTO delivery.queue
    SELECT delivery_id, webhook_id, type, stream, revision, position, renderer, attempts, due_at FROM earlier_delivery WHERE state = 'queued';
END
$$;
-- +goose StatementEnd

COMMENT ON TABLE delivery.origin IS 'Up to where nothing is queued from the log any more: where it ended when deliveries began, later where the fan-out was when days were thrown away.';
