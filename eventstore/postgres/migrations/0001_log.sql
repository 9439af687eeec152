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

COMMENT ON TABLE log.event IS 'The log. Written by log.append only: rows put here by other means break the order of positions.';
COMMENT ON COLUMN log.event.position IS 'Place in the whole log, from 1, without gaps, in the order of commits.';
COMMENT ON COLUMN log.event.recorded_at IS 'When it happened, as the process that recorded it says.';
COMMENT ON COLUMN log.event.revision IS 'Place in the stream, from 0, without gaps.';
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

-- log.append applies many callers' appends, each wholly or not at all, and answers for each. It is the only writer.
--
-- Everything it compares is the state before the batch, so no two appends of a batch may touch a stream that one of
-- them writes. The caller sees to that. Appends, streams and writes are numbered from 1.
--
--   streams      every stream that the batch names, once
--   probe        per stream: the id of the first event to be written with "any", else null
--   w_*          per write: its append, its stream, the revision it expects (-1 no stream, -2 any), its append's events
--   e_*          per event: its append, its write, its stream's name, its place in the write, how many events of the
--                append come after it, and what is stored
--
--   head         position of the newest event before the batch
--   positions    per append: position of its last event, the head for nothing but checks, 0 when refused
--   unexpected   per append: the first write whose stream is not as expected, 0 when none
--   revisions    per stream: its last revision before the batch, -1 without events
--
-- The lock comes first and each statement after it sees what was committed before the lock was granted. That takes
-- READ COMMITTED, and a transaction that holds nothing else. So positions are gap-free and grow in commit order.
-- The settings keep a plan that was made while the table was small from scanning it when it is large.

-- +goose StatementBegin
CREATE FUNCTION log.append(
    streams text[], probe uuid[],
    w_append int[], w_stream int[], w_expect bigint[], w_events int[],
    e_append int[], e_write int[], e_stream text[], e_place int[], e_after int[],
    e_id uuid[], e_at timestamptz[], e_type text[], e_data bytea[], e_metadata bytea[],
    OUT head bigint, OUT positions bigint[], OUT unexpected int[], OUT revisions bigint[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    probed bigint[]; -- per stream: what "any" amounts to
    base   bigint[]; -- per write: the revision that its events follow
    again  record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('leadlog append', 'log'::regnamespace::oid::bigint));

    SELECT coalesce(max(l.position), 0) INTO head FROM log.event l;

    -- "Any" amounts to the stream as it is, or, when the event stands there already, to the stream as it was before
    -- it. The look is bounded: only the newest thousand events of the stream.
    SELECT array_agg(coalesce(newest.revision, -1) ORDER BY s.i),
           array_agg(coalesce(seen.revision - 1, newest.revision, -1) ORDER BY s.i)
      INTO revisions, probed
      FROM unnest(streams, probe) WITH ORDINALITY AS s (name, id, i)
      LEFT JOIN LATERAL (
           SELECT l.revision FROM log.event l
            WHERE l.stream = s.name COLLATE "C"
            ORDER BY l.revision DESC LIMIT 1) AS newest ON true
      LEFT JOIN LATERAL (
           SELECT l.revision FROM log.event l
            WHERE s.id IS NOT NULL AND l.stream = s.name COLLATE "C"
              AND l.revision > newest.revision - 1000 AND l.event_id = s.id
            ORDER BY l.revision LIMIT 1) AS seen ON true;

    SELECT array_agg(CASE WHEN w.expect = -2 THEN probed[w.stream] ELSE w.expect END ORDER BY w.i)
      INTO base
      FROM unnest(w_stream, w_expect) WITH ORDINALITY AS w (stream, expect, i);

    SELECT array_agg(coalesce(v.wrong, 0) ORDER BY v.append),
           array_agg(CASE WHEN v.wrong IS NOT NULL THEN 0
                          WHEN v.events = 0 THEN head
                          ELSE head + v.stored END ORDER BY v.append)
      INTO unexpected, positions
      FROM (SELECT a.append, a.events, a.wrong,
                   sum(a.events) FILTER (WHERE a.wrong IS NULL) OVER (ORDER BY a.append) AS stored
              FROM (SELECT w.append, max(w.events) AS events,
                           min(w.i) FILTER (WHERE base[w.i] <> revisions[w.stream]) AS wrong
                      FROM unnest(w_append, w_stream, w_events) WITH ORDINALITY AS w (append, stream, events, i)
                     GROUP BY w.append) AS a) AS v;

    INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
    SELECT positions[e.append] - e.after, e.at, base[e.write] + 1 + e.place, e.id, e.stream, e.type, e.data, e.metadata
      FROM unnest(e_append, e_write, e_stream, e_place, e_after, e_id, e_at, e_type, e_data, e_metadata)
           AS e (append, write, stream, place, after, id, at, type, data, metadata)
     WHERE unexpected[e.append] = 0;
    IF FOUND THEN
        PERFORM pg_notify('leadlog_log', '');
    END IF;

    -- A refused append whose every event stands at its place already is one that was sent before.
    IF 0 < ANY (unexpected) THEN
        FOR again IN
            SELECT e.append, max(stored.position) AS position
              FROM unnest(e_append, e_write, e_stream, e_place, e_id) AS e (append, write, stream, place, id)
              LEFT JOIN LATERAL (
                   SELECT l.position FROM log.event l
                    WHERE l.stream = e.stream COLLATE "C" AND l.revision = base[e.write] + 1 + e.place
                      AND l.event_id = e.id
                    LIMIT 1) AS stored ON true
             WHERE unexpected[e.append] > 0
             GROUP BY e.append
            HAVING count(stored.position) = count(*)
        LOOP
            positions[again.append] := again.position;
            unexpected[again.append] := 0;
        END LOOP;
    END IF;
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
