-- +goose Up

-- log.append applies many callers' appends, each wholly or not at all, and answers for each. It is the only writer, beside
-- log.append_sealed, which programs of before this migration call.
--
-- Everything it compares is the state before the batch, so no two appends of a batch may touch a stream that one of
-- them writes. The caller sees to that. All numbers of things count from 1.
--
--   x_stream     what the batch expects, each once: a stream,
--   x_expect     and the revision it is to be at (-1 no stream, -2 any);
--   x_first      of "any", the id of the first event to be written, else null. Empty when the batch expects no "any"
--   w_append     per write: its append
--   w_expected   and what it expects
--   e_append     per event: its append,
--   e_expected   what its write expects,
--   e_place      its place in the write, from 0,
--   e_number     its number in the batch,
--   e_*          and what is stored; of the metadata the number in
--   metadata     the different ones
--   k_append     per key of a person: its append
--   k_expected   and what the write to the stream that it is of expects
--   k_*          and what is stored; see person.key
--   tell         whether those who listen are told that there is something new
--
--   head         position of the newest event before the batch. Appends that are not refused are stored in their order
--   revisions    per expectation: the stream's last revision before the batch, -1 without events
--   refused      appends that are not stored: something is not as expected, or
--   stored       the position of their last event, since they are there already; else 0
--
-- An append that is refused leaves no key. Nor does one that was sent again and stands on the log already: its key is there
-- with it, unless somebody was forgotten meanwhile, and what is destroyed does not come back.
--
-- The lock comes first and each statement after it sees what was committed before the lock was granted. That takes
-- READ COMMITTED, and a transaction that holds nothing else. So positions are gap-free and grow in commit order.
--
-- Most batches are one append of a few events, or a few, and nothing is refused. Then it is three statements, and what they
-- cost is mostly that they begin and end. That the plans do not scan a table that was small once is for the session to
-- say, once, with plan_cache_mode = force_generic_plan and enable_seqscan, enable_bitmapscan and jit off: as settings of the
-- function they would come and go with each call.
--
-- Arrays are unnested in select lists: as tables each would be copied once more. A select list gives its rows in the
-- order of the arrays.

-- +goose StatementBegin
CREATE FUNCTION log.append(
    x_stream text[], x_expect bigint[], x_first uuid[],
    w_append int[], w_expected int[],
    e_append int[], e_expected int[], e_place int[], e_number int[],
    e_id uuid[], e_at timestamptz[], e_type text[], e_data bytea[], e_metadata int[],
    metadata bytea[],
    k_append int[], k_expected int[], k_id bigint[], k_sealed_by text[], k_sealed bytea[],
    tell boolean,
    OUT head bigint, OUT revisions bigint[], OUT refused int[], OUT stored bigint[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    base   bigint[] := x_expect; -- per expectation: the revision that its events follow
    number int[] := e_number;    -- per event: its number among those that are stored, null when its append is refused
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('leadlog append', 'log'::regnamespace::oid::bigint));

    SELECT coalesce((SELECT l.position FROM log.event l ORDER BY l.position DESC LIMIT 1), 0),
           ARRAY(SELECT coalesce((
                        SELECT l.revision FROM log.event l
                         WHERE l.stream = x.stream COLLATE "C"
                         ORDER BY l.revision DESC LIMIT 1), -1)
                   FROM (SELECT unnest(x_stream) AS stream) AS x)
      INTO head, revisions;

    -- "Any" amounts to the stream as it is, or, when the event stands there already, to the stream as it was before
    -- it. The look is bounded: only the newest thousand events of the stream.
    IF x_first <> '{}' THEN
        SELECT array_agg(CASE WHEN x.expect <> -2 THEN x.expect ELSE coalesce((
               SELECT l.revision - 1 FROM log.event l
                WHERE l.stream = x.stream COLLATE "C" AND l.revision > x.revision - 1000 AND l.event_id = x.first
                ORDER BY l.revision LIMIT 1), x.revision) END)
          INTO base
          FROM (SELECT unnest(x_stream) AS stream, unnest(x_expect) AS expect, unnest(x_first) AS first,
                       unnest(revisions) AS revision) AS x;
    END IF;

    IF revisions IS DISTINCT FROM base THEN
        SELECT array_agg(DISTINCT w.append ORDER BY w.append) INTO refused
          FROM (SELECT unnest(w_append) AS append, unnest(w_expected) AS expected) AS w
         WHERE revisions[w.expected] <> base[w.expected];

        SELECT array_agg(CASE WHEN e.ok THEN e.n END) INTO number
          FROM (SELECT e.ok, count(*) FILTER (WHERE e.ok) OVER (ROWS UNBOUNDED PRECEDING) AS n
                  FROM (SELECT a.append <> ALL (refused) AS ok FROM (SELECT unnest(e_append) AS append) AS a) AS e) AS e;

        -- A refused append whose every event stands at its place already is one that was sent before.
        SELECT array_agg(CASE WHEN r.there THEN r.position ELSE 0 END ORDER BY r.append) INTO stored
          FROM (SELECT a.append, count(*) = count(l.position) AS there, max(l.position) AS position
                  FROM unnest(refused) AS a (append)
                  LEFT JOIN (SELECT unnest(e_append) AS append, unnest(e_expected) AS expected, unnest(e_place) AS place,
                                    unnest(e_id) AS id) AS e USING (append)
                  LEFT JOIN LATERAL (
                       SELECT l.position FROM log.event l
                        WHERE l.stream = x_stream[e.expected] COLLATE "C" AND l.revision = base[e.expected] + 1 + e.place
                          AND l.event_id = e.id
                        LIMIT 1) AS l ON true
                 GROUP BY a.append) AS r;
    END IF;

    INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
    SELECT head + e.number, e.at, base[e.expected] + 1 + e.place, e.id, x_stream[e.expected], e.type, e.data,
           append.metadata[e.metadata]
      FROM (SELECT unnest(number) AS number, unnest(e_expected) AS expected, unnest(e_place) AS place, unnest(e_id) AS id,
                   unnest(e_at) AS at, unnest(e_type) AS type, unnest(e_data) AS data, unnest(e_metadata) AS metadata) AS e
     WHERE e.number IS NOT NULL;

    IF k_append <> '{}' THEN
        INSERT INTO person.key (stream, id, sealed_by, sealed)
        SELECT x_stream[k.expected], k.id, k.sealed_by, k.sealed
          FROM (SELECT unnest(k_append) AS append, unnest(k_expected) AS expected, unnest(k_id) AS id,
                       unnest(k_sealed_by) AS sealed_by, unnest(k_sealed) AS sealed) AS k
         WHERE k.append <> ALL (coalesce(append.refused, '{}'))
            ON CONFLICT DO NOTHING;
    END IF;

    IF tell THEN
        PERFORM pg_notify('leadlog_log', '');
    END IF;
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION log.append_sealed IS 'What programs of before log.append write with; both take the same lock.';
COMMENT ON TABLE log.event IS 'The log. Written by log.append only: rows put here by other means break the order of positions.';
