-- +goose Up

CREATE TABLE views.visitor_activity (
    position    bigint      NOT NULL,
    activity_id text        COLLATE "C" NOT NULL,
    account     text        COLLATE "C" NOT NULL,
    visitor_id  text        COLLATE "C" NOT NULL,
    type        text        COLLATE "C" NOT NULL,
    at          timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    url         text        NOT NULL,
    title       text        NOT NULL,
    referrer    text        NOT NULL,
    properties  json        NOT NULL,
    CONSTRAINT visitor_activity_position PRIMARY KEY (position)
);

-- A visitor's activity, oldest first.
CREATE INDEX visitor_activity_visitor ON views.visitor_activity (account, visitor_id, at, position);

COMMENT ON TABLE views.visitor_activity IS 'What visitors of web sites did. The leads that they are have their ids in VisitorIDs of their state.';
COMMENT ON COLUMN views.visitor_activity.at IS 'When it happened, by the clock of whoever told.';
COMMENT ON COLUMN views.visitor_activity.recorded_at IS 'When it came to the log.';

CREATE TABLE views.refused (
    position      bigint      NOT NULL,
    account       text        COLLATE "C" NOT NULL,
    at            timestamptz NOT NULL,
    source        text        COLLATE "C" NOT NULL,
    code          text        COLLATE "C" NOT NULL,
    lead_id       text        COLLATE "C" NOT NULL,
    other_lead_id text        COLLATE "C" NOT NULL,
    credential    text        NOT NULL,
    request_id    text        NOT NULL,
    CONSTRAINT refused_position PRIMARY KEY (position)
);

CREATE INDEX refused_account ON views.refused (account, position);

COMMENT ON TABLE views.refused IS 'Arrivals that were answered with a conflict. Nothing of the person who arrived.';
COMMENT ON COLUMN views.refused.lead_id IS 'The lead that is there.';
COMMENT ON COLUMN views.refused.other_lead_id IS 'A second lead, when phone and email belong to two; else empty.';
