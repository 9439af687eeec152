-- +goose Up

-- log.append_sealed is log.append_batch, and keeps the keys of what that stores: an append that is refused leaves no key.
-- Nor does one that was sent again and stands on the log already: its key is there with it, unless somebody was forgotten
-- meanwhile, and what is destroyed does not come back.
--
--   k_append     per key: its append,
--   k_expected   and what the write to the stream that it is of expects
--   k_*          what is stored; see person.key

-- +goose StatementBegin
CREATE FUNCTION log.append_sealed(
    x_stream text[], x_expect bigint[], x_first uuid[],
    w_append int[], w_expected int[],
    e_append int[], e_expected int[], e_place int[],
    e_id uuid[], e_at timestamptz[], e_type text[], e_data bytea[], e_metadata int[],
    metadata bytea[],
    k_append int[], k_expected int[], k_id bigint[], k_sealed_by text[], k_sealed bytea[],
    OUT head bigint, OUT revisions bigint[], OUT refused int[], OUT stored bigint[]
)
LANGUAGE plpgsql
AS $$
BEGIN
    SELECT a.head, a.revisions, a.refused, a.stored
      INTO head, revisions, refused, stored
      FROM log.append_batch(x_stream, x_expect, x_first, w_append, w_expected, e_append, e_expected, e_place,
                            e_id, e_at, e_type, e_data, e_metadata, metadata) AS a;
    IF k_append <> '{}' THEN
        INSERT INTO person.key (stream, id, sealed_by, sealed)
        SELECT x_stream[k.expected], k.id, k.sealed_by, k.sealed
          FROM (SELECT unnest(k_append) AS append, unnest(k_expected) AS expected, unnest(k_id) AS id,
                       unnest(k_sealed_by) AS sealed_by, unnest(k_sealed) AS sealed) AS k
         WHERE k.append <> ALL (coalesce(append_sealed.refused, '{}'))
            ON CONFLICT DO NOTHING;
    END IF;
END
$$;
-- +goose StatementEnd

DROP FUNCTION log.append; -- what programs of before log.append_batch called

COMMENT ON TABLE log.event IS 'The log. Written by log.append_sealed only, and by log.append_batch, which it calls: rows put here by other means break the order of positions.';
