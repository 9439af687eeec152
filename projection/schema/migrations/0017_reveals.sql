-- +goose Up

CREATE TABLE views.reveal (
    position   bigint      NOT NULL,
    account    text        COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    actor      text        NOT NULL,
    what       text        COLLATE "C" NOT NULL,
    lead_id    text        COLLATE "C" NOT NULL,
    ip         text        NOT NULL,
    user_agent text        NOT NULL,
    request_id text        NOT NULL,
    CONSTRAINT reveal_position PRIMARY KEY (position)
);

CREATE INDEX reveal_account ON views.reveal (account, position);

COMMENT ON TABLE views.reveal IS 'Who looked at what people told about themselves. Nothing of these people.';
COMMENT ON COLUMN views.reveal.what IS 'lead, or what was exported.';
COMMENT ON COLUMN views.reveal.lead_id IS 'Empty: many leads.';
COMMENT ON COLUMN views.reveal.ip IS 'Of who looked.';
