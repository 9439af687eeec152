-- +goose Up

-- log.append_whole stores a batch if all of it is as expected, and else nothing; then log.append says of each append what
-- becomes of it. Both take the same lock. It takes what log.append takes, but for "any" and for what tells the appends apart,
-- and
--
--   x_look       the numbers of the expectations that are looked at first
--
-- Those that have events and expect no stream are left out of that. The constraint event_stream_revision finds each that is
-- there after all, and what was stored until then goes again, in a transaction within the transaction. So streams that are
-- new cost one walk down the index and not two. What goes takes its room until the next VACUUM: where appends are refused
-- often, log.append is called at once.
--
--   head         position of the newest event before the batch; null when nothing was stored

-- +goose StatementBegin
CREATE FUNCTION log.append_whole(
    x_stream text[], x_expect bigint[], x_look int[],
    e_expected int[], e_place int[], e_number int[],
    e_id uuid[], e_at timestamptz[], e_type text[], e_data bytea[], e_metadata int[],
    metadata bytea[],
    k_expected int[], k_id bigint[], k_sealed_by text[], k_sealed bytea[],
    tell boolean,
    OUT head bigint
)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('leadlog append', 'log'::regnamespace::oid::bigint));

    SELECT coalesce((SELECT l.position FROM log.event l ORDER BY l.position DESC LIMIT 1), 0)
      INTO head
     WHERE NOT EXISTS (
           SELECT FROM (SELECT unnest(x_look) AS expected) AS x
            WHERE x_expect[x.expected] <> coalesce((
                  SELECT l.revision FROM log.event l
                   WHERE l.stream = x_stream[x.expected] COLLATE "C"
                   ORDER BY l.revision DESC LIMIT 1), -1));
    IF head IS NULL THEN
        RETURN;
    END IF;

    BEGIN
        INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
        SELECT head + e.number, e.at, x_expect[e.expected] + 1 + e.place, e.id, x_stream[e.expected], e.type, e.data,
               append_whole.metadata[e.metadata]
          FROM (SELECT unnest(e_number) AS number, unnest(e_expected) AS expected, unnest(e_place) AS place,
                       unnest(e_id) AS id, unnest(e_at) AS at, unnest(e_type) AS type, unnest(e_data) AS data,
                       unnest(e_metadata) AS metadata) AS e;
        IF k_id <> '{}' THEN
            INSERT INTO person.key (stream, id, sealed_by, sealed)
            SELECT x_stream[k.expected], k.id, k.sealed_by, k.sealed
              FROM (SELECT unnest(k_expected) AS expected, unnest(k_id) AS id, unnest(k_sealed_by) AS sealed_by,
                           unnest(k_sealed) AS sealed) AS k;
        END IF;
    EXCEPTION WHEN unique_violation THEN
        head := NULL;
        RETURN;
    END;

    IF tell THEN
        PERFORM pg_notify('leadlog_log', '');
    END IF;
END
$$;
-- +goose StatementEnd

COMMENT ON TABLE log.event IS 'The log. Written by log.append and log.append_whole only: rows put here by other means break the order of positions.';
