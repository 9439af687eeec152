-- +goose Up

CREATE TABLE log.event (
    position    bigint      NOT NULL CHECK (position > 0),
    recorded_at timestamptz NOT NULL,
    revision    bigint      NOT NULL CHECK (revision >= 0),
    event_id    uuid        NOT NULL,
    stream      text        COLLATE "C" NOT NULL,
    type        text        COLLATE "C" NOT NULL,
    data        bytea       NOT NULL,
    metadata    bytea       NOT NULL,
    CONSTRAINT event_position PRIMARY KEY (position),
    CONSTRAINT event_stream_revision UNIQUE (stream, revision)
);

COMMENT ON TABLE log.event IS 'The log. Written by log.append only: rows inserted by other means break the order of positions.';
COMMENT ON COLUMN log.event.position IS 'Number in the whole log, from 1, without gaps, in the order of commits.';
COMMENT ON COLUMN log.event.recorded_at IS 'When it happened, by the clock of the process that recorded it.';
COMMENT ON COLUMN log.event.revision IS 'Number in the stream, from 0, without gaps.';
COMMENT ON COLUMN log.event.event_id IS 'The event''s ULID, as 16 bytes.';
COMMENT ON COLUMN log.event.data IS 'JSON, byte for byte as written; log.event_readable shows it.';

-- A checkpoint names the epoch it was taken in, so that it is not used on another log.
CREATE TABLE log.epoch (
    id         uuid        NOT NULL DEFAULT gen_random_uuid(),
    started_at timestamptz NOT NULL DEFAULT now(),
    single     boolean     NOT NULL DEFAULT true CHECK (single),
    CONSTRAINT epoch_single PRIMARY KEY (single)
);
INSERT INTO log.epoch DEFAULT VALUES;

-- One transaction at a time appends. This is no advisory lock, because every role that may connect can take those. Locking the table
-- in this mode requires UPDATE, which readers do not have, and it excludes nothing that readers may do. Of the modes that exclude
-- themselves it is the cheapest: it writes nothing, not even to the write-ahead log, and no other session's locks are searched.
CREATE TABLE log.append_lock ();
COMMENT ON TABLE log.append_lock IS 'Has no rows. Who appends locks it.';

-- Keys of persons, by stream. The personal data on a stream is sealed with its key, so that deleting the key erases the person
-- everywhere. In a schema of its own, so that it has an owner of its own, and is left out of one backup and kept in another:
-- deploy/docs/forgetting.md.
--
-- The migrations of the views create the same three tables, for a log that is in EventStoreDB. Either may be created first.
CREATE SCHEMA IF NOT EXISTS person;
CREATE TABLE IF NOT EXISTS person.key (
    stream    text   COLLATE "C" NOT NULL,
    id        bigint NOT NULL,
    sealed_by text   COLLATE "C" NOT NULL,
    sealed    bytea  NOT NULL,
    CONSTRAINT key_id PRIMARY KEY (stream, id)
);
COMMENT ON TABLE person.key IS 'What the personal part of each stream''s events is sealed with, AES-256-GCM. Deleting a row erases a person for good.';
COMMENT ON COLUMN person.key.id IS 'Random. A stream may have several: two processes may create one each at the same time.';
COMMENT ON COLUMN person.key.sealed_by IS 'The key that seals this one: first 8 hex digits of that key''s SHA-256.';
COMMENT ON COLUMN person.key.sealed IS 'Nonce of 12 bytes, then the sealed key and its tag.';

CREATE TABLE IF NOT EXISTS person.content (
    stream  text   COLLATE "C" NOT NULL,
    key_id  bigint NOT NULL,
    hash    bytea  NOT NULL,
    sealed  bytea  NOT NULL,
    pending timestamptz,
    CONSTRAINT content_hash PRIMARY KEY (stream, key_id, hash),
    CONSTRAINT content_key FOREIGN KEY (stream, key_id) REFERENCES person.key ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS content_pending ON person.content (pending) WHERE pending IS NOT NULL;
ALTER TABLE person.content ALTER COLUMN sealed SET STORAGE EXTERNAL; -- it cannot be compressed
COMMENT ON TABLE person.content IS 'Large members of events, the bodies of posts, sealed with the key of their stream. They go with the key, and give back their space.';
COMMENT ON COLUMN person.content.hash IS 'SHA-256 of sealed. The event on the log has it, too.';
COMMENT ON COLUMN person.content.pending IS 'When the content was stored, if that was before its event. Null: the event is on the log.';

CREATE TABLE IF NOT EXISTS person.destroyed (
    stream text        COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    tx     xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX IF NOT EXISTS destroyed_tx ON person.destroyed (tx);
CREATE INDEX IF NOT EXISTS destroyed_at ON person.destroyed (at);
COMMENT ON TABLE person.destroyed IS 'Streams whose keys were destroyed in the last hour, for processes that have them in memory. A notification would show them to every role.';

-- log.await_standbys makes a transaction that stores nothing wait for the synchronous standbys when it commits, if events are
-- visible to it after the position up to which they are known to be there. PostgreSQL waits only for what has written WAL.
CREATE FUNCTION log.await_standbys(head bigint, replicated bigint) RETURNS void
LANGUAGE sql
AS $$
    SELECT pg_logical_emit_message(true, 'leadlog', '')
     WHERE head > replicated AND current_setting('synchronous_standby_names') <> ''
$$;

-- log.append writes a batch: the appends of many callers, each stored completely or not at all. It is the only writer. Every
-- comparison uses the state before the batch, so no two appends of a batch may touch a stream that one of them writes. The
-- caller ensures that. An append consists of writes, and a write expects something of its stream. Numbers of things count from 1.
--
--   x_stream        per expectation: a stream,
--   x_expect        the revision that it must be at (-1 no stream, -2 any),
--   x_first         and the id of the first event to be written, null for a check
--   w_append        per write: its append
--   w_expectation   and its expectation
--   e_write         per event: its write,
--   e_offset        its number in the write, from 0,
--   e_*             and the columns of log.event; e_metadata is a number in
--   metadata        the distinct values
--   k_write         per key of a person: the write to its stream
--   k_*             and the columns of person.key
--   c_write         per content of an event: the write to its stream
--   c_*             and the columns of person.content
--   replicated      the position up to which the caller knows the log to be on the synchronous standbys
--   presume_new     whether to insert before looking whether streams exist that are expected not to
--
--   head            position of the newest event before the batch. Appends that are not refused are stored in their order
--   revisions       per expectation: the stream's last revision before the batch, -1 without events
--   refused         the appends that are not stored: an expectation does not hold, or
--   stored          the position of the append's last event, when the append was stored before; else 0
--
-- A refused append stores no key. Nor does one that was stored before and is sent again: its key was stored with it, unless the
-- person was erased since, and an erased key must not come back. Content is stored only while its key exists.
--
-- The lock comes first, and each statement after it sees everything committed before the lock was granted. That requires
-- READ COMMITTED and a transaction that holds nothing else. So positions have no gaps and grow in commit order.
--
-- The plans must not scan a table that was small when they were made. The session ensures that, once, by plan_cache_mode =
-- force_generic_plan and enable_seqscan, enable_bitmapscan and jit off. As settings of the function they would be set and reset
-- with each call.
--
-- The first attempt presumes that streams do not exist which are expected not to and get events: searching for them takes a
-- fifth of the function's time. If one exists after all, the constraint event_stream_revision detects
-- it, the inserts are rolled back, and the second attempt looks up all.
--
-- Arrays are unnested in select lists, whose rows come in the order of the arrays.

-- +goose StatementBegin
CREATE FUNCTION log.append(
    x_stream text[], x_expect bigint[], x_first uuid[],
    w_append int[], w_expectation int[],
    e_write int[], e_offset int[], e_id uuid[], e_at timestamptz[], e_type text[], e_data bytea[], e_metadata int[],
    metadata bytea[],
    k_write int[], k_id bigint[], k_sealed_by text[], k_sealed bytea[],
    c_write int[], c_key_id bigint[], c_hash bytea[], c_sealed bytea[],
    replicated bigint, presume_new boolean,
    OUT head bigint, OUT revisions bigint[], OUT refused int[], OUT stored bigint[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    base   bigint[]; -- per expectation: the revision that its events follow
    number bigint[]; -- per event, when an append is refused: its number among the events that are stored
BEGIN
    LOCK TABLE log.append_lock IN SHARE UPDATE EXCLUSIVE MODE;

    FOR attempt IN CASE WHEN presume_new THEN 1 ELSE 2 END .. 2 LOOP
        SELECT coalesce((SELECT l.position FROM log.event l ORDER BY l.position DESC LIMIT 1), 0),
               ARRAY(SELECT CASE WHEN attempt = 1 AND x.expect = -1 AND x.first IS NOT NULL THEN -1 ELSE coalesce((
                            SELECT l.revision FROM log.event l
                             WHERE l.stream = x.stream COLLATE "C"
                             ORDER BY l.revision DESC LIMIT 1), -1) END
                       FROM (SELECT unnest(x_stream) AS stream, unnest(x_expect) AS expect, unnest(x_first) AS first) AS x)
          INTO head, revisions;

        -- "Any" means the stream's last revision or, when the event is stored already, the revision before it. The search is
        -- bounded to the newest thousand events of the stream.
        base := x_expect;
        IF -2 = ANY (x_expect) THEN
            base := ARRAY(
                SELECT CASE WHEN x.expect <> -2 THEN x.expect ELSE coalesce((
                       SELECT l.revision - 1 FROM log.event l
                        WHERE l.stream = x.stream COLLATE "C" AND l.revision > x.revision - 1000 AND l.event_id = x.first
                        ORDER BY l.revision LIMIT 1), x.revision) END
                  FROM (SELECT unnest(x_stream) AS stream, unnest(x_expect) AS expect, unnest(x_first) AS first,
                               unnest(revisions) AS revision) AS x);
        END IF;

        IF revisions <> base THEN
            CONTINUE WHEN attempt = 1;
            refused := ARRAY(
                SELECT DISTINCT w.append
                  FROM (SELECT unnest(w_append) AS append, unnest(w_expectation) AS expectation) AS w
                 WHERE revisions[w.expectation] <> base[w.expectation]
                 ORDER BY w.append);
            number := ARRAY(
                SELECT count(*) FILTER (WHERE w_append[e.write] <> ALL (refused)) OVER (ROWS UNBOUNDED PRECEDING)
                  FROM (SELECT unnest(e_write) AS write) AS e);

            -- A refused append whose every event is stored at its revision was sent before.
            stored := ARRAY(
                SELECT CASE WHEN count(*) = count(l.position) THEN max(l.position) ELSE 0 END
                  FROM unnest(refused) AS r (append)
                  LEFT JOIN (
                       SELECT w_append[a.write] AS append, w_expectation[a.write] AS expectation, a."offset", a.id
                         FROM (SELECT unnest(e_write) AS write, unnest(e_offset) AS "offset", unnest(e_id) AS id) AS a) AS e USING (append)
                  LEFT JOIN LATERAL (
                       SELECT l.position FROM log.event l
                        WHERE l.stream = x_stream[e.expectation] COLLATE "C" AND l.revision = base[e.expectation] + 1 + e."offset"
                          AND l.event_id = e.id
                        LIMIT 1) AS l ON true
                 GROUP BY r.append ORDER BY r.append);
        END IF;

        BEGIN
            INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
            SELECT head + coalesce(number[e.n], e.n), e.at, base[w_expectation[e.write]] + 1 + e."offset", e.id,
                   x_stream[w_expectation[e.write]], e.type, e.data, append.metadata[e.metadata]
              FROM (SELECT generate_series(1, cardinality(e_id)) AS n, unnest(e_write) AS write, unnest(e_offset) AS "offset",
                           unnest(e_id) AS id, unnest(e_at) AS at, unnest(e_type) AS type, unnest(e_data) AS data, unnest(e_metadata) AS metadata) AS e
             WHERE refused IS NULL OR w_append[e.write] <> ALL (refused);
            IF NOT FOUND THEN
                PERFORM log.await_standbys(head, replicated);
            END IF;
            IF cardinality(k_id) > 0 THEN
                INSERT INTO person.key (stream, id, sealed_by, sealed)
                SELECT x_stream[w_expectation[k.write]], k.id, k.sealed_by, k.sealed
                  FROM (SELECT unnest(k_write) AS write, unnest(k_id) AS id, unnest(k_sealed_by) AS sealed_by,
                               unnest(k_sealed) AS sealed) AS k
                 WHERE refused IS NULL OR w_append[k.write] <> ALL (refused)
                    ON CONFLICT DO NOTHING;
            END IF;
            IF cardinality(c_key_id) > 0 THEN
                INSERT INTO person.content (stream, key_id, hash, sealed)
                SELECT k.stream, k.id, c.hash, c.sealed
                  FROM (SELECT unnest(c_write) AS write, unnest(c_key_id) AS key_id, unnest(c_hash) AS hash, unnest(c_sealed) AS sealed) AS c
                  JOIN person.key k ON k.stream = x_stream[w_expectation[c.write]] COLLATE "C" AND k.id = c.key_id
                 WHERE refused IS NULL OR w_append[c.write] <> ALL (refused)
                   FOR KEY SHARE OF k
                    ON CONFLICT DO NOTHING;
            END IF;
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            IF attempt = 2 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION log.readable(bytes bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception THEN
    RETURN to_jsonb(encode(bytes, 'base64')); -- not JSON that jsonb can hold
END
$$;
-- +goose StatementEnd

CREATE VIEW log.event_readable AS
SELECT position, recorded_at, stream, revision, type, event_id,
       log.readable(data) AS data, log.readable(metadata) AS metadata
  FROM log.event;

COMMENT ON VIEW log.event_readable IS 'The log for people: payloads as jsonb, or base64 where they are not JSON.';
