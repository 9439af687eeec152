-- +goose Up

-- This file has five parts: the views, the secrets of endpoints and keys of persons, the deliveries, the tree of the log, and the quotas.
-- Names, types and ids are in collation "C", whose order does not depend on the server.

-- Views.
--
-- Every table of the schema views is a fold of the log: dropped and built again, it has the same rows. A view refers to no
-- other and names no schema, so that a copy made with LIKE … INCLUDING ALL is independent.

CREATE TABLE views.checkpoint (
    projector     text        COLLATE "C" NOT NULL,
    version       integer     NOT NULL,
    epoch         text        COLLATE "C" NOT NULL,
    position      bigint      NOT NULL CHECK (position >= 0),
    updated_at    timestamptz NOT NULL,
    -- When the log does not have this event there, it is another log under the same name, as after the restore of a backup.
    seen_stream   text        COLLATE "C",
    seen_revision bigint,
    seen_event    text        COLLATE "C",
    replay        bigint      NOT NULL DEFAULT 0,
    CONSTRAINT checkpoint_projector PRIMARY KEY (projector)
);

COMMENT ON TABLE views.checkpoint IS 'How far each projector has read the log. Written in the transaction that writes its view.';
COMMENT ON COLUMN views.checkpoint.version IS 'Of the projector that wrote the view; another version must rebuild it.';
COMMENT ON COLUMN views.checkpoint.epoch IS 'The log that the position is of.';
COMMENT ON COLUMN views.checkpoint.seen_event IS 'The event that was applied last, at seen_revision of seen_stream; NULL: none yet, or unknown.';
COMMENT ON COLUMN views.checkpoint.replay IS 'The transaction of the replay that replaced the view; 0: none. A projector that has read another value starts again.';
COMMENT ON COLUMN views.checkpoint.projector IS 'Name of the projector.';
COMMENT ON COLUMN views.checkpoint.position IS 'The last position on the log that the view has.';
COMMENT ON COLUMN views.checkpoint.updated_at IS 'When the row was written.';
COMMENT ON COLUMN views.checkpoint.seen_stream IS 'Stream of the event that was applied last.';
COMMENT ON COLUMN views.checkpoint.seen_revision IS 'Revision of this event in its stream.';

-- Most changes touch no column that an index has: with room on the page they touch no index either.
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
    won         numeric     GENERATED ALWAYS AS (CASE WHEN status = 'won' THEN nullif(state ->> 'opportunityValue', '')::numeric END) STORED,
    contacts    bigint      NOT NULL DEFAULT 0,
    CONSTRAINT lead_id PRIMARY KEY (lead_id)
) WITH (fillfactor = 85);

-- Each has what lists filter by, so that a search reads the index alone, and only the leads that it finds. There is none by
-- phone or email: the log has the owner of each, and random keys cost a capture more than all the other indexes together.
CREATE INDEX lead_newest ON views.lead (account, created_at) INCLUDE (temperature, source, status, search);
CREATE INDEX lead_status ON views.lead (account, status, created_at) INCLUDE (temperature, source);
CREATE INDEX lead_source ON views.lead (account, source, created_at) INCLUDE (temperature, status);
-- Few leads have several contacts of a kind.
CREATE INDEX lead_contacts ON views.lead (account, created_at, lead_id) INCLUDE (contacts) WHERE contacts > 1;

COMMENT ON TABLE views.lead IS 'Leads as they are now. The columns are what lists select by.';
COMMENT ON COLUMN views.lead.status IS 'In lower case, for it is compared so. The state has the account''s spelling.';
COMMENT ON COLUMN views.lead.source IS 'Where the lead came from first.';
COMMENT ON COLUMN views.lead.search IS 'Name, phone and email in lower case.';
COMMENT ON COLUMN views.lead.contacts IS 'How many phones find the lead, or emails, if these are more.';
COMMENT ON COLUMN views.lead.state IS 'The rest of the lead but for its sources, without what is empty. Without Phones or Emails: the one in the column alone. Without UpdatedAt: nothing was since created_at. Not jsonb, which writes numbers its own way: what a caller sent is shown as it was sent.';
COMMENT ON COLUMN views.lead.won IS 'Value of the opportunity, if it is won.';
COMMENT ON COLUMN views.lead.lead_id IS 'Id of the lead.';
COMMENT ON COLUMN views.lead.account IS 'The account that it is of.';
COMMENT ON COLUMN views.lead.created_at IS 'When it was created.';
COMMENT ON COLUMN views.lead.temperature IS 'How likely it is to buy, such as hot, warm or cold.';
COMMENT ON COLUMN views.lead.phone IS 'Its first phone, with country code; empty: none.';
COMMENT ON COLUMN views.lead.email IS 'Its first email; empty: none.';

-- What lists search for a part of, with an index of its trigrams. It is filled when there is time for it, so that no capture waits for it:
-- that index costs more than all of the table lead's together. The account is in it too, so that a search reads only the account's.
CREATE TABLE views.lead_search (
    created_at timestamptz NOT NULL,
    lead_id    text        COLLATE "C" NOT NULL,
    account    text        COLLATE "C" NOT NULL,
    search     text        COLLATE "C" NOT NULL,
    CONSTRAINT lead_search_id PRIMARY KEY (lead_id)
);

CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public;
CREATE EXTENSION IF NOT EXISTS btree_gin WITH SCHEMA public;

-- +goose StatementBegin
DO $$ -- the extension may be in another schema already
BEGIN
    EXECUTE (SELECT format('CREATE INDEX lead_search_text ON views.lead_search USING gin (account, search %s.gin_trgm_ops) WITH (gin_pending_list_limit = 512)',
                           extnamespace::regnamespace)
               FROM pg_extension WHERE extname = 'pg_trgm');
END $$;
-- +goose StatementEnd

COMMENT ON TABLE views.lead_search IS 'Leads in the order of their ids; those behind the last are not in it yet.';
COMMENT ON COLUMN views.lead_search.search IS 'As the column of lead.';
COMMENT ON COLUMN views.lead_search.created_at IS 'As the column of lead.';
COMMENT ON COLUMN views.lead_search.lead_id IS 'As the column of lead.';
COMMENT ON COLUMN views.lead_search.account IS 'As the column of lead.';

-- Kept by the projector of leads with every change, so that a report does not read every lead that was won.
CREATE TABLE views.won_day (
    account text    COLLATE "C" NOT NULL,
    day     date    NOT NULL,
    source  text    COLLATE "C" NOT NULL,
    leads   bigint  NOT NULL,
    value   numeric NOT NULL,
    CONSTRAINT won_day_key PRIMARY KEY (account, day, source)
) WITH (fillfactor = 50);

COMMENT ON TABLE views.won_day IS 'Leads that are won now, by the day (UTC) on which they were opened and the source that opened them.';
COMMENT ON COLUMN views.won_day.value IS 'Of their opportunities, together.';
COMMENT ON COLUMN views.won_day.account IS 'The account of the leads.';
COMMENT ON COLUMN views.won_day.day IS 'The day (UTC) on which the leads were opened.';
COMMENT ON COLUMN views.won_day.source IS 'The source that opened them.';
COMMENT ON COLUMN views.won_day.leads IS 'How many leads there are.';

-- What the report on sources counts. A row a day keeps it small, however many arrivals there are.
CREATE TABLE views.source_day (
    account text   COLLATE "C" NOT NULL,
    day     date   NOT NULL,
    source  text   COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    merged  bigint NOT NULL,
    refused bigint NOT NULL,
    recorded bigint NOT NULL DEFAULT 0,
    lines   bigint NOT NULL DEFAULT 0,
    CONSTRAINT source_day_key PRIMARY KEY (account, day, source)
);

COMMENT ON TABLE views.source_day IS 'What became of the arrivals of a day (UTC), by the source that each came from. A day is the one on which the person came.';
COMMENT ON COLUMN views.source_day.created IS 'Arrivals that opened a lead: first touches.';
COMMENT ON COLUMN views.source_day.merged IS 'Arrivals that merged into a lead: later touches.';
COMMENT ON COLUMN views.source_day.refused IS 'Arrivals that were answered with a conflict.';
COMMENT ON COLUMN views.source_day.recorded IS 'Arrivals that were recorded on the day, whenever the person came: a file may have earlier ones.';
COMMENT ON COLUMN views.source_day.lines IS 'Those of the recorded ones that were lines of a batch or of a file.';
COMMENT ON COLUMN views.source_day.account IS 'The account that the arrivals came to.';
COMMENT ON COLUMN views.source_day.day IS 'The day (UTC).';
COMMENT ON COLUMN views.source_day.source IS 'Source of the arrivals.';

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
COMMENT ON COLUMN views.refused.position IS 'Position on the log of the refusal.';
COMMENT ON COLUMN views.refused.account IS 'The account that the arrival came to.';
COMMENT ON COLUMN views.refused.at IS 'When it was refused.';
COMMENT ON COLUMN views.refused.source IS 'Source of the arrival.';
COMMENT ON COLUMN views.refused.code IS 'DUPLICATE_LEAD_SOURCE or DUPLICATE_LEAD_EMAIL, as in the answer.';
COMMENT ON COLUMN views.refused.credential IS 'Who sent it, as the column of touch.';
COMMENT ON COLUMN views.refused.request_id IS 'Id of the request.';

CREATE TABLE views.arrival (
    arrival_id    text        COLLATE "C" NOT NULL,
    position      bigint      NOT NULL,
    account       text        COLLATE "C" NOT NULL,
    intake_id     text        COLLATE "C" NOT NULL,
    token_id      text        COLLATE "C" NOT NULL,
    received_at   timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    state         text        COLLATE "C" NOT NULL,
    reasons       jsonb       NOT NULL,
    warnings      jsonb       NOT NULL,
    lead_id       text        COLLATE "C" NOT NULL,
    other_lead_id text        COLLATE "C" NOT NULL,
    kept          boolean     NOT NULL,
    CONSTRAINT arrival_id PRIMARY KEY (arrival_id)
) WITH (fillfactor = 90);

CREATE INDEX arrival_account ON views.arrival (account, position);
CREATE INDEX arrival_at ON views.arrival (account, received_at);
CREATE INDEX arrival_intake ON views.arrival (intake_id, position);
-- Few arrivals need work, and they are asked for again and again.
CREATE INDEX arrival_open ON views.arrival (account, position) WHERE state IN ('received', 'quarantined');
-- What has to be fetched is asked for again and again.
CREATE INDEX arrival_received ON views.arrival (intake_id, position) WHERE state = 'received';
-- What has been deleted has neither of these: few of all arrivals are kept.
CREATE INDEX arrival_expires ON views.arrival (expires_at) WHERE kept;
CREATE INDEX arrival_lead ON views.arrival (lead_id) WHERE kept AND lead_id <> '';
CREATE INDEX arrival_other_lead ON views.arrival (other_lead_id) WHERE kept AND other_lead_id <> '';

COMMENT ON TABLE views.arrival IS 'Posts that intakes let in, and captures by the API that were quarantined. Nothing of the person who arrived.';
COMMENT ON COLUMN views.arrival.position IS 'When it was received.';
COMMENT ON COLUMN views.arrival.intake_id IS 'Empty: captured by the API.';
COMMENT ON COLUMN views.arrival.token_id IS 'Of the API token; empty for intakes and JWTs.';
COMMENT ON COLUMN views.arrival.reasons IS 'What is wrong with the fields of a quarantined one.';
COMMENT ON COLUMN views.arrival.warnings IS 'What was taken in another way than its sender most likely meant.';
COMMENT ON COLUMN views.arrival.lead_id IS 'The lead that it was captured into, or that it conflicts with.';
COMMENT ON COLUMN views.arrival.other_lead_id IS 'A second lead that it conflicts with; else empty.';
COMMENT ON COLUMN views.arrival.kept IS 'Whether what was posted can still be read.';
COMMENT ON COLUMN views.arrival.arrival_id IS 'Id of the arrival.';
COMMENT ON COLUMN views.arrival.account IS 'The account that it came to.';
COMMENT ON COLUMN views.arrival.received_at IS 'When the service received it.';
COMMENT ON COLUMN views.arrival.expires_at IS 'When its body is deleted.';
COMMENT ON COLUMN views.arrival.state IS 'received, captured, refused, quarantined, discarded or expired.';

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
    stream      text        COLLATE "C" NOT NULL DEFAULT '',
    key_id      bigint      NOT NULL DEFAULT 0,
    CONSTRAINT visitor_activity_position PRIMARY KEY (position)
);

CREATE INDEX visitor_activity_visitor ON views.visitor_activity (account, visitor_id, at, position);
-- By this one a visitor is erased: the log no longer has the visitor's id by then.
CREATE INDEX visitor_activity_stream ON views.visitor_activity (stream);

COMMENT ON TABLE views.visitor_activity IS 'What visitors of web sites did. The leads that they are have their ids in VisitorIDs of their state.';
COMMENT ON COLUMN views.visitor_activity.at IS 'When it happened, by the sender''s clock.';
COMMENT ON COLUMN views.visitor_activity.recorded_at IS 'When it came to the log.';
COMMENT ON COLUMN views.visitor_activity.key_id IS 'The key that sealed it on the log; 0: none.';
COMMENT ON COLUMN views.visitor_activity.position IS 'Position on the log of the event.';
COMMENT ON COLUMN views.visitor_activity.activity_id IS 'Id of the event.';
COMMENT ON COLUMN views.visitor_activity.account IS 'The account of the web site.';
COMMENT ON COLUMN views.visitor_activity.visitor_id IS 'The visitor, as the web site names them.';
COMMENT ON COLUMN views.visitor_activity.type IS 'What the visitor did, such as page_view.';
COMMENT ON COLUMN views.visitor_activity.url IS 'Address of the page.';
COMMENT ON COLUMN views.visitor_activity.title IS 'Title of the page.';
COMMENT ON COLUMN views.visitor_activity.referrer IS 'Address of the page before.';
COMMENT ON COLUMN views.visitor_activity.properties IS 'What the web site sent besides.';
COMMENT ON COLUMN views.visitor_activity.stream IS 'Stream of the visitor on the log.';

-- Rows are appended in the order of the log. An erasure and a join change a flag, and nothing else ever does. A report as of a position
-- counts the rows up to it.
CREATE TABLE views.touch (
    position     bigint      NOT NULL,
    touch_id     text        COLLATE "C" NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    lead_id      text        COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    kind         text        COLLATE "C" NOT NULL,
    source       text        COLLATE "C" NOT NULL,
    first        boolean     NOT NULL,
    utm_source   text        COLLATE "C" NOT NULL,
    utm_medium   text        COLLATE "C" NOT NULL,
    utm_campaign text        COLLATE "C" NOT NULL,
    utm_id       text        COLLATE "C" NOT NULL,
    credential   text        COLLATE "C" NOT NULL,
    intake_id    text        COLLATE "C" NOT NULL,
    visitor      text        COLLATE "C" NOT NULL,
    erased       boolean     NOT NULL,
    stage        text        COLLATE "C" NOT NULL,
    value        text        COLLATE "C" NOT NULL,
    key_id       bigint      NOT NULL DEFAULT 0,
    revision     bigint      NOT NULL DEFAULT 0,
    CONSTRAINT touch_position PRIMARY KEY (position)
);

-- By time, of all sources and of one. The position orders rows of the same millisecond. There may be many visits between two arrivals.
CREATE INDEX touch_at ON views.touch (account, at, position) WHERE kind <> 'visit';
CREATE INDEX touch_visit_at ON views.touch (account, at, position) WHERE kind = 'visit';
CREATE INDEX touch_source ON views.touch (account, source, at, position) WHERE source <> '';
CREATE INDEX touch_lead ON views.touch (lead_id) WHERE lead_id <> '';
CREATE INDEX touch_visitor ON views.touch (visitor, position) WHERE visitor <> '';

COMMENT ON TABLE views.touch IS 'One row for each arrival of a lead, and for each visit by a campaign. Nothing in it is personal.';
COMMENT ON COLUMN views.touch.touch_id IS 'The event. It begins with the time at which it was recorded.';
COMMENT ON COLUMN views.touch.lead_id IS 'Whom the arrival came to, before any join; empty for a visit, and kept after an erasure.';
COMMENT ON COLUMN views.touch.kind IS 'created, merged or visit.';
COMMENT ON COLUMN views.touch.source IS 'Empty for a visit.';
COMMENT ON COLUMN views.touch.first IS 'An entry of the source history: the first arrival of its lead, after joins, from this source.';
COMMENT ON COLUMN views.touch.credential IS 'token:{id}, user:{sub}, intake:{id} or system:{what}.';
COMMENT ON COLUMN views.touch.visitor IS 'Stream of the visitor: whose visit it is, or whom the arrival links with the lead; empty: none.';
COMMENT ON COLUMN views.touch.erased IS 'The person is forgotten.';
COMMENT ON COLUMN views.touch.stage IS 'Of a lead that the arrival created, folded; else empty.';
COMMENT ON COLUMN views.touch.value IS 'Of the opportunity, as the arrival gave it; else empty.';
COMMENT ON COLUMN views.touch.key_id IS 'The key that sealed the event; 0: none.';
COMMENT ON COLUMN views.touch.revision IS 'Of the event in its stream.';
COMMENT ON COLUMN views.touch.position IS 'Position on the log of the event.';
COMMENT ON COLUMN views.touch.account IS 'The account of the touch.';
COMMENT ON COLUMN views.touch.at IS 'When the person came.';
COMMENT ON COLUMN views.touch.utm_source IS 'The parameter utm_source of the arrival or visit; empty: none.';
COMMENT ON COLUMN views.touch.utm_medium IS 'The parameter utm_medium; empty: none.';
COMMENT ON COLUMN views.touch.utm_campaign IS 'The parameter utm_campaign; empty: none.';
COMMENT ON COLUMN views.touch.utm_id IS 'The parameter utm_id; empty: none.';
COMMENT ON COLUMN views.touch.intake_id IS 'The intake that took the arrival; empty: none.';

CREATE TABLE views.touch_personal (
    position   bigint NOT NULL,
    account    text   COLLATE "C" NOT NULL,
    metadata   json   NOT NULL,
    ip         text   NOT NULL,
    user_agent text   NOT NULL,
    request_id text   NOT NULL,
    changed    json   NOT NULL,
    CONSTRAINT touch_personal_position PRIMARY KEY (position)
);

COMMENT ON TABLE views.touch_personal IS 'What is personal in a touch. It has no row for one that is erased.';
COMMENT ON COLUMN views.touch_personal.changed IS 'The lead''s fields that the arrival set.';
COMMENT ON COLUMN views.touch_personal.metadata IS 'As the arrival gave it. Of a visit: the parameters of the URL, with page_url and referrer.';
COMMENT ON COLUMN views.touch_personal.position IS 'Position on the log, as in touch.';
COMMENT ON COLUMN views.touch_personal.account IS 'The account of the touch.';
COMMENT ON COLUMN views.touch_personal.ip IS 'Address that the request came from.';
COMMENT ON COLUMN views.touch_personal.user_agent IS 'Program that sent the request.';
COMMENT ON COLUMN views.touch_personal.request_id IS 'Id of the request.';

CREATE TABLE views.touch_owner (
    position bigint  NOT NULL,
    since    bigint  NOT NULL,
    owner    text    COLLATE "C" NOT NULL,
    account  text    COLLATE "C" NOT NULL,
    begins   boolean NOT NULL,
    CONSTRAINT touch_owner_touch PRIMARY KEY (position, since)
);

CREATE INDEX touch_owner_lead ON views.touch_owner (owner, position);

CREATE TABLE views.lead_change (
    position bigint      NOT NULL,
    account  text        COLLATE "C" NOT NULL,
    lead_id  text        COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    stage    text        COLLATE "C" NOT NULL,
    value    text        COLLATE "C" NOT NULL,
    CONSTRAINT lead_change_position PRIMARY KEY (position, lead_id)
);

CREATE INDEX lead_change_lead ON views.lead_change (lead_id);
CREATE INDEX lead_change_stage ON views.lead_change (account, stage, lead_id) WHERE stage <> '';

COMMENT ON TABLE views.lead_change IS 'Each stage that a lead was put at, but for the one that new leads are at, each value that no arrival gave, and what joins and splits set, in the order of the log. A lead that became part of another is at stage U+0001.';
COMMENT ON COLUMN views.lead_change.stage IS 'Folded, for it is compared without regard to case; empty: it stays.';
COMMENT ON COLUMN views.lead_change.value IS 'Of the opportunity; empty: it stays.';
COMMENT ON COLUMN views.lead_change.position IS 'Position on the log of the change.';
COMMENT ON COLUMN views.lead_change.account IS 'The account of the lead.';
COMMENT ON COLUMN views.lead_change.lead_id IS 'The lead that changed.';
COMMENT ON COLUMN views.lead_change.at IS 'When it changed.';

CREATE TABLE views.won_stages (
    position bigint      NOT NULL,
    account  text        COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    stages   jsonb       NOT NULL,
    first    text        COLLATE "C" NOT NULL,
    CONSTRAINT won_stages_position PRIMARY KEY (position)
);

CREATE INDEX won_stages_account ON views.won_stages (account, position);

COMMENT ON TABLE views.won_stages IS 'The stages that count as a conversion, folded, from each setting of an account on.';
COMMENT ON COLUMN views.won_stages.first IS 'Of the pipeline, folded: where new leads are.';
COMMENT ON COLUMN views.won_stages.position IS 'Position on the log of the setting.';
COMMENT ON COLUMN views.won_stages.account IS 'The account.';
COMMENT ON COLUMN views.won_stages.at IS 'When it was set.';
COMMENT ON COLUMN views.won_stages.stages IS 'The stages, folded.';

CREATE TABLE views.spend (
    position     bigint      NOT NULL,
    ordinal      integer     NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    day          date        NOT NULL,
    source       text        COLLATE "C" NOT NULL,
    utm_source   text        COLLATE "C" NOT NULL,
    utm_medium   text        COLLATE "C" NOT NULL,
    utm_campaign text        COLLATE "C" NOT NULL,
    amount       text        COLLATE "C" NOT NULL,
    CONSTRAINT spend_position PRIMARY KEY (position, ordinal)
);

CREATE INDEX spend_day ON views.spend (account, day, source, utm_source, utm_medium, utm_campaign, position DESC);

COMMENT ON TABLE views.spend IS 'What days of advertising cost, in the order of the log: of a day and key the last row up to a position counts.';
COMMENT ON COLUMN views.spend.position IS 'Of the event on the log.';
COMMENT ON COLUMN views.spend.account IS 'The account that paid.';
COMMENT ON COLUMN views.spend.day IS 'The day, in UTC.';
COMMENT ON COLUMN views.spend.utm_source IS 'utm_source of the key; empty: it has none.';
COMMENT ON COLUMN views.spend.utm_medium IS 'utm_medium of the key; empty: it has none.';
COMMENT ON COLUMN views.spend.utm_campaign IS 'utm_campaign of the key; empty: it has none.';
COMMENT ON COLUMN views.spend.ordinal IS 'Of the row in its event.';
COMMENT ON COLUMN views.spend.at IS 'When it was recorded.';
COMMENT ON COLUMN views.spend.source IS 'Empty: the key has none, and so in the columns behind.';
COMMENT ON COLUMN views.spend.amount IS 'Decimal, in the account''s currency.';

-- Made of the tables above in the background, lead by lead, so that a report reads a row for each conversion and not all touches.
CREATE TABLE views.conversion (
    lead_id     text        COLLATE "C" NOT NULL,
    since       bigint      NOT NULL,
    until       bigint      NOT NULL,
    account     text        COLLATE "C" NOT NULL,
    at          timestamptz NOT NULL,
    value       text        COLLATE "C" NOT NULL,
    touches     bytea       NOT NULL,
    source      bytea       NOT NULL,
    medium      bytea       NOT NULL,
    campaign    bytea       NOT NULL,
    utm_source  bytea       NOT NULL,
    intake      bytea       NOT NULL,
    credential  bytea       NOT NULL,
    CONSTRAINT conversion_lead PRIMARY KEY (lead_id, since)
);

CREATE INDEX conversion_at ON views.conversion (account, at);

COMMENT ON TABLE views.conversion IS 'When leads were won, as of the positions from since on and before until. The columns of bytea are for the reports of the service.';
COMMENT ON COLUMN views.conversion.touches IS 'The touches of the longest window, without their keys: schema.AppendTouch.';
COMMENT ON COLUMN views.conversion.source IS 'The source of each touch: schema.AppendKey.';
COMMENT ON COLUMN views.conversion.lead_id IS 'The lead that was won.';
COMMENT ON COLUMN views.conversion.since IS 'The first position on the log as of which the row holds.';
COMMENT ON COLUMN views.conversion.until IS 'The position from which it no longer holds; 9223372036854775807: it holds now.';
COMMENT ON COLUMN views.conversion.account IS 'The account of the lead.';
COMMENT ON COLUMN views.conversion.at IS 'When the lead was won.';
COMMENT ON COLUMN views.conversion.value IS 'Value of the opportunity, with four decimals.';
COMMENT ON COLUMN views.conversion.medium IS 'utm_medium of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.campaign IS 'utm_campaign of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.utm_source IS 'utm_source of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.intake IS 'Intake of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.credential IS 'Credential of each touch, encoded as source.';

CREATE TABLE views.conversion_state (
    position bigint NOT NULL,
    settings bigint NOT NULL,
    CONSTRAINT conversion_state_position PRIMARY KEY (position)
);

COMMENT ON TABLE views.conversion_state IS 'One row: up to which position conversions are made.';
COMMENT ON COLUMN views.conversion_state.settings IS 'The last of won_stages when the first conversions were made: all rows are made by the settings up to it.';
COMMENT ON COLUMN views.conversion_state.position IS 'Conversions by events up to this position on the log are made.';

CREATE TABLE views.conversion_sweep (
    account  text        COLLATE "C" NOT NULL,
    position bigint      NOT NULL,
    at       timestamptz NOT NULL,
    touch    bigint      NOT NULL,
    leads    bigint      NOT NULL,
    CONSTRAINT conversion_sweep_account PRIMARY KEY (account)
);

COMMENT ON TABLE views.conversion_sweep IS 'Accounts whose won stages changed: conversions of leads that were created after the touch at this time are made by the earlier stages.';
COMMENT ON COLUMN views.conversion_sweep.position IS 'The first such change. Reports as of an earlier position are complete.';
COMMENT ON COLUMN views.conversion_sweep.leads IS 'How many leads the sweep has passed.';
COMMENT ON COLUMN views.conversion_sweep.account IS 'The account.';
COMMENT ON COLUMN views.conversion_sweep.at IS 'Time of the touch that the sweep has reached.';
COMMENT ON COLUMN views.conversion_sweep.touch IS 'Position of this touch on the log.';

COMMENT ON TABLE views.touch_owner IS 'Which lead an arrival belongs to from a position on, after joins and splits: the last row up to a position says it. One without a row belongs to the lead that it came to.';
COMMENT ON COLUMN views.touch_owner.begins IS 'The first arrival of a lead that a split created.';
COMMENT ON COLUMN views.touch_owner.position IS 'Position on the log of the arrival, as in touch.';
COMMENT ON COLUMN views.touch_owner.since IS 'The position from which the arrival belongs to the owner.';
COMMENT ON COLUMN views.touch_owner.owner IS 'The lead that it belongs to.';
COMMENT ON COLUMN views.touch_owner.account IS 'The account of the lead.';

CREATE TABLE views.token (
    token_id     text        COLLATE "C" NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    name         text        NOT NULL,
    prefix       text        NOT NULL,
    expires_at   timestamptz NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text        NOT NULL,
    rotated_at   timestamptz,
    deleted_at   timestamptz,
    last_used_at timestamptz,
    announced_at timestamptz,
    CONSTRAINT token_id PRIMARY KEY (token_id)
);

CREATE INDEX token_newest ON views.token (account, created_at DESC, token_id DESC);
CREATE INDEX token_unannounced ON views.token (expires_at) WHERE deleted_at IS NULL AND announced_at IS NULL;

COMMENT ON TABLE views.token IS 'API tokens, deleted ones too. Neither values nor their hashes.';
COMMENT ON COLUMN views.token.last_used_at IS 'Of the latest sample, which is the first use of its minute.';
COMMENT ON COLUMN views.token.announced_at IS 'When token.expiring was recorded for the present expiry; NULL: not yet.';
COMMENT ON COLUMN views.token.token_id IS 'Id of the token.';
COMMENT ON COLUMN views.token.account IS 'The account that it is of.';
COMMENT ON COLUMN views.token.name IS 'What the account calls it.';
COMMENT ON COLUMN views.token.prefix IS 'The first characters of its value, to recognize it by.';
COMMENT ON COLUMN views.token.expires_at IS 'When it expires.';
COMMENT ON COLUMN views.token.created_at IS 'When it was created.';
COMMENT ON COLUMN views.token.created_by IS 'Who created it.';
COMMENT ON COLUMN views.token.rotated_at IS 'When its value was last replaced; NULL: never.';
COMMENT ON COLUMN views.token.deleted_at IS 'When it was deleted; NULL: it is not.';

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
    digest     text        NOT NULL DEFAULT '',
    leaf       bigint      NOT NULL DEFAULT -1,
    CONSTRAINT token_event_position PRIMARY KEY (position)
);

CREATE INDEX token_event_account ON views.token_event (account, position);
CREATE INDEX token_event_token ON views.token_event (token_id, position);
CREATE INDEX token_event_type ON views.token_event (account, type, position);
CREATE INDEX token_event_at ON views.token_event (account, at);

COMMENT ON TABLE views.token_event IS 'What happened to API tokens: who did it, from where, by which request.';
COMMENT ON COLUMN views.token_event.type IS 'Public name, without version.';
COMMENT ON COLUMN views.token_event.data IS 'Without the hash of the value.';
COMMENT ON COLUMN views.token_event.digest IS 'Hash of its leaf in the tree of the log, in hexadecimal.';
COMMENT ON COLUMN views.token_event.leaf IS 'Index in the account''s tree, from 0; -1 in rows of before there was one.';
COMMENT ON COLUMN views.token_event.position IS 'Position on the log of the event.';
COMMENT ON COLUMN views.token_event.event_id IS 'Id of the event.';
COMMENT ON COLUMN views.token_event.token_id IS 'The token.';
COMMENT ON COLUMN views.token_event.account IS 'The account of the token.';
COMMENT ON COLUMN views.token_event.at IS 'When it happened.';
COMMENT ON COLUMN views.token_event.actor IS 'Who did it.';
COMMENT ON COLUMN views.token_event.ip IS 'Address that the request came from.';
COMMENT ON COLUMN views.token_event.user_agent IS 'Program that sent the request.';
COMMENT ON COLUMN views.token_event.request_id IS 'Id of the request.';

CREATE TABLE views.token_tree (
    account text     COLLATE "C" NOT NULL,
    level   smallint NOT NULL,
    number  bigint   NOT NULL,
    hashes  bytea    NOT NULL CHECK (octet_length(hashes) BETWEEN 32 AND 8192 AND octet_length(hashes) % 32 = 0),
    CONSTRAINT token_tree_tile PRIMARY KEY (account, level, number)
);

ALTER TABLE views.token_tree ALTER COLUMN hashes SET STORAGE EXTERNAL; -- hashes cannot be compressed

COMMENT ON TABLE views.token_tree IS 'Hash tiles of the Merkle tree over each account''s token events, as in audit.tile.';
COMMENT ON COLUMN views.token_tree.account IS 'The account of the tree.';
COMMENT ON COLUMN views.token_tree.level IS 'Level of the tile; 0: its hashes are of leaves.';
COMMENT ON COLUMN views.token_tree.number IS 'Number of the tile on its level, from 0.';
COMMENT ON COLUMN views.token_tree.hashes IS 'Up to 256 hashes of 32 bytes.';

CREATE TABLE views.account (
    account_id       text             COLLATE "C" NOT NULL,
    name             text             NOT NULL,
    features         jsonb            NOT NULL,
    stages           jsonb            NOT NULL,
    region           text             NOT NULL,
    currency         text             NOT NULL,
    rate_limit       double precision,
    rate_burst       bigint,
    tokens_see_leads boolean          NOT NULL,
    visitor_days     integer          NOT NULL,
    quarantine       boolean          NOT NULL,
    quarantine_days  integer          NOT NULL,
    won_stages       jsonb            NOT NULL,
    storage_per_day  bigint           NOT NULL,
    ignored_contacts text[]           NOT NULL,
    shared_after     integer          NOT NULL,
    retention_days   integer          NOT NULL,
    keep_stages      jsonb            NOT NULL,
    mask_in_console  boolean          NOT NULL,
    created_at       timestamptz      NOT NULL,
    updated_at       timestamptz      NOT NULL,
    jwt_not_before   timestamptz,
    CONSTRAINT account_id PRIMARY KEY (account_id)
);

COMMENT ON TABLE views.account IS 'Plans and settings of accounts.';
COMMENT ON COLUMN views.account.currency IS 'ISO 4217 code of the values of leads.';
COMMENT ON COLUMN views.account.tokens_see_leads IS 'Whether answers to API tokens show what earlier arrivals stored.';
COMMENT ON COLUMN views.account.visitor_days IS 'How long a visitor whom no lead is linked with is remembered after the last activity.';
COMMENT ON COLUMN views.account.quarantine IS 'Whether captures by the API whose fields are refused are kept.';
COMMENT ON COLUMN views.account.quarantine_days IS 'How long the body of an arrival is kept.';
COMMENT ON COLUMN views.account.won_stages IS 'The stages that count as a conversion.';
COMMENT ON COLUMN views.account.retention_days IS 'How long a lead is kept after its last arrival or change; 0: without end.';
COMMENT ON COLUMN views.account.keep_stages IS 'The stages whose leads are kept without end.';
COMMENT ON COLUMN views.account.mask_in_console IS 'Whether the console masks personal data until they are revealed.';
COMMENT ON COLUMN views.account.storage_per_day IS 'How many bytes arrivals, captures and activity may append to the log in a day; 0: any.';
COMMENT ON COLUMN views.account.ignored_contacts IS 'Phones and emails that identify no person.';
COMMENT ON COLUMN views.account.shared_after IS 'How many phones, or emails, of one lead make its emails, or phones, shared; 0: never.';
COMMENT ON COLUMN views.account.jwt_not_before IS 'JWTs issued before are refused; NULL: none is for its age.';
COMMENT ON COLUMN views.account.account_id IS 'The account, as the column account of the other tables names it.';
COMMENT ON COLUMN views.account.name IS 'Its name, for people.';
COMMENT ON COLUMN views.account.features IS 'What its plan includes, such as crm_api.';
COMMENT ON COLUMN views.account.stages IS 'The pipeline: its stages in order, in the account''s spelling.';
COMMENT ON COLUMN views.account.region IS 'Region of phones without a country code, such as IN.';
COMMENT ON COLUMN views.account.rate_limit IS 'Captures a second; 0: no limit; NULL: the limit of the service.';
COMMENT ON COLUMN views.account.rate_burst IS 'Burst of captures; NULL: that of the service.';
COMMENT ON COLUMN views.account.created_at IS 'When it was first configured.';
COMMENT ON COLUMN views.account.updated_at IS 'When its settings last changed.';

CREATE TABLE views.endpoint (
    webhook_id      text        COLLATE "C" NOT NULL,
    account         text        COLLATE "C" NOT NULL,
    url             text        NOT NULL,
    events          jsonb       NOT NULL,
    description     text        NOT NULL,
    filter          text        NOT NULL,
    ordering        text        COLLATE "C" NOT NULL,
    rate_limit      float8      NOT NULL,
    header_names    text[]      NOT NULL,
    created_at      timestamptz NOT NULL,
    disabled_reason text        COLLATE "C",
    disabled_at     timestamptz,
    CONSTRAINT endpoint_id PRIMARY KEY (webhook_id)
);

CREATE INDEX endpoint_newest ON views.endpoint (account, created_at DESC, webhook_id DESC);

COMMENT ON TABLE views.endpoint IS 'Webhook endpoints that are there. Their secrets are in secret.webhook.';
COMMENT ON COLUMN views.endpoint.ordering IS 'Empty: none.';
COMMENT ON COLUMN views.endpoint.rate_limit IS 'Attempts a second; 0: no limit.';
COMMENT ON COLUMN views.endpoint.header_names IS 'Of its own headers. Their values are in secret.header.';
COMMENT ON COLUMN views.endpoint.disabled_reason IS 'Null: it is enabled.';
COMMENT ON COLUMN views.endpoint.webhook_id IS 'Id of the endpoint.';
COMMENT ON COLUMN views.endpoint.account IS 'The account that it is of.';
COMMENT ON COLUMN views.endpoint.url IS 'Where deliveries are posted to.';
COMMENT ON COLUMN views.endpoint.events IS 'Types of the events that it gets.';
COMMENT ON COLUMN views.endpoint.description IS 'What the account says about it.';
COMMENT ON COLUMN views.endpoint.filter IS 'Expression that events must match; empty: all do.';
COMMENT ON COLUMN views.endpoint.created_at IS 'When it was registered.';
COMMENT ON COLUMN views.endpoint.disabled_at IS 'When it was disabled; NULL: it is enabled.';

CREATE TABLE views.intake (
    intake_id    text             COLLATE "C" NOT NULL,
    account      text             COLLATE "C" NOT NULL,
    settings     jsonb            NOT NULL,
    enabled      boolean          NOT NULL,
    expect       interval,
    secret_id    text             COLLATE "C" NOT NULL,
    old_until    timestamptz,
    created_at   timestamptz      NOT NULL,
    enabled_at   timestamptz      NOT NULL,
    silent_since timestamptz,
    failing_since timestamptz,
    demo         boolean          NOT NULL,
    deleted      boolean          NOT NULL DEFAULT false,
    CONSTRAINT intake_id PRIMARY KEY (intake_id)
);

CREATE INDEX intake_newest ON views.intake (account, created_at DESC, intake_id DESC) WHERE NOT deleted;
CREATE INDEX intake_demo ON views.intake (account) WHERE demo;
CREATE INDEX intake_failing ON views.intake (intake_id) WHERE failing_since IS NOT NULL AND NOT deleted;
CREATE INDEX intake_expect ON views.intake (intake_id) WHERE enabled AND NOT deleted AND (expect IS NOT NULL OR silent_since IS NOT NULL);

COMMENT ON TABLE views.intake IS 'Intakes, also the deleted ones. Their secrets are in secret.intake.';
COMMENT ON COLUMN views.intake.demo IS 'It has the account''s demo data.';
COMMENT ON COLUMN views.intake.settings IS 'As on the log: name, kind, source and the others; absent ones have their default.';
COMMENT ON COLUMN views.intake.expect IS 'Its setting expectEvery; NULL: none.';
COMMENT ON COLUMN views.intake.secret_id IS 'Id of the event that set the secrets.';
COMMENT ON COLUMN views.intake.old_until IS 'Until when the secret before a rotation holds too; NULL: it does not.';
COMMENT ON COLUMN views.intake.enabled_at IS 'When it was last enabled.';
COMMENT ON COLUMN views.intake.silent_since IS 'NULL: it is not silent.';
COMMENT ON COLUMN views.intake.failing_since IS 'When the first of the latest arrivals was quarantined; NULL: it does not fail.';
COMMENT ON COLUMN views.intake.intake_id IS 'Id of the intake.';
COMMENT ON COLUMN views.intake.account IS 'The account that it is of.';
COMMENT ON COLUMN views.intake.enabled IS 'Whether it takes arrivals.';
COMMENT ON COLUMN views.intake.created_at IS 'When it was created.';
COMMENT ON COLUMN views.intake.deleted IS 'Whether it was deleted.';

CREATE TABLE views.intake_run (
    intake_id   text        COLLATE "C" NOT NULL,
    account     text        COLLATE "C" NOT NULL,
    failed      bigint      NOT NULL,
    since       timestamptz,
    arrival_id  text        COLLATE "C" NOT NULL,
    error       text        NOT NULL,
    captured_at timestamptz,
    CONSTRAINT intake_run_intake PRIMARY KEY (intake_id)
);

CREATE INDEX intake_run_reported ON views.intake_run (intake_id) WHERE failed >= 3;

COMMENT ON TABLE views.intake_run IS 'How the latest arrivals of an intake ended. An intake that never had one quarantined has no row.';
COMMENT ON COLUMN views.intake_run.failed IS 'How many of the latest were quarantined one after the other, but by a pause.';
COMMENT ON COLUMN views.intake_run.since IS 'When the first of them was quarantined; NULL: there is none.';
COMMENT ON COLUMN views.intake_run.arrival_id IS 'The latest of them.';
COMMENT ON COLUMN views.intake_run.error IS 'Why the latest was quarantined.';
COMMENT ON COLUMN views.intake_run.captured_at IS 'When a capture ended the run before; NULL: none did.';
COMMENT ON COLUMN views.intake_run.intake_id IS 'The intake.';
COMMENT ON COLUMN views.intake_run.account IS 'The account of the intake.';

CREATE TABLE views.trail (
    position   bigint      NOT NULL,
    event_id   text        COLLATE "C" NOT NULL,
    account    text        COLLATE "C" NOT NULL,
    type       text        COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    actor      text        COLLATE "C" NOT NULL,
    subject    text        COLLATE "C" NOT NULL,
    ip         text        NOT NULL,
    user_agent text        NOT NULL,
    request_id text        NOT NULL,
    data       json        NOT NULL,
    CONSTRAINT trail_position PRIMARY KEY (position)
);

CREATE INDEX trail_account ON views.trail (account, position);
CREATE INDEX trail_at ON views.trail (account, at);
CREATE INDEX trail_subject ON views.trail (account, subject, position);

COMMENT ON TABLE views.trail IS 'Who did what in an account, and who read personal data. It holds no personal data itself, and no secret.';
COMMENT ON COLUMN views.trail.subject IS 'Id of what the act was about; of a search, what was searched.';
COMMENT ON COLUMN views.trail.ip IS 'Of the actor. Empty for acts on leads, where it is sealed with the person.';
COMMENT ON COLUMN views.trail.data IS 'A changed setting is an object of old and new.';
COMMENT ON COLUMN views.trail.position IS 'Position on the log of the event.';
COMMENT ON COLUMN views.trail.event_id IS 'Id of the event.';
COMMENT ON COLUMN views.trail.account IS 'The account that it happened in.';
COMMENT ON COLUMN views.trail.type IS 'Public name of the event, without version, such as webhook.updated.';
COMMENT ON COLUMN views.trail.at IS 'When it happened.';
COMMENT ON COLUMN views.trail.actor IS 'Who did it.';
COMMENT ON COLUMN views.trail.user_agent IS 'Program that sent the request.';
COMMENT ON COLUMN views.trail.request_id IS 'Id of the request.';

CREATE TABLE views.trail_setting (
    stream   text COLLATE "C" NOT NULL,
    account  text COLLATE "C" NOT NULL,
    settings json NOT NULL,
    CONSTRAINT trail_setting_stream PRIMARY KEY (stream)
);

COMMENT ON TABLE views.trail_setting IS 'The settings of accounts, endpoints and intakes as of their latest event, which the next one is compared with.';
COMMENT ON COLUMN views.trail_setting.stream IS 'Stream of the account, endpoint or intake.';
COMMENT ON COLUMN views.trail_setting.account IS 'The account that it is of.';
COMMENT ON COLUMN views.trail_setting.settings IS 'The settings.';

CREATE TABLE views.time_index (
    position bigint      NOT NULL,
    at       timestamptz NOT NULL,
    CONSTRAINT time_index_position PRIMARY KEY (position)
);

CREATE UNIQUE INDEX time_index_at ON views.time_index (at);

COMMENT ON TABLE views.time_index IS 'An index of the log by time: at most one row a minute.';
COMMENT ON COLUMN views.time_index.position IS 'Of an event, so that every engine can read from here on.';
COMMENT ON COLUMN views.time_index.at IS 'The latest time of all events up to this one.';

CREATE TABLE views.account_index (
    position bigint NOT NULL,
    account  text   COLLATE "C" NOT NULL,
    kind     text   COLLATE "C" NOT NULL,
    CONSTRAINT account_index_key PRIMARY KEY (account, position) INCLUDE (kind)
);

CREATE INDEX account_index_position ON views.account_index (position);

COMMENT ON TABLE views.account_index IS 'An index of the log by account. The log is divided into blocks of some hundred events; a row is the first event of an account and kind in a block.';
COMMENT ON COLUMN views.account_index.position IS 'Of an event, so that every engine can read from here on.';
COMMENT ON COLUMN views.account_index.account IS 'Empty: a block begins here.';
COMMENT ON COLUMN views.account_index.kind IS 'Of event, as change feeds select by: lead, token, webhook, intake or account.';

-- Secrets and keys.
--
-- The log does not have them, so nothing brings them back. When the schema views was dropped to build it again, this file
-- runs again and finds them: from here on everything is made only if it does not exist.

CREATE SCHEMA IF NOT EXISTS secret;

CREATE TABLE IF NOT EXISTS secret.webhook (
    webhook_id text        COLLATE "C" NOT NULL,
    revision   bigint      NOT NULL DEFAULT 0,
    key_id     text        COLLATE "C" NOT NULL,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhook_id PRIMARY KEY (webhook_id)
);

COMMENT ON TABLE secret.webhook IS 'Signing secrets of webhook endpoints, sealed with AES-256-GCM.';
COMMENT ON COLUMN secret.webhook.revision IS 'Of the event of the endpoint that set it.';
COMMENT ON COLUMN secret.webhook.key_id IS 'Which key seals it: first 8 hex digits of the key''s SHA-256.';
COMMENT ON COLUMN secret.webhook.sealed IS 'Nonce of 12 bytes, then the sealed secret and its tag.';

CREATE TABLE IF NOT EXISTS secret.earlier (
    webhook_id text        COLLATE "C" NOT NULL,
    key_id     text        COLLATE "C" NOT NULL,
    sealed     bytea       NOT NULL,
    until      timestamptz NOT NULL
);

CREATE INDEX IF NOT EXISTS earlier_webhook ON secret.earlier (webhook_id, until DESC);

COMMENT ON TABLE secret.earlier IS 'Secrets that were replaced and still sign, beside the one in secret.webhook. Destroyed when their time is up.';

CREATE TABLE IF NOT EXISTS secret.header (
    webhook_id text   COLLATE "C" NOT NULL,
    revision   bigint NOT NULL,
    key_id     text   COLLATE "C" NOT NULL,
    sealed     bytea  NOT NULL,
    CONSTRAINT header_webhook PRIMARY KEY (webhook_id),
    CONSTRAINT header_of FOREIGN KEY (webhook_id) REFERENCES secret.webhook ON DELETE CASCADE
);

COMMENT ON TABLE secret.header IS 'The own headers of webhook endpoints, an object of names and values, sealed with AES-256-GCM.';
COMMENT ON COLUMN secret.header.revision IS 'Of the event of the endpoint that set them.';

CREATE TABLE IF NOT EXISTS secret.intake (
    event_id  text   COLLATE "C" NOT NULL,
    intake_id text   COLLATE "C" NOT NULL,
    ordinal   bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    key_id    text   COLLATE "C" NOT NULL,
    sealed    bytea  NOT NULL,
    CONSTRAINT intake_event_id PRIMARY KEY (event_id)
);

CREATE INDEX IF NOT EXISTS intake_intake ON secret.intake (intake_id, ordinal);

COMMENT ON TABLE secret.intake IS 'Secrets of intakes, sealed with AES-256-GCM. Those of the event that views.intake names count.';
COMMENT ON COLUMN secret.intake.event_id IS 'Of the event that sets them. It may not be on the log yet, or never.';
COMMENT ON COLUMN secret.intake.ordinal IS 'Grows with each set of secrets that is stored.';

-- What is personal on a stream is sealed with the stream's key: without the key the person is erased everywhere. The schema
-- is one of its own, so that it can have an owner and a backup of its own: deploy/docs/forgetting.md. A log in PostgreSQL has the
-- same three tables in its own database. Existing tables may have another owner (deploy/keys.sql) and is left alone.
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

    CREATE TABLE person.content (
        stream  text   COLLATE "C" NOT NULL,
        key_id  bigint NOT NULL,
        hash    bytea  NOT NULL,
        sealed  bytea  NOT NULL,
        pending timestamptz,
        CONSTRAINT content_hash PRIMARY KEY (stream, key_id, hash),
        CONSTRAINT content_key FOREIGN KEY (stream, key_id) REFERENCES person.key ON DELETE CASCADE
    );
    CREATE INDEX content_pending ON person.content (pending) WHERE pending IS NOT NULL;
    ALTER TABLE person.content ALTER COLUMN sealed SET STORAGE EXTERNAL; -- it cannot be compressed
    COMMENT ON TABLE person.content IS 'Large members of events, the bodies of posts, sealed with the key of their stream. They go with the key, and give back their space.';
    COMMENT ON COLUMN person.content.hash IS 'SHA-256 of sealed. The event on the log has it, too.';
    COMMENT ON COLUMN person.content.pending IS 'When the content was stored, if that was before its event. Null: the event is on the log.';

    CREATE TABLE person.destroyed (
        stream text        COLLATE "C" NOT NULL,
        at     timestamptz NOT NULL DEFAULT now(),
        tx     xid8        NOT NULL DEFAULT pg_current_xact_id()
    );
    CREATE INDEX destroyed_tx ON person.destroyed (tx);
    CREATE INDEX destroyed_at ON person.destroyed (at);
    COMMENT ON TABLE person.destroyed IS 'Streams whose keys were destroyed in the last hour, for processes that have them in memory. A notification would show them to every role.';
END
$$;
-- +goose StatementEnd

-- Leases: what one session of the service at a time does, such as running a projector. A lease is a row, which names the session
-- that has it, and ends with that session: PostgreSQL lists the sessions that there are. So it needs no renewal and no clock, and no
-- transaction stays open. It is no advisory lock, because every role that may connect can take those; readers may not enter this schema.

CREATE SCHEMA IF NOT EXISTS lease;

CREATE TABLE IF NOT EXISTS lease.session (
    name    text        COLLATE "C" NOT NULL,
    pid     integer     NOT NULL,
    role    oid         NOT NULL,
    started timestamptz,
    label   text        COLLATE "C",
    CONSTRAINT session_name PRIMARY KEY (name)
);

COMMENT ON TABLE lease.session IS 'The session that holds each lease: its process, its role, when it began and its name.';
COMMENT ON COLUMN lease.session.started IS 'NULL: not known, as of a superuser who acts as another role.';
COMMENT ON COLUMN lease.session.label IS 'The application_name of the session, which ends with a number of the session. A pooler that keeps a session after its client resets it.';

-- PostgreSQL shows every session's process, role and application_name, and when it began only to members of its role.
CREATE OR REPLACE FUNCTION lease.alive(pid integer, role oid, started timestamptz, label text) RETURNS boolean LANGUAGE sql
RETURN EXISTS (
    SELECT FROM pg_stat_get_activity(pid) AS a WHERE a.usesysid = role AND coalesce(a.backend_start = started, true)
       AND coalesce(a.application_name = label, true));

COMMENT ON FUNCTION lease.alive IS 'Whether there is such a session. A transaction reads the list of sessions once: pg_stat_clear_snapshot() has it read again.';

CREATE OR REPLACE VIEW lease.held AS SELECT name FROM lease.session WHERE lease.alive(pid, role, started, label);

-- The row must be read before the list of sessions. A session that began later could otherwise have taken the lease and not be in
-- the list. For the same reason the row is changed only if it is still as it was read.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION lease.acquire(wanted text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    old lease.session;
    own lease.session;
BEGIN
    SELECT * INTO old FROM lease.session WHERE name = wanted;
    IF current_setting('application_name') !~ ' [0-9a-f]{8}$' THEN
        PERFORM set_config('application_name', left(current_setting('application_name'), 50) || ' ' || left(gen_random_uuid()::text, 8), false);
    END IF;
    PERFORM pg_stat_clear_snapshot();
    SELECT wanted, a.pid, a.usesysid, a.backend_start, a.application_name INTO own FROM pg_stat_get_activity(pg_backend_pid()) AS a;
    IF old.name IS NULL THEN
        INSERT INTO lease.session SELECT own.* ON CONFLICT DO NOTHING;
        RETURN FOUND;
    ELSIF lease.alive(old.pid, old.role, old.started, old.label) THEN
        RETURN old.pid = own.pid;
    END IF;
    PERFORM FROM lease.session WHERE session = old FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE lease.session SET pid = own.pid, role = own.role, started = own.started, label = own.label
        WHERE name = wanted;
    RETURN true;
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION lease.acquire IS 'Acquires a lease for this session, unless another has it. Returns whether this session has it.';

-- Deliveries to webhook endpoints.
--
-- They are no view: a row causes a request to another system, and is never made twice. So they too outlive the schema views.

CREATE SCHEMA IF NOT EXISTS delivery;

CREATE TABLE IF NOT EXISTS delivery.checkpoint (
    projector     text        COLLATE "C" NOT NULL,
    version       integer     NOT NULL,
    epoch         text        COLLATE "C" NOT NULL,
    position      bigint      NOT NULL CHECK (position >= 0),
    updated_at    timestamptz NOT NULL,
    seen_stream   text        COLLATE "C",
    seen_revision bigint,
    seen_event    text        COLLATE "C",
    replay        bigint      NOT NULL DEFAULT 0,
    CONSTRAINT checkpoint_projector PRIMARY KEY (projector)
);

CREATE TABLE IF NOT EXISTS delivery.origin (
    epoch    text   COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT origin_epoch PRIMARY KEY (epoch)
);

COMMENT ON TABLE delivery.origin IS 'Up to where nothing is queued from the log any more: where it ended when deliveries began, later where the fan-out was when days were thrown away.';

CREATE TABLE IF NOT EXISTS delivery.endpoint (
    webhook_id   text    COLLATE "C" NOT NULL,
    account      text    COLLATE "C" NOT NULL,
    url          text    NOT NULL,
    events       text[]  NOT NULL,
    filter       text    NOT NULL DEFAULT '',
    ordering     text    COLLATE "C" NOT NULL DEFAULT '',
    rate_limit   float8  NOT NULL DEFAULT 0,
    header_names text[]  NOT NULL DEFAULT '{}',
    deleted      boolean NOT NULL DEFAULT false,
    disabled     boolean NOT NULL DEFAULT false,
    CONSTRAINT endpoint_id PRIMARY KEY (webhook_id)
);

CREATE INDEX IF NOT EXISTS endpoint_account ON delivery.endpoint (account) WHERE NOT deleted;

COMMENT ON TABLE delivery.endpoint IS 'Endpoints as of the checkpoint, for who gets what. Deleted ones stay while rows may wait for them.';
COMMENT ON COLUMN delivery.endpoint.disabled IS 'Nothing is queued for it, and what is queued is cancelled when its turn comes.';

CREATE TABLE IF NOT EXISTS delivery.filter_count (
    webhook_id text   COLLATE "C" NOT NULL,
    filtered   bigint NOT NULL,
    failed     bigint NOT NULL,
    CONSTRAINT filter_count_id PRIMARY KEY (webhook_id)
);

COMMENT ON TABLE delivery.filter_count IS 'Deliveries that were not made because an endpoint''s filter did not match, or could not be computed, since it was set.';

CREATE SEQUENCE IF NOT EXISTS delivery.ordinal;

-- The filters of one account must not delay the deliveries of others.
CREATE TABLE IF NOT EXISTS delivery.deferred (
    event_id    text        COLLATE "C" NOT NULL,
    part        integer     NOT NULL DEFAULT 0,
    account     text        COLLATE "C" NOT NULL,
    ordinal     bigint      NOT NULL DEFAULT nextval('delivery.ordinal'),
    type        text        COLLATE "C" NOT NULL,
    stream      text        COLLATE "C" NOT NULL,
    revision    bigint      NOT NULL,
    position    bigint      NOT NULL,
    webhook_ids text[]      NOT NULL,
    deferred_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT deferred_event PRIMARY KEY (event_id, part)
);

CREATE INDEX IF NOT EXISTS deferred_ordinal ON delivery.deferred (account, ordinal);

COMMENT ON TABLE delivery.deferred IS 'Events that wait until it is an account''s turn to have its filters applied.';
COMMENT ON COLUMN delivery.deferred.ordinal IS 'In the order of the log.';
COMMENT ON COLUMN delivery.deferred.type IS 'Public name, without version.';
COMMENT ON COLUMN delivery.deferred.webhook_ids IS 'The endpoints for which it is not decided yet.';

CREATE TABLE IF NOT EXISTS delivery.health (
    webhook_id      text        COLLATE "C" NOT NULL,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    failing_since   timestamptz,
    CONSTRAINT health_id PRIMARY KEY (webhook_id)
);

COMMENT ON TABLE delivery.health IS 'How attempts at an endpoint went. Written by couriers.';
COMMENT ON COLUMN delivery.health.failing_since IS 'The first failure after the last success. The fan-out clears it when the endpoint is enabled or gets another URL.';

-- Deliveries and attempts have a partition for each day, which is dropped whole. A delivery's id begins with its time, which
-- gives its day, so a key that is unique in its partition is unique in all.
CREATE TABLE IF NOT EXISTS delivery.delivery (
    delivery_id text        COLLATE "C" NOT NULL,
    webhook_id  text        COLLATE "C" NOT NULL,
    event_id    text        COLLATE "C" NOT NULL,
    generation  integer     NOT NULL,
    type        text        COLLATE "C" NOT NULL,
    stream      text        COLLATE "C" NOT NULL,
    revision    bigint      NOT NULL,
    position    bigint      NOT NULL,
    part        integer     NOT NULL DEFAULT 0,
    renderer    integer     NOT NULL,
    state       text        COLLATE "C" NOT NULL DEFAULT 'queued',
    created_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    retried     bigint      NOT NULL DEFAULT 0,
    gave_way    boolean     NOT NULL DEFAULT false,
    CONSTRAINT delivery_id PRIMARY KEY (delivery_id),
    CONSTRAINT delivery_state CHECK (state IN ('queued', 'delivered', 'failed', 'cancelled'))
) PARTITION BY RANGE (delivery_id);

CREATE INDEX IF NOT EXISTS delivery_newest ON delivery.delivery (webhook_id, delivery_id DESC);
-- By this one the deliveries of a person are erased, in the fan-out's transaction, without reading those of a month.
CREATE INDEX IF NOT EXISTS delivery_stream ON delivery.delivery (stream);

COMMENT ON TABLE delivery.delivery IS 'One row for each event that an endpoint is to get, or got.';
COMMENT ON COLUMN delivery.delivery.part IS '0: the event; from 1 on: a consent that it changed.';
COMMENT ON COLUMN delivery.delivery.delivery_id IS 'A function of endpoint, event, part and generation, so that these are unique with it. Its time is that of the event, or of the request to replay it.';
COMMENT ON COLUMN delivery.delivery.generation IS '0: live; each replay is the next.';
COMMENT ON COLUMN delivery.delivery.type IS 'Public name, without version.';
COMMENT ON COLUMN delivery.delivery.renderer IS 'Version of the code that makes the body out of the stream up to the revision.';
COMMENT ON COLUMN delivery.delivery.state IS 'queued: there is a row in the queue.';
COMMENT ON COLUMN delivery.delivery.gave_way IS 'It failed, and the next one of its lane was sent in spite of that.';
COMMENT ON COLUMN delivery.delivery.retried IS 'Position of the last request to retry that was carried out.';

CREATE TABLE IF NOT EXISTS delivery.attempt (
    delivery_id text        COLLATE "C" NOT NULL,
    at          timestamptz NOT NULL,
    status      integer     NOT NULL,
    duration_ms integer     NOT NULL,
    response    text        NOT NULL,
    error       text        NOT NULL,
    CONSTRAINT attempt_at PRIMARY KEY (delivery_id, at)
) PARTITION BY RANGE (delivery_id);

COMMENT ON COLUMN delivery.attempt.status IS '0: there was no answer.';
COMMENT ON COLUMN delivery.attempt.response IS 'The first 1 KiB.';

-- The days of deliveries are dropped, and this is not: a certificate of an erasure may be asked for years later.
CREATE TABLE IF NOT EXISTS delivery.erasure (
    event_id    text        COLLATE "C" NOT NULL,
    webhook_id  text        COLLATE "C" NOT NULL,
    state       text        COLLATE "C" NOT NULL,
    finished_at timestamptz,
    attempts    bigint      NOT NULL,
    status      integer     NOT NULL,
    CONSTRAINT erasure_event PRIMARY KEY (event_id, webhook_id)
);

COMMENT ON TABLE delivery.erasure IS 'What became of lead.erased at each endpoint, as of when the day of the delivery was dropped.';
COMMENT ON COLUMN delivery.erasure.status IS 'Of the last answer; 0: there was none.';

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
    LOCK TABLE delivery.delivery IN SHARE UPDATE EXCLUSIVE MODE; -- as ATTACH PARTITION does
    FOREACH kind IN ARRAY ARRAY['delivery', 'attempt'] LOOP
        CONTINUE WHEN to_regclass('delivery.' || kind || suffix) IS NOT NULL;
        -- Space on the page for the row's next version. Attached rather than created as a partition: that takes no lock.
        EXECUTE format('CREATE TABLE delivery.%I (LIKE delivery.%I INCLUDING ALL) WITH (fillfactor = 80)', kind || suffix, kind);
        EXECUTE format('ALTER TABLE delivery.%I ATTACH PARTITION delivery.%I FOR VALUES FROM (%L) TO (%L)',
                       kind, kind || suffix, delivery.first_id(day), delivery.first_id(day + 1));
    END LOOP;
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION delivery.open_day IS 'Makes the partitions of a day (UTC), unless they are there.';

-- What is still to be sent. A lease is changed in place: no index has it, and the pages have room.
CREATE TABLE IF NOT EXISTS delivery.queue (
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
    event_id    text        COLLATE "C" NOT NULL DEFAULT '',
    retried     bigint      NOT NULL DEFAULT 0,
    generation  integer     NOT NULL DEFAULT 0,
    part        integer     NOT NULL DEFAULT 0,
    lane        text        COLLATE "C",
    ordinal     bigint,
    CONSTRAINT queue_id PRIMARY KEY (delivery_id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- Live deliveries of an endpoint are sent before those of a replay.
CREATE INDEX IF NOT EXISTS queue_due ON delivery.queue (webhook_id, (generation > 0), due_at, position);
-- What a replay waits for. Live deliveries are not in it.
CREATE INDEX IF NOT EXISTS queue_replayed ON delivery.queue (webhook_id, generation) WHERE generation > 0 AND attempts = 0;

CREATE INDEX IF NOT EXISTS queue_lane ON delivery.queue (webhook_id, lane, ordinal) WHERE lane IS NOT NULL;

COMMENT ON TABLE delivery.queue IS 'What is still to be sent. A row goes when its delivery is finished.';
COMMENT ON COLUMN delivery.queue.attempts IS 'Made so far, which is the step of the schedule.';
COMMENT ON COLUMN delivery.queue.lease IS 'The number of the courier that claimed the row; its lease is named after it.';
COMMENT ON COLUMN delivery.queue.event_id IS 'Empty: not known.';
COMMENT ON COLUMN delivery.queue.generation IS '0: live, or retried.';
COMMENT ON COLUMN delivery.queue.retried IS 'Position of the last request to retry. A courier that finds another one than it claimed has to send again.';

COMMENT ON COLUMN delivery.queue.lane IS 'Of deliveries to an endpoint with an order, the first of a lane is sent, and the others wait: the stream, or empty for the whole endpoint. Null: not in order.';
COMMENT ON COLUMN delivery.queue.ordinal IS 'In the lane.';
COMMENT ON COLUMN delivery.queue.due_at IS 'Infinity: another one of its lane comes first.';

-- Writers that add to a lane or take from it lock the endpoint's row before, so that none misses what another does.
CREATE OR REPLACE FUNCTION delivery.advance(webhooks text[], lanes text[]) RETURNS void LANGUAGE sql AS $$
    UPDATE delivery.queue q SET due_at = now()
      FROM (SELECT DISTINCT webhook, lane FROM unnest(webhooks, lanes) AS u (webhook, lane)) u
     WHERE q.due_at = 'infinity'
       AND q.delivery_id = (SELECT n.delivery_id FROM delivery.queue n
                             WHERE n.webhook_id = u.webhook AND n.lane = u.lane ORDER BY n.ordinal LIMIT 1)
$$;

COMMENT ON FUNCTION delivery.advance IS 'Makes the first delivery of each lane due that waited for others.';

CREATE SEQUENCE IF NOT EXISTS delivery.courier AS integer CYCLE;

CREATE TABLE IF NOT EXISTS delivery.replay (
    webhook_id  text        COLLATE "C" NOT NULL,
    generation  integer     NOT NULL,
    request_id  text        COLLATE "C" NOT NULL,
    account     text        COLLATE "C" NOT NULL,
    events      text[]      NOT NULL,
    filter      text        NOT NULL DEFAULT '',
    since       timestamptz NOT NULL,
    until       timestamptz,
    requested   bigint      NOT NULL,
    reached     bigint,
    disabled    boolean     NOT NULL DEFAULT false,
    queued      bigint      NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT now(),
    error       text,
    finished_at timestamptz,
    CONSTRAINT replay_generation PRIMARY KEY (webhook_id, generation)
);

CREATE INDEX IF NOT EXISTS replay_open ON delivery.replay (requested) WHERE finished_at IS NULL;

COMMENT ON TABLE delivery.replay IS 'Requests to send again what happened in a span of time, and how far each has come.';
COMMENT ON COLUMN delivery.replay.request_id IS 'The event that asked for it.';
COMMENT ON COLUMN delivery.replay.events IS 'What the endpoint asked for when the replay was requested.';
COMMENT ON COLUMN delivery.replay.requested IS 'Position of the request: what is behind it goes live.';
COMMENT ON COLUMN delivery.replay.until IS 'Null: up to the request.';
COMMENT ON COLUMN delivery.replay.reached IS 'Everything on the log up to this position is queued. Null: not begun.';
COMMENT ON COLUMN delivery.replay.disabled IS 'Whether the endpoint was disabled at the position reached, since a time within the span.';
COMMENT ON COLUMN delivery.replay.due_at IS 'Nothing is queued before: the account''s budget was used up.';
COMMENT ON COLUMN delivery.replay.error IS 'Why it ended before its end. Its owner reads it.';
COMMENT ON COLUMN delivery.replay.finished_at IS 'When all that it queued had been attempted once, or it ended with an error.';

-- What intakes have to fetch: the view of arrivals says which. Here is when that is tried again.

CREATE TABLE IF NOT EXISTS delivery.fetch (
    arrival_id text        COLLATE "C" NOT NULL,
    attempts   integer     NOT NULL,
    due_at     timestamptz NOT NULL,
    CONSTRAINT fetch_arrival PRIMARY KEY (arrival_id)
);

COMMENT ON TABLE delivery.fetch IS 'Arrivals whose content could not be fetched, until they are tried again.';

CREATE TABLE IF NOT EXISTS delivery.fetch_failure (
    intake_id text        COLLATE "C" NOT NULL,
    error     text        NOT NULL,
    failed_at timestamptz NOT NULL,
    CONSTRAINT fetch_failure_intake PRIMARY KEY (intake_id)
);

COMMENT ON TABLE delivery.fetch_failure IS 'Why the latest fetch of an intake failed. Its owner reads it; the next success removes it.';

-- Counted as deliveries are queued: counting those of a month takes longer the more there are.
CREATE TABLE IF NOT EXISTS delivery.account_day (
    account text   COLLATE "C" NOT NULL,
    day     date   NOT NULL,
    queued  bigint NOT NULL,
    CONSTRAINT account_day_key PRIMARY KEY (account, day)
) WITH (fillfactor = 50);

COMMENT ON TABLE delivery.account_day IS 'How many deliveries of a day (UTC) an account''s endpoints had, those of forgotten persons too.';

-- Requests to capture quarantined arrivals again. They too outlive the schema views.

CREATE SCHEMA IF NOT EXISTS arrival;

CREATE TABLE IF NOT EXISTS arrival.resubmission (
    resubmission_id text        COLLATE "C" NOT NULL,
    account         text        COLLATE "C" NOT NULL,
    intake_id       text        COLLATE "C" NOT NULL,
    since           timestamptz,
    until           timestamptz,
    last            bigint      NOT NULL,
    reached         bigint      NOT NULL DEFAULT 0,
    arrivals        bigint      NOT NULL DEFAULT 0,
    actor           text        NOT NULL,
    credential      text        NOT NULL,
    request_id      text        NOT NULL,
    claimed_until   timestamptz NOT NULL DEFAULT '-infinity',
    finished_at     timestamptz,
    CONSTRAINT resubmission_id PRIMARY KEY (resubmission_id)
);

CREATE INDEX IF NOT EXISTS resubmission_account ON arrival.resubmission (account, resubmission_id);
CREATE UNIQUE INDEX IF NOT EXISTS resubmission_open
    ON arrival.resubmission (account, intake_id, coalesce(since, '-infinity'), coalesce(until, 'infinity')) WHERE finished_at IS NULL;

COMMENT ON TABLE arrival.resubmission IS 'Requests to capture again what is quarantined at an intake, and how far each has come.';
COMMENT ON COLUMN arrival.resubmission.last IS 'The end of the log when it was requested.';
COMMENT ON COLUMN arrival.resubmission.reached IS 'The latest arrival that was captured again, by its position.';
COMMENT ON COLUMN arrival.resubmission.actor IS 'Who asked.';
COMMENT ON COLUMN arrival.resubmission.claimed_until IS 'Until when a worker processes it or, in the past, when one last did.';

-- Files of leads that were uploaded, and their imports. They too outlive the schema views.

CREATE TABLE IF NOT EXISTS arrival.import (
    run_id        text        COLLATE "C" NOT NULL,
    account       text        COLLATE "C" NOT NULL,
    actor         text        NOT NULL,
    name          text        NOT NULL,
    size          bigint      NOT NULL DEFAULT 0,
    options       json        NOT NULL,
    state         text        NOT NULL,
    task          text        NOT NULL DEFAULT '',
    report        json,
    result        json,
    rows          bigint      NOT NULL DEFAULT 0,
    total         bigint      NOT NULL DEFAULT 0,
    error         text        NOT NULL DEFAULT '',
    began         bigint      NOT NULL DEFAULT 0,
    claim         text        NOT NULL DEFAULT '',
    claimed_until timestamptz NOT NULL DEFAULT '-infinity',
    expires_at    timestamptz NOT NULL,
    CONSTRAINT import_run PRIMARY KEY (run_id)
);

CREATE INDEX IF NOT EXISTS import_account ON arrival.import (account, run_id);
CREATE INDEX IF NOT EXISTS import_task ON arrival.import (run_id) WHERE task <> '';
CREATE INDEX IF NOT EXISTS import_expiry ON arrival.import (expires_at);

COMMENT ON TABLE arrival.import IS 'Uploaded files of leads, until they expire: how each is read, and how far its import has come.';
COMMENT ON COLUMN arrival.import.task IS 'What a worker does next or now: check, try, import or undo; empty for nothing.';
COMMENT ON COLUMN arrival.import.began IS 'The end of the log before the import.';
COMMENT ON COLUMN arrival.import.claim IS 'Of the worker that does the task.';

CREATE TABLE IF NOT EXISTS arrival.import_part (
    run_id  text    COLLATE "C" NOT NULL REFERENCES arrival.import ON DELETE CASCADE,
    file    text    NOT NULL,
    part    integer NOT NULL,
    content bytea   NOT NULL,
    CONSTRAINT import_part_number PRIMARY KEY (run_id, file, part)
);

COMMENT ON TABLE arrival.import_part IS 'The parts of an uploaded file, which are deleted when its import ends, and of its outcome.';

-- The tree of the whole log, and what was signed of it.
--
-- It is a fold of the log, but no view: what was published must never change, so it is never replaced. Built again, it is compared.

CREATE SCHEMA IF NOT EXISTS audit;

CREATE TABLE IF NOT EXISTS audit.tree (
    origin        text        COLLATE "C" NOT NULL,
    epoch         text        COLLATE "C" NOT NULL,
    position      bigint      NOT NULL CHECK (position >= 0),
    size          bigint      NOT NULL CHECK (size >= 0),
    seen_stream   text        COLLATE "C" NOT NULL,
    seen_revision bigint      NOT NULL,
    seen_event    text        COLLATE "C" NOT NULL,
    fault         text        NOT NULL DEFAULT '',
    updated_at    timestamptz NOT NULL,
    CONSTRAINT tree_origin PRIMARY KEY (origin)
);

COMMENT ON TABLE audit.tree IS 'How far the log is in its tree. Written in the transaction that writes the tiles.';
COMMENT ON COLUMN audit.tree.origin IS 'The name of the log in its checkpoints.';
COMMENT ON COLUMN audit.tree.seen_event IS 'The last leaf, at seen_revision of seen_stream; empty: none.';
COMMENT ON COLUMN audit.tree.fault IS 'Why nothing more is signed, such as a log that is not the one that was published; empty: nothing is wrong.';

CREATE TABLE IF NOT EXISTS audit.tile (
    origin text     COLLATE "C" NOT NULL,
    level  smallint NOT NULL,
    number bigint   NOT NULL,
    after  bigint,
    hashes bytea    NOT NULL CHECK (octet_length(hashes) BETWEEN 32 AND 8192 AND octet_length(hashes) % 32 = 0),
    CONSTRAINT tile_number PRIMARY KEY (origin, level, number)
);

ALTER TABLE audit.tile ALTER COLUMN hashes SET STORAGE EXTERNAL; -- hashes cannot be compressed

CREATE INDEX IF NOT EXISTS tile_after ON audit.tile (origin, after) WHERE level = 0;

COMMENT ON TABLE audit.tile IS 'Hash tiles of the tree, as c2sp.org/tlog-tiles has them: up to 256 hashes of 32 bytes.';
COMMENT ON COLUMN audit.tile.after IS 'Level 0: the position on the log of the event before the first leaf; 0: there is none. NULL: not known since the log was replaced.';

CREATE TABLE IF NOT EXISTS audit.checkpoint (
    origin       text        COLLATE "C" NOT NULL,
    size         bigint      NOT NULL,
    root         bytea       NOT NULL CHECK (octet_length(root) = 32),
    note         text        NOT NULL,
    signed_at    timestamptz NOT NULL,
    published_at timestamptz,
    CONSTRAINT checkpoint_size PRIMARY KEY (origin, size)
);

COMMENT ON TABLE audit.checkpoint IS 'Signed checkpoints: the latest that is published, and the one that witnesses are asked for. The tree up to the largest never changes.';
COMMENT ON COLUMN audit.checkpoint.note IS 'The signed note, with the cosignatures that there are.';
COMMENT ON COLUMN audit.checkpoint.published_at IS 'NULL: it has not enough cosignatures yet.';

CREATE TABLE IF NOT EXISTS audit.witness (
    origin        text        COLLATE "C" NOT NULL,
    key           text        COLLATE "C" NOT NULL,
    size          bigint      NOT NULL DEFAULT 0,
    cosigned_at   timestamptz,
    refused_since timestamptz,
    reason        text        NOT NULL DEFAULT '',
    CONSTRAINT witness_key PRIMARY KEY (origin, key)
);

COMMENT ON TABLE audit.witness IS 'What each witness last said to a checkpoint.';
COMMENT ON COLUMN audit.witness.key IS 'The verifier key, as LEADLOG_WITNESSES has it.';
COMMENT ON COLUMN audit.witness.size IS 'Of the latest checkpoint that it has seen.';
COMMENT ON COLUMN audit.witness.reason IS 'Why it does not cosign; empty: it does.';

-- Quotas that all processes share.

CREATE SCHEMA IF NOT EXISTS quota;

-- Not logged: after a crash every bucket is full, and no write to one waits for the disk.
CREATE UNLOGGED TABLE IF NOT EXISTS quota.bucket (
    key    text             COLLATE "C" NOT NULL,
    tokens double precision NOT NULL,
    at     timestamptz      NOT NULL,
    rate   double precision NOT NULL,
    lent   bigint           NOT NULL,
    CONSTRAINT bucket_key PRIMARY KEY (key)
) WITH (fillfactor = 50);

COMMENT ON TABLE quota.bucket IS 'The token buckets that all processes share, which take a handful at a time.';
COMMENT ON COLUMN quota.bucket.tokens IS 'How many there were at that time.';
COMMENT ON COLUMN quota.bucket.rate IS 'Tokens a second, when it was used last.';
COMMENT ON COLUMN quota.bucket.lent IS 'How many were taken at that time.';
