-- +goose Up

-- The read models. Every table of the schema views is a fold of the log: dropped and run again, it has the same rows.
-- So a view refers to no other, and names no schema: a copy made with LIKE … INCLUDING ALL stands for itself.
-- Names, types and ids are in collation "C", whose order does not depend on the server.

CREATE TABLE views.checkpoint (
    projector  text        COLLATE "C" NOT NULL,
    version    integer     NOT NULL,
    epoch      text        COLLATE "C" NOT NULL,
    position   bigint      NOT NULL CHECK (position >= 0),
    updated_at timestamptz NOT NULL,
    CONSTRAINT checkpoint_projector PRIMARY KEY (projector)
);

COMMENT ON TABLE views.checkpoint IS 'How far each projector has read the log. Written in the transaction that writes its view.';
COMMENT ON COLUMN views.checkpoint.version IS 'Of the projector that wrote the view; another one must build it anew.';
COMMENT ON COLUMN views.checkpoint.epoch IS 'The log that the position is of.';

CREATE TABLE views.lead (
    lead_id     text        COLLATE "C" NOT NULL,
    account     text        COLLATE "C" NOT NULL,
    created_at  timestamptz NOT NULL,
    status      text        COLLATE "C" NOT NULL,
    temperature text        COLLATE "C" NOT NULL,
    source      text        COLLATE "C" NOT NULL,
    phone       text        COLLATE "C" NOT NULL,
    email       text        COLLATE "C" NOT NULL,
    search      text        COLLATE "C" NOT NULL,
    state       json        NOT NULL,
    CONSTRAINT lead_id PRIMARY KEY (lead_id)
);

CREATE INDEX lead_newest ON views.lead (account, created_at DESC, lead_id DESC);
CREATE INDEX lead_status ON views.lead (account, status, created_at DESC, lead_id DESC);
CREATE INDEX lead_source ON views.lead (account, source, created_at DESC, lead_id DESC);
CREATE INDEX lead_phone ON views.lead (account, phone) WHERE phone <> '';
CREATE INDEX lead_email ON views.lead (account, email) WHERE email <> '';

COMMENT ON TABLE views.lead IS 'Leads as they are now. The columns are what lists select by.';
COMMENT ON COLUMN views.lead.status IS 'In lower case, for it is compared so. The state has the account''s spelling.';
COMMENT ON COLUMN views.lead.source IS 'Where the lead came from first.';
COMMENT ON COLUMN views.lead.search IS 'Name, phone and email in lower case.';
COMMENT ON COLUMN views.lead.state IS 'The whole lead. Not jsonb, which writes numbers its own way: what a caller sent is shown as it was sent.';

CREATE TABLE views.source_history (
    lead_id       text        COLLATE "C" NOT NULL,
    source        text        COLLATE "C" NOT NULL,
    account       text        COLLATE "C" NOT NULL,
    position      bigint      NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    arrivals      integer     NOT NULL CHECK (arrivals > 0),
    credential    text        NOT NULL,
    metadata      json        NOT NULL,
    ip            text        NOT NULL,
    user_agent    text        NOT NULL,
    request_id    text        NOT NULL,
    changed       jsonb       NOT NULL,
    CONSTRAINT source_history_lead_source PRIMARY KEY (lead_id, source)
);

COMMENT ON TABLE views.source_history IS 'One row for each source that a lead ever came from.';
COMMENT ON COLUMN views.source_history.position IS 'Of the first arrival from this source: the order of the history.';
COMMENT ON COLUMN views.source_history.metadata IS 'As the first arrival from this source gave it.';

CREATE TABLE views.token (
    token_id   text        COLLATE "C" NOT NULL,
    account    text        COLLATE "C" NOT NULL,
    name       text        NOT NULL,
    prefix     text        NOT NULL,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text        NOT NULL,
    rotated_at timestamptz,
    deleted_at timestamptz,
    CONSTRAINT token_id PRIMARY KEY (token_id)
);

CREATE INDEX token_newest ON views.token (account, created_at DESC, token_id DESC);

COMMENT ON TABLE views.token IS 'API tokens, deleted ones too. Neither values nor their hashes.';

CREATE TABLE views.token_event (
    position   bigint      NOT NULL,
    event_id   text        COLLATE "C" NOT NULL,
    token_id   text        COLLATE "C" NOT NULL,
    account    text        COLLATE "C" NOT NULL,
    type       text        COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    actor      text        NOT NULL,
    ip         text        NOT NULL,
    user_agent text        NOT NULL,
    request_id text        NOT NULL,
    data       json        NOT NULL,
    CONSTRAINT token_event_position PRIMARY KEY (position)
);

CREATE INDEX token_event_account ON views.token_event (account, position);
CREATE INDEX token_event_token ON views.token_event (token_id, position);

COMMENT ON TABLE views.token_event IS 'What happened to API tokens: who did it, from where, by which request.';
COMMENT ON COLUMN views.token_event.type IS 'Public name, without version.';
COMMENT ON COLUMN views.token_event.data IS 'Without the hash of the value.';

CREATE TABLE views.account (
    account_id text             COLLATE "C" NOT NULL,
    name       text             NOT NULL,
    features   jsonb            NOT NULL,
    stages     jsonb            NOT NULL,
    region     text             NOT NULL,
    rate_limit double precision,
    rate_burst bigint,
    created_at timestamptz      NOT NULL,
    updated_at timestamptz      NOT NULL,
    CONSTRAINT account_id PRIMARY KEY (account_id)
);

COMMENT ON TABLE views.account IS 'Plans and settings of accounts.';

CREATE TABLE views.endpoint (
    webhook_id  text        COLLATE "C" NOT NULL,
    account     text        COLLATE "C" NOT NULL,
    url         text        NOT NULL,
    events      jsonb       NOT NULL,
    description text        NOT NULL,
    created_at  timestamptz NOT NULL,
    CONSTRAINT endpoint_id PRIMARY KEY (webhook_id)
);

CREATE INDEX endpoint_newest ON views.endpoint (account, created_at DESC, webhook_id DESC);

COMMENT ON TABLE views.endpoint IS 'Webhook endpoints that are there. Their secrets are in secret.webhook.';

-- Secrets are no view: nothing brings them back. Whoever drops the schema views to build it anew must find them
-- there still, and this migration runs again.
CREATE SCHEMA IF NOT EXISTS secret;

CREATE TABLE IF NOT EXISTS secret.webhook (
    webhook_id text        COLLATE "C" NOT NULL,
    key_id     text        COLLATE "C" NOT NULL,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhook_id PRIMARY KEY (webhook_id)
);

COMMENT ON TABLE secret.webhook IS 'Signing secrets of webhook endpoints, sealed with AES-256-GCM.';
COMMENT ON COLUMN secret.webhook.key_id IS 'Which key seals it: first 8 hex digits of the key''s SHA-256.';
COMMENT ON COLUMN secret.webhook.sealed IS 'Nonce of 12 bytes, then the sealed secret and its tag.';
