-- +goose Up

-- Keys of persons, by the stream that tells of each. What is personal on such a stream is sealed with its key, so that a
-- person is forgotten everywhere when the key goes. In a schema of its own, so that it has an owner of its own, and is left
-- out of one backup and kept in another: deploy/forgetting.md.
--
-- A log in PostgreSQL has the same table, in its own database. One that is there may have another owner by now
-- (deploy/keys.sql), and is left alone.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_tables WHERE schemaname = 'person' AND tablename = 'key') THEN
        RETURN;
    END IF;
    CREATE SCHEMA IF NOT EXISTS person;
    CREATE TABLE person.key (
        stream    text   COLLATE "C" NOT NULL,
        id        bigint NOT NULL,
        sealed_by text   COLLATE "C" NOT NULL,
        sealed    bytea  NOT NULL,
        CONSTRAINT key_id PRIMARY KEY (stream, id)
    );
    COMMENT ON TABLE person.key IS 'What the personal part of each stream''s events is sealed with, AES-256-GCM. A row that goes takes a person with it, for good.';
    COMMENT ON COLUMN person.key.id IS 'Random. A stream may have several: two processes may begin one at once.';
    COMMENT ON COLUMN person.key.sealed_by IS 'Which key seals this one: first 8 hex digits of that key''s SHA-256.';
    COMMENT ON COLUMN person.key.sealed IS 'Nonce of 12 bytes, then the sealed key and its tag.';
END
$$;
-- +goose StatementEnd

-- A visitor is forgotten by its stream: the id that the rows have is gone from the log by then.
ALTER TABLE views.visitor_activity ADD COLUMN stream text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX visitor_activity_stream ON views.visitor_activity (stream);
