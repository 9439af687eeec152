-- What the migrations come to. Written by: go test ./projection/schema -update

CREATE TABLE delivery.account_day (
    account text COLLATE "C" NOT NULL,
    day date NOT NULL,
    queued bigint NOT NULL,
    CONSTRAINT account_day_key PRIMARY KEY (account, day)
) WITH (fillfactor=50);
COMMENT ON TABLE delivery.account_day IS 'How many deliveries of a day (UTC) an account''s endpoints had, those of forgotten persons too.';

CREATE TABLE delivery.attempt (
    delivery_id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    status integer NOT NULL,
    duration_ms integer NOT NULL,
    response text NOT NULL,
    error text NOT NULL,
    CONSTRAINT attempt_at PRIMARY KEY (delivery_id, at)
) PARTITION BY RANGE (delivery_id);
COMMENT ON COLUMN delivery.attempt.status IS '0: there was no answer.';
COMMENT ON COLUMN delivery.attempt.response IS 'The first 1 KiB.';

CREATE TABLE delivery.checkpoint (
    projector text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    epoch text COLLATE "C" NOT NULL,
    "position" bigint NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    seen_stream text COLLATE "C",
    seen_revision bigint,
    seen_event text COLLATE "C",
    replay bigint NOT NULL DEFAULT 0,
    CONSTRAINT checkpoint_position_check CHECK (("position" >= 0)),
    CONSTRAINT checkpoint_projector PRIMARY KEY (projector)
);

CREATE TABLE delivery.deferred (
    event_id text COLLATE "C" NOT NULL,
    part integer NOT NULL DEFAULT 0,
    account text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL DEFAULT nextval('delivery.ordinal'::regclass),
    type text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    "position" bigint NOT NULL,
    webhook_ids text[] NOT NULL,
    deferred_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT deferred_event PRIMARY KEY (event_id, part)
);
CREATE INDEX deferred_ordinal ON delivery.deferred USING btree (account, ordinal);
COMMENT ON TABLE delivery.deferred IS 'Events that wait until it is an account''s turn to have its filters applied.';
COMMENT ON COLUMN delivery.deferred.ordinal IS 'In the order of the log.';
COMMENT ON COLUMN delivery.deferred.type IS 'Public name, without version.';
COMMENT ON COLUMN delivery.deferred.webhook_ids IS 'The endpoints for which it is not decided yet.';

CREATE TABLE delivery.delivery (
    delivery_id text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    type text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    "position" bigint NOT NULL,
    part integer NOT NULL DEFAULT 0,
    renderer integer NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'queued'::text,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    finished_at timestamp with time zone,
    retried bigint NOT NULL DEFAULT 0,
    gave_way boolean NOT NULL DEFAULT false,
    CONSTRAINT delivery_id PRIMARY KEY (delivery_id),
    CONSTRAINT delivery_state CHECK ((state = ANY (ARRAY['queued'::text, 'delivered'::text, 'failed'::text, 'cancelled'::text])))
) PARTITION BY RANGE (delivery_id);
CREATE INDEX delivery_newest ON ONLY delivery.delivery USING btree (webhook_id, delivery_id DESC);
CREATE INDEX delivery_stream ON ONLY delivery.delivery USING btree (stream);
COMMENT ON TABLE delivery.delivery IS 'One row for each event that an endpoint is to get, or got.';
COMMENT ON COLUMN delivery.delivery.delivery_id IS 'A function of endpoint, event, part and generation, so that these are unique with it. Its time is that of the event, or of the request to replay it.';
COMMENT ON COLUMN delivery.delivery.generation IS '0: live; each replay is the next.';
COMMENT ON COLUMN delivery.delivery.type IS 'Public name, without version.';
COMMENT ON COLUMN delivery.delivery.part IS '0: the event; from 1 on: a consent that it changed.';
COMMENT ON COLUMN delivery.delivery.renderer IS 'Version of the code that makes the body out of the stream up to the revision.';
COMMENT ON COLUMN delivery.delivery.state IS 'queued: there is a row in the queue.';
COMMENT ON COLUMN delivery.delivery.retried IS 'Position of the last request to retry that was carried out.';
COMMENT ON COLUMN delivery.delivery.gave_way IS 'It failed, and the next one of its lane was sent in spite of that.';

CREATE TABLE delivery.endpoint (
    webhook_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    url text NOT NULL,
    events text[] NOT NULL,
    filter text NOT NULL DEFAULT ''::text,
    ordering text COLLATE "C" NOT NULL DEFAULT ''::text,
    rate_limit double precision NOT NULL DEFAULT 0,
    header_names text[] NOT NULL DEFAULT '{}'::text[],
    deleted boolean NOT NULL DEFAULT false,
    disabled boolean NOT NULL DEFAULT false,
    CONSTRAINT endpoint_id PRIMARY KEY (webhook_id)
);
CREATE INDEX endpoint_account ON delivery.endpoint USING btree (account) WHERE (NOT deleted);
COMMENT ON TABLE delivery.endpoint IS 'Endpoints as of the checkpoint, for who gets what. Deleted ones stay while rows may wait for them.';
COMMENT ON COLUMN delivery.endpoint.disabled IS 'Nothing is queued for it, and what is queued is cancelled when its turn comes.';

CREATE TABLE delivery.erasure (
    event_id text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    finished_at timestamp with time zone,
    attempts bigint NOT NULL,
    status integer NOT NULL,
    CONSTRAINT erasure_event PRIMARY KEY (event_id, webhook_id)
);
COMMENT ON TABLE delivery.erasure IS 'What became of lead.erased at each endpoint, as of when the day of the delivery was dropped.';
COMMENT ON COLUMN delivery.erasure.status IS 'Of the last answer; 0: there was none.';

CREATE TABLE delivery."fetch" (
    arrival_id text COLLATE "C" NOT NULL,
    attempts integer NOT NULL,
    due_at timestamp with time zone NOT NULL,
    CONSTRAINT fetch_arrival PRIMARY KEY (arrival_id)
);
COMMENT ON TABLE delivery."fetch" IS 'Arrivals whose content could not be fetched, until they are tried again.';

CREATE TABLE delivery.fetch_failure (
    intake_id text COLLATE "C" NOT NULL,
    error text NOT NULL,
    failed_at timestamp with time zone NOT NULL,
    CONSTRAINT fetch_failure_intake PRIMARY KEY (intake_id)
);
COMMENT ON TABLE delivery.fetch_failure IS 'Why the latest fetch of an intake failed. Its owner reads it; the next success removes it.';

CREATE TABLE delivery.filter_count (
    webhook_id text COLLATE "C" NOT NULL,
    filtered bigint NOT NULL,
    failed bigint NOT NULL,
    CONSTRAINT filter_count_id PRIMARY KEY (webhook_id)
);
COMMENT ON TABLE delivery.filter_count IS 'Deliveries that were not made because an endpoint''s filter did not match, or could not be computed, since it was set.';

CREATE TABLE delivery.health (
    webhook_id text COLLATE "C" NOT NULL,
    last_success_at timestamp with time zone,
    last_failure_at timestamp with time zone,
    failing_since timestamp with time zone,
    CONSTRAINT health_id PRIMARY KEY (webhook_id)
);
COMMENT ON TABLE delivery.health IS 'How attempts at an endpoint went. Written by couriers.';
COMMENT ON COLUMN delivery.health.failing_since IS 'The first failure after the last success. The fan-out clears it when the endpoint is enabled or gets another URL.';

CREATE TABLE delivery.origin (
    epoch text COLLATE "C" NOT NULL,
    "position" bigint NOT NULL,
    CONSTRAINT origin_epoch PRIMARY KEY (epoch)
);
COMMENT ON TABLE delivery.origin IS 'Up to where nothing is queued from the log any more: where it ended when deliveries began, later where the fan-out was when days were thrown away.';

CREATE TABLE delivery.queue (
    delivery_id text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    "position" bigint NOT NULL,
    renderer integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    lease integer,
    event_id text COLLATE "C" NOT NULL DEFAULT ''::text,
    retried bigint NOT NULL DEFAULT 0,
    generation integer NOT NULL DEFAULT 0,
    part integer NOT NULL DEFAULT 0,
    lane text COLLATE "C",
    ordinal bigint,
    CONSTRAINT queue_id PRIMARY KEY (delivery_id)
) WITH (fillfactor=60, autovacuum_vacuum_scale_factor=0.05);
CREATE INDEX queue_due ON delivery.queue USING btree (webhook_id, ((generation > 0)), due_at, "position");
CREATE INDEX queue_lane ON delivery.queue USING btree (webhook_id, lane, ordinal) WHERE (lane IS NOT NULL);
CREATE INDEX queue_replayed ON delivery.queue USING btree (webhook_id, generation) WHERE ((generation > 0) AND (attempts = 0));
COMMENT ON TABLE delivery.queue IS 'What is still to be sent. A row goes when its delivery is finished.';
COMMENT ON COLUMN delivery.queue.attempts IS 'Made so far, which is the step of the schedule.';
COMMENT ON COLUMN delivery.queue.due_at IS 'Infinity: another one of its lane comes first.';
COMMENT ON COLUMN delivery.queue.lease IS 'The number of the courier that claimed the row; its lease is named after it.';
COMMENT ON COLUMN delivery.queue.event_id IS 'Empty: not known.';
COMMENT ON COLUMN delivery.queue.retried IS 'Position of the last request to retry. A courier that finds another one than it claimed has to send again.';
COMMENT ON COLUMN delivery.queue.generation IS '0: live, or retried.';
COMMENT ON COLUMN delivery.queue.lane IS 'Of deliveries to an endpoint with an order, the first of a lane is sent, and the others wait: the stream, or empty for the whole endpoint. Null: not in order.';
COMMENT ON COLUMN delivery.queue.ordinal IS 'In the lane.';

CREATE TABLE delivery.replay (
    webhook_id text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    events text[] NOT NULL,
    filter text NOT NULL DEFAULT ''::text,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone,
    requested bigint NOT NULL,
    reached bigint,
    disabled boolean NOT NULL DEFAULT false,
    queued bigint NOT NULL DEFAULT 0,
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    error text,
    finished_at timestamp with time zone,
    CONSTRAINT replay_generation PRIMARY KEY (webhook_id, generation)
);
CREATE INDEX replay_open ON delivery.replay USING btree (requested) WHERE (finished_at IS NULL);
COMMENT ON TABLE delivery.replay IS 'Requests to send again what happened in a span of time, and how far each has come.';
COMMENT ON COLUMN delivery.replay.request_id IS 'The event that asked for it.';
COMMENT ON COLUMN delivery.replay.events IS 'What the endpoint asked for when the replay was requested.';
COMMENT ON COLUMN delivery.replay.until IS 'Null: up to the request.';
COMMENT ON COLUMN delivery.replay.requested IS 'Position of the request: what is behind it goes live.';
COMMENT ON COLUMN delivery.replay.reached IS 'Everything on the log up to this position is queued. Null: not begun.';
COMMENT ON COLUMN delivery.replay.disabled IS 'Whether the endpoint was disabled at the position reached, since a time within the span.';
COMMENT ON COLUMN delivery.replay.due_at IS 'Nothing is queued before: the account''s budget was used up.';
COMMENT ON COLUMN delivery.replay.error IS 'Why it ended before its end. Its owner reads it.';
COMMENT ON COLUMN delivery.replay.finished_at IS 'When all that it queued had been attempted once, or it ended with an error.';

CREATE TABLE lease.session (
    name text COLLATE "C" NOT NULL,
    pid integer NOT NULL,
    role oid NOT NULL,
    started timestamp with time zone,
    label text COLLATE "C",
    CONSTRAINT session_name PRIMARY KEY (name)
);
COMMENT ON TABLE lease.session IS 'The session that holds each lease: its process, its role, when it began and its name.';
COMMENT ON COLUMN lease.session.started IS 'NULL: not known, as of a superuser who acts as another role.';
COMMENT ON COLUMN lease.session.label IS 'The application_name of the session, which ends with a number of the session. A pooler that keeps a session after its client resets it.';

CREATE TABLE person.content (
    stream text COLLATE "C" NOT NULL,
    key_id bigint NOT NULL,
    hash bytea NOT NULL,
    sealed bytea NOT NULL,
    pending timestamp with time zone,
    CONSTRAINT content_hash PRIMARY KEY (stream, key_id, hash),
    CONSTRAINT content_key FOREIGN KEY (stream, key_id) REFERENCES person.key(stream, id) ON DELETE CASCADE
);
CREATE INDEX content_pending ON person.content USING btree (pending) WHERE (pending IS NOT NULL);
COMMENT ON TABLE person.content IS 'Large members of events, the bodies of posts, sealed with the key of their stream. They go with the key, and give back their space.';
COMMENT ON COLUMN person.content.hash IS 'SHA-256 of sealed. The event on the log has it, too.';
COMMENT ON COLUMN person.content.pending IS 'When the content was stored, if that was before its event. Null: the event is on the log.';

CREATE TABLE person.destroyed (
    stream text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT now(),
    tx xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX destroyed_at ON person.destroyed USING btree (at);
CREATE INDEX destroyed_tx ON person.destroyed USING btree (tx);
COMMENT ON TABLE person.destroyed IS 'Streams whose keys were destroyed in the last hour, for processes that have them in memory. A notification would show them to every role.';

CREATE TABLE person.key (
    stream text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    sealed_by text COLLATE "C" NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT key_id PRIMARY KEY (stream, id)
);
COMMENT ON TABLE person.key IS 'What the personal part of each stream''s events is sealed with, AES-256-GCM. A row that goes takes a person with it, for good.';
COMMENT ON COLUMN person.key.id IS 'Random. A stream may have several: two processes may begin one at once.';
COMMENT ON COLUMN person.key.sealed_by IS 'Which key seals this one: first 8 hex digits of that key''s SHA-256.';
COMMENT ON COLUMN person.key.sealed IS 'Nonce of 12 bytes, then the sealed key and its tag.';

CREATE TABLE secret.earlier (
    webhook_id text COLLATE "C" NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    sealed bytea NOT NULL,
    until timestamp with time zone NOT NULL
);
CREATE INDEX earlier_webhook ON secret.earlier USING btree (webhook_id, until DESC);
COMMENT ON TABLE secret.earlier IS 'Secrets that were replaced and still sign, beside the one in secret.webhook. Destroyed when their time is up.';

CREATE TABLE secret.header (
    webhook_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT header_of FOREIGN KEY (webhook_id) REFERENCES secret.webhook(webhook_id) ON DELETE CASCADE,
    CONSTRAINT header_webhook PRIMARY KEY (webhook_id)
);
COMMENT ON TABLE secret.header IS 'The own headers of webhook endpoints, an object of names and values, sealed with AES-256-GCM.';
COMMENT ON COLUMN secret.header.revision IS 'Of the event of the endpoint that set them.';

CREATE TABLE secret.intake (
    event_id text COLLATE "C" NOT NULL,
    intake_id text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT intake_event_id PRIMARY KEY (event_id)
);
CREATE INDEX intake_intake ON secret.intake USING btree (intake_id, ordinal);
COMMENT ON TABLE secret.intake IS 'Secrets of intakes, sealed with AES-256-GCM. Those of the event that views.intake names count.';
COMMENT ON COLUMN secret.intake.event_id IS 'Of the event that sets them. It may not be on the log yet, or never.';
COMMENT ON COLUMN secret.intake.ordinal IS 'Grows with each set of secrets that is stored.';

CREATE TABLE secret.webhook (
    webhook_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL DEFAULT 0,
    key_id text COLLATE "C" NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT webhook_id PRIMARY KEY (webhook_id)
);
COMMENT ON TABLE secret.webhook IS 'Signing secrets of webhook endpoints, sealed with AES-256-GCM.';
COMMENT ON COLUMN secret.webhook.revision IS 'Of the event of the endpoint that set it.';
COMMENT ON COLUMN secret.webhook.key_id IS 'Which key seals it: first 8 hex digits of the key''s SHA-256.';
COMMENT ON COLUMN secret.webhook.sealed IS 'Nonce of 12 bytes, then the sealed secret and its tag.';

CREATE TABLE views.account (
    account_id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    features jsonb NOT NULL,
    stages jsonb NOT NULL,
    region text NOT NULL,
    currency text NOT NULL,
    rate_limit double precision,
    rate_burst bigint,
    tokens_see_leads boolean NOT NULL,
    visitor_days integer NOT NULL,
    quarantine boolean NOT NULL,
    quarantine_days integer NOT NULL,
    won_stages jsonb NOT NULL,
    storage_per_day bigint NOT NULL,
    ignored_contacts text[] NOT NULL,
    shared_after integer NOT NULL,
    retention_days integer NOT NULL,
    keep_stages jsonb NOT NULL,
    mask_in_console boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    jwt_not_before timestamp with time zone,
    CONSTRAINT account_id PRIMARY KEY (account_id)
);
COMMENT ON TABLE views.account IS 'Plans and settings of accounts.';
COMMENT ON COLUMN views.account.account_id IS 'The account, as the column account of the other tables names it.';
COMMENT ON COLUMN views.account.name IS 'Its name, for people.';
COMMENT ON COLUMN views.account.features IS 'What its plan includes, such as crm_api.';
COMMENT ON COLUMN views.account.stages IS 'The pipeline: its stages in order, in the account''s spelling.';
COMMENT ON COLUMN views.account.region IS 'Region of phones without a country code, such as IN.';
COMMENT ON COLUMN views.account.currency IS 'ISO 4217 code of the values of leads.';
COMMENT ON COLUMN views.account.rate_limit IS 'Captures a second; 0: no limit; NULL: the limit of the service.';
COMMENT ON COLUMN views.account.rate_burst IS 'Burst of captures; NULL: that of the service.';
COMMENT ON COLUMN views.account.tokens_see_leads IS 'Whether answers to API tokens show what earlier arrivals stored.';
COMMENT ON COLUMN views.account.visitor_days IS 'How long a visitor whom no lead is linked with is remembered after the last activity.';
COMMENT ON COLUMN views.account.quarantine IS 'Whether captures by the API whose fields are refused are kept.';
COMMENT ON COLUMN views.account.quarantine_days IS 'How long the body of an arrival is kept.';
COMMENT ON COLUMN views.account.won_stages IS 'The stages that count as a conversion.';
COMMENT ON COLUMN views.account.storage_per_day IS 'How many bytes arrivals, captures and activity may append to the log in a day; 0: any.';
COMMENT ON COLUMN views.account.ignored_contacts IS 'Phones and emails that identify no person.';
COMMENT ON COLUMN views.account.shared_after IS 'How many phones, or emails, of one lead make its emails, or phones, shared; 0: never.';
COMMENT ON COLUMN views.account.retention_days IS 'How long a lead is kept after its last arrival or change; 0: without end.';
COMMENT ON COLUMN views.account.keep_stages IS 'The stages whose leads are kept without end.';
COMMENT ON COLUMN views.account.mask_in_console IS 'Whether the console masks personal data until they are revealed.';
COMMENT ON COLUMN views.account.created_at IS 'When it was first configured.';
COMMENT ON COLUMN views.account.updated_at IS 'When its settings last changed.';
COMMENT ON COLUMN views.account.jwt_not_before IS 'JWTs issued before are refused; NULL: none is for its age.';

CREATE TABLE views.account_index (
    "position" bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    CONSTRAINT account_index_key PRIMARY KEY (account, "position") INCLUDE (kind)
);
CREATE INDEX account_index_position ON views.account_index USING btree ("position");
COMMENT ON TABLE views.account_index IS 'An index of the log by account. The log is divided into blocks of some hundred events; a row is the first event of an account and kind in a block.';
COMMENT ON COLUMN views.account_index."position" IS 'Of an event, so that every engine can read from here on.';
COMMENT ON COLUMN views.account_index.account IS 'Empty: a block begins here.';
COMMENT ON COLUMN views.account_index.kind IS 'Of event, as change feeds select by: lead, token, webhook, intake or account.';

CREATE TABLE views.arrival (
    arrival_id text COLLATE "C" NOT NULL,
    "position" bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    intake_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    state text COLLATE "C" NOT NULL,
    reasons jsonb NOT NULL,
    warnings jsonb NOT NULL,
    lead_id text COLLATE "C" NOT NULL,
    other_lead_id text COLLATE "C" NOT NULL,
    kept boolean NOT NULL,
    CONSTRAINT arrival_id PRIMARY KEY (arrival_id)
) WITH (fillfactor=90);
CREATE INDEX arrival_account ON views.arrival USING btree (account, "position");
CREATE INDEX arrival_at ON views.arrival USING btree (account, received_at);
CREATE INDEX arrival_expires ON views.arrival USING btree (expires_at) WHERE kept;
CREATE INDEX arrival_intake ON views.arrival USING btree (intake_id, "position");
CREATE INDEX arrival_lead ON views.arrival USING btree (lead_id) WHERE (kept AND (lead_id <> ''::text));
CREATE INDEX arrival_open ON views.arrival USING btree (account, "position") WHERE (state = ANY (ARRAY['received'::text, 'quarantined'::text]));
CREATE INDEX arrival_other_lead ON views.arrival USING btree (other_lead_id) WHERE (kept AND (other_lead_id <> ''::text));
CREATE INDEX arrival_received ON views.arrival USING btree (intake_id, "position") WHERE (state = 'received'::text);
COMMENT ON TABLE views.arrival IS 'Posts that intakes let in, and captures by the API that were quarantined. Nothing of the person who arrived.';
COMMENT ON COLUMN views.arrival.arrival_id IS 'Id of the arrival.';
COMMENT ON COLUMN views.arrival."position" IS 'When it was received.';
COMMENT ON COLUMN views.arrival.account IS 'The account that it came to.';
COMMENT ON COLUMN views.arrival.intake_id IS 'Empty: captured by the API.';
COMMENT ON COLUMN views.arrival.token_id IS 'Of the API token; empty for intakes and JWTs.';
COMMENT ON COLUMN views.arrival.received_at IS 'When the service received it.';
COMMENT ON COLUMN views.arrival.expires_at IS 'When its body is deleted.';
COMMENT ON COLUMN views.arrival.state IS 'received, captured, refused, quarantined, discarded or expired.';
COMMENT ON COLUMN views.arrival.reasons IS 'What is wrong with the fields of a quarantined one.';
COMMENT ON COLUMN views.arrival.warnings IS 'What was taken in another way than its sender most likely meant.';
COMMENT ON COLUMN views.arrival.lead_id IS 'The lead that it was captured into, or that it conflicts with.';
COMMENT ON COLUMN views.arrival.other_lead_id IS 'A second lead that it conflicts with; else empty.';
COMMENT ON COLUMN views.arrival.kept IS 'Whether what was posted can still be read.';

CREATE TABLE views.checkpoint (
    projector text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    epoch text COLLATE "C" NOT NULL,
    "position" bigint NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    seen_stream text COLLATE "C",
    seen_revision bigint,
    seen_event text COLLATE "C",
    replay bigint NOT NULL DEFAULT 0,
    CONSTRAINT checkpoint_position_check CHECK (("position" >= 0)),
    CONSTRAINT checkpoint_projector PRIMARY KEY (projector)
);
COMMENT ON TABLE views.checkpoint IS 'How far each projector has read the log. Written in the transaction that writes its view.';
COMMENT ON COLUMN views.checkpoint.projector IS 'Name of the projector.';
COMMENT ON COLUMN views.checkpoint.version IS 'Of the projector that wrote the view; another version must rebuild it.';
COMMENT ON COLUMN views.checkpoint.epoch IS 'The log that the position is of.';
COMMENT ON COLUMN views.checkpoint."position" IS 'The last position on the log that the view has.';
COMMENT ON COLUMN views.checkpoint.updated_at IS 'When the row was written.';
COMMENT ON COLUMN views.checkpoint.seen_stream IS 'Stream of the event that was applied last.';
COMMENT ON COLUMN views.checkpoint.seen_revision IS 'Revision of this event in its stream.';
COMMENT ON COLUMN views.checkpoint.seen_event IS 'The event that was applied last, at seen_revision of seen_stream; NULL: none yet, or unknown.';
COMMENT ON COLUMN views.checkpoint.replay IS 'The transaction of the replay that replaced the view; 0: none. A projector that has read another value starts again.';

CREATE TABLE views.conversion (
    lead_id text COLLATE "C" NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    value text COLLATE "C" NOT NULL,
    touches bytea NOT NULL,
    source bytea NOT NULL,
    medium bytea NOT NULL,
    campaign bytea NOT NULL,
    utm_source bytea NOT NULL,
    intake bytea NOT NULL,
    credential bytea NOT NULL,
    CONSTRAINT conversion_lead PRIMARY KEY (lead_id, since)
);
CREATE INDEX conversion_at ON views.conversion USING btree (account, at);
COMMENT ON TABLE views.conversion IS 'When leads were won, as of the positions from since on and before until. The columns of bytea are for the reports of the service.';
COMMENT ON COLUMN views.conversion.lead_id IS 'The lead that was won.';
COMMENT ON COLUMN views.conversion.since IS 'The first position on the log as of which the row holds.';
COMMENT ON COLUMN views.conversion.until IS 'The position from which it no longer holds; 9223372036854775807: it holds now.';
COMMENT ON COLUMN views.conversion.account IS 'The account of the lead.';
COMMENT ON COLUMN views.conversion.at IS 'When the lead was won.';
COMMENT ON COLUMN views.conversion.value IS 'Value of the opportunity, with four decimals.';
COMMENT ON COLUMN views.conversion.touches IS 'The touches of the longest window, without their keys: schema.AppendTouch.';
COMMENT ON COLUMN views.conversion.source IS 'The source of each touch: schema.AppendKey.';
COMMENT ON COLUMN views.conversion.medium IS 'utm_medium of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.campaign IS 'utm_campaign of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.utm_source IS 'utm_source of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.intake IS 'Intake of each touch, encoded as source.';
COMMENT ON COLUMN views.conversion.credential IS 'Credential of each touch, encoded as source.';

CREATE TABLE views.conversion_state (
    "position" bigint NOT NULL,
    settings bigint NOT NULL,
    CONSTRAINT conversion_state_position PRIMARY KEY ("position")
);
COMMENT ON TABLE views.conversion_state IS 'One row: up to which position conversions are made.';
COMMENT ON COLUMN views.conversion_state."position" IS 'Conversions by events up to this position on the log are made.';
COMMENT ON COLUMN views.conversion_state.settings IS 'The last of won_stages when the first conversions were made: all rows are made by the settings up to it.';

CREATE TABLE views.conversion_sweep (
    account text COLLATE "C" NOT NULL,
    "position" bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    touch bigint NOT NULL,
    leads bigint NOT NULL,
    CONSTRAINT conversion_sweep_account PRIMARY KEY (account)
);
COMMENT ON TABLE views.conversion_sweep IS 'Accounts whose won stages changed: conversions of leads that were created after the touch at this time are made by the earlier stages.';
COMMENT ON COLUMN views.conversion_sweep.account IS 'The account.';
COMMENT ON COLUMN views.conversion_sweep."position" IS 'The first such change. Reports as of an earlier position are complete.';
COMMENT ON COLUMN views.conversion_sweep.at IS 'Time of the touch that the sweep has reached.';
COMMENT ON COLUMN views.conversion_sweep.touch IS 'Position of this touch on the log.';
COMMENT ON COLUMN views.conversion_sweep.leads IS 'How many leads the sweep has passed.';

CREATE TABLE views.endpoint (
    webhook_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    url text NOT NULL,
    events jsonb NOT NULL,
    description text NOT NULL,
    filter text NOT NULL,
    ordering text COLLATE "C" NOT NULL,
    rate_limit double precision NOT NULL,
    header_names text[] NOT NULL,
    created_at timestamp with time zone NOT NULL,
    disabled_reason text COLLATE "C",
    disabled_at timestamp with time zone,
    CONSTRAINT endpoint_id PRIMARY KEY (webhook_id)
);
CREATE INDEX endpoint_newest ON views.endpoint USING btree (account, created_at DESC, webhook_id DESC);
COMMENT ON TABLE views.endpoint IS 'Webhook endpoints that are there. Their secrets are in secret.webhook.';
COMMENT ON COLUMN views.endpoint.webhook_id IS 'Id of the endpoint.';
COMMENT ON COLUMN views.endpoint.account IS 'The account that it is of.';
COMMENT ON COLUMN views.endpoint.url IS 'Where deliveries are posted to.';
COMMENT ON COLUMN views.endpoint.events IS 'Types of the events that it gets.';
COMMENT ON COLUMN views.endpoint.description IS 'What the account says about it.';
COMMENT ON COLUMN views.endpoint.filter IS 'Expression that events must match; empty: all do.';
COMMENT ON COLUMN views.endpoint.ordering IS 'Empty: none.';
COMMENT ON COLUMN views.endpoint.rate_limit IS 'Attempts a second; 0: no limit.';
COMMENT ON COLUMN views.endpoint.header_names IS 'Of its own headers. Their values are in secret.header.';
COMMENT ON COLUMN views.endpoint.created_at IS 'When it was registered.';
COMMENT ON COLUMN views.endpoint.disabled_reason IS 'Null: it is enabled.';
COMMENT ON COLUMN views.endpoint.disabled_at IS 'When it was disabled; NULL: it is enabled.';

CREATE TABLE views.intake (
    intake_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    settings jsonb NOT NULL,
    enabled boolean NOT NULL,
    expect interval,
    secret_id text COLLATE "C" NOT NULL,
    old_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    enabled_at timestamp with time zone NOT NULL,
    silent_since timestamp with time zone,
    failing_since timestamp with time zone,
    demo boolean NOT NULL,
    deleted boolean NOT NULL DEFAULT false,
    CONSTRAINT intake_id PRIMARY KEY (intake_id)
);
CREATE INDEX intake_demo ON views.intake USING btree (account) WHERE demo;
CREATE INDEX intake_expect ON views.intake USING btree (intake_id) WHERE (enabled AND (NOT deleted) AND ((expect IS NOT NULL) OR (silent_since IS NOT NULL)));
CREATE INDEX intake_failing ON views.intake USING btree (intake_id) WHERE ((failing_since IS NOT NULL) AND (NOT deleted));
CREATE INDEX intake_newest ON views.intake USING btree (account, created_at DESC, intake_id DESC) WHERE (NOT deleted);
COMMENT ON TABLE views.intake IS 'Intakes, also the deleted ones. Their secrets are in secret.intake.';
COMMENT ON COLUMN views.intake.intake_id IS 'Id of the intake.';
COMMENT ON COLUMN views.intake.account IS 'The account that it is of.';
COMMENT ON COLUMN views.intake.settings IS 'As on the log: name, kind, source and the others; absent ones have their default.';
COMMENT ON COLUMN views.intake.enabled IS 'Whether it takes arrivals.';
COMMENT ON COLUMN views.intake.expect IS 'Its setting expectEvery; NULL: none.';
COMMENT ON COLUMN views.intake.secret_id IS 'Id of the event that set the secrets.';
COMMENT ON COLUMN views.intake.old_until IS 'Until when the secret before a rotation holds too; NULL: it does not.';
COMMENT ON COLUMN views.intake.created_at IS 'When it was created.';
COMMENT ON COLUMN views.intake.enabled_at IS 'When it was last enabled.';
COMMENT ON COLUMN views.intake.silent_since IS 'NULL: it is not silent.';
COMMENT ON COLUMN views.intake.failing_since IS 'When the first of the latest arrivals was quarantined; NULL: it does not fail.';
COMMENT ON COLUMN views.intake.demo IS 'It has the account''s demo data.';
COMMENT ON COLUMN views.intake.deleted IS 'Whether it was deleted.';

CREATE TABLE views.intake_run (
    intake_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    failed bigint NOT NULL,
    since timestamp with time zone,
    arrival_id text COLLATE "C" NOT NULL,
    error text NOT NULL,
    captured_at timestamp with time zone,
    CONSTRAINT intake_run_intake PRIMARY KEY (intake_id)
);
CREATE INDEX intake_run_reported ON views.intake_run USING btree (intake_id) WHERE (failed >= 3);
COMMENT ON TABLE views.intake_run IS 'How the latest arrivals of an intake ended. An intake that never had one quarantined has no row.';
COMMENT ON COLUMN views.intake_run.intake_id IS 'The intake.';
COMMENT ON COLUMN views.intake_run.account IS 'The account of the intake.';
COMMENT ON COLUMN views.intake_run.failed IS 'How many of the latest were quarantined one after the other, but by a pause.';
COMMENT ON COLUMN views.intake_run.since IS 'When the first of them was quarantined; NULL: there is none.';
COMMENT ON COLUMN views.intake_run.arrival_id IS 'The latest of them.';
COMMENT ON COLUMN views.intake_run.error IS 'Why the latest was quarantined.';
COMMENT ON COLUMN views.intake_run.captured_at IS 'When a capture ended the run before; NULL: none did.';

CREATE TABLE views.lead (
    lead_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    created_at timestamp with time zone NOT NULL,
    status text COLLATE "C" NOT NULL,
    temperature text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    phone text COLLATE "C" NOT NULL,
    email text COLLATE "C" NOT NULL,
    search text COLLATE "C" NOT NULL,
    state json NOT NULL,
    won numeric GENERATED 
CASE
    WHEN (status = 'won'::text) THEN (NULLIF((state ->> 'opportunityValue'::text), ''::text))::numeric
    ELSE NULL::numeric
END,
    contacts bigint NOT NULL DEFAULT 0,
    CONSTRAINT lead_id PRIMARY KEY (lead_id)
) WITH (fillfactor=85);
CREATE INDEX lead_contacts ON views.lead USING btree (account, created_at, lead_id) INCLUDE (contacts) WHERE (contacts > 1);
CREATE INDEX lead_newest ON views.lead USING btree (account, created_at) INCLUDE (temperature, source, status, search);
CREATE INDEX lead_source ON views.lead USING btree (account, source, created_at) INCLUDE (temperature, status);
CREATE INDEX lead_status ON views.lead USING btree (account, status, created_at) INCLUDE (temperature, source);
COMMENT ON TABLE views.lead IS 'Leads as they are now. The columns are what lists select by.';
COMMENT ON COLUMN views.lead.lead_id IS 'Id of the lead.';
COMMENT ON COLUMN views.lead.account IS 'The account that it is of.';
COMMENT ON COLUMN views.lead.created_at IS 'When it was created.';
COMMENT ON COLUMN views.lead.status IS 'In lower case, for it is compared so. The state has the account''s spelling.';
COMMENT ON COLUMN views.lead.temperature IS 'How likely it is to buy, such as hot, warm or cold.';
COMMENT ON COLUMN views.lead.source IS 'Where the lead came from first.';
COMMENT ON COLUMN views.lead.phone IS 'Its first phone, with country code; empty: none.';
COMMENT ON COLUMN views.lead.email IS 'Its first email; empty: none.';
COMMENT ON COLUMN views.lead.search IS 'Name, phone and email in lower case.';
COMMENT ON COLUMN views.lead.state IS 'The rest of the lead but for its sources, without what is empty. Without Phones or Emails: the one in the column alone. Without UpdatedAt: nothing was since created_at. Not jsonb, which writes numbers its own way: what a caller sent is shown as it was sent.';
COMMENT ON COLUMN views.lead.won IS 'Value of the opportunity, if it is won.';
COMMENT ON COLUMN views.lead.contacts IS 'How many phones find the lead, or emails, if these are more.';

CREATE TABLE views.lead_change (
    "position" bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    lead_id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    stage text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    CONSTRAINT lead_change_position PRIMARY KEY ("position", lead_id)
);
CREATE INDEX lead_change_lead ON views.lead_change USING btree (lead_id);
CREATE INDEX lead_change_stage ON views.lead_change USING btree (account, stage, lead_id) WHERE (stage <> ''::text);
COMMENT ON TABLE views.lead_change IS 'Each stage that a lead was put at, but for the one that new leads are at, each value that no arrival gave, and what joins and splits set, in the order of the log. A lead that became part of another is at stage U+0001.';
COMMENT ON COLUMN views.lead_change."position" IS 'Position on the log of the change.';
COMMENT ON COLUMN views.lead_change.account IS 'The account of the lead.';
COMMENT ON COLUMN views.lead_change.lead_id IS 'The lead that changed.';
COMMENT ON COLUMN views.lead_change.at IS 'When it changed.';
COMMENT ON COLUMN views.lead_change.stage IS 'Folded, for it is compared without regard to case; empty: it stays.';
COMMENT ON COLUMN views.lead_change.value IS 'Of the opportunity; empty: it stays.';

CREATE TABLE views.lead_search (
    created_at timestamp with time zone NOT NULL,
    lead_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    search text COLLATE "C" NOT NULL,
    CONSTRAINT lead_search_id PRIMARY KEY (lead_id)
);
CREATE INDEX lead_search_text ON views.lead_search USING gin (account, search gin_trgm_ops) WITH (gin_pending_list_limit='512');
COMMENT ON TABLE views.lead_search IS 'Leads in the order of their ids; those behind the last are not in it yet.';
COMMENT ON COLUMN views.lead_search.created_at IS 'As the column of lead.';
COMMENT ON COLUMN views.lead_search.lead_id IS 'As the column of lead.';
COMMENT ON COLUMN views.lead_search.account IS 'As the column of lead.';
COMMENT ON COLUMN views.lead_search.search IS 'As the column of lead.';

CREATE TABLE views.refused (
    "position" bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    source text COLLATE "C" NOT NULL,
    code text COLLATE "C" NOT NULL,
    lead_id text COLLATE "C" NOT NULL,
    other_lead_id text COLLATE "C" NOT NULL,
    credential text NOT NULL,
    request_id text NOT NULL,
    CONSTRAINT refused_position PRIMARY KEY ("position")
);
CREATE INDEX refused_account ON views.refused USING btree (account, "position");
COMMENT ON TABLE views.refused IS 'Arrivals that were answered with a conflict. Nothing of the person who arrived.';
COMMENT ON COLUMN views.refused."position" IS 'Position on the log of the refusal.';
COMMENT ON COLUMN views.refused.account IS 'The account that the arrival came to.';
COMMENT ON COLUMN views.refused.at IS 'When it was refused.';
COMMENT ON COLUMN views.refused.source IS 'Source of the arrival.';
COMMENT ON COLUMN views.refused.code IS 'DUPLICATE_LEAD_SOURCE or DUPLICATE_LEAD_EMAIL, as in the answer.';
COMMENT ON COLUMN views.refused.lead_id IS 'The lead that is there.';
COMMENT ON COLUMN views.refused.other_lead_id IS 'A second lead, when phone and email belong to two; else empty.';
COMMENT ON COLUMN views.refused.credential IS 'Who sent it, as the column of touch.';
COMMENT ON COLUMN views.refused.request_id IS 'Id of the request.';

CREATE TABLE views.source_day (
    account text COLLATE "C" NOT NULL,
    day date NOT NULL,
    source text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    merged bigint NOT NULL,
    refused bigint NOT NULL,
    recorded bigint NOT NULL DEFAULT 0,
    lines bigint NOT NULL DEFAULT 0,
    CONSTRAINT source_day_key PRIMARY KEY (account, day, source)
);
COMMENT ON TABLE views.source_day IS 'What became of the arrivals of a day (UTC), by the source that each came from. A day is the one on which the person came.';
COMMENT ON COLUMN views.source_day.account IS 'The account that the arrivals came to.';
COMMENT ON COLUMN views.source_day.day IS 'The day (UTC).';
COMMENT ON COLUMN views.source_day.source IS 'Source of the arrivals.';
COMMENT ON COLUMN views.source_day.created IS 'Arrivals that opened a lead: first touches.';
COMMENT ON COLUMN views.source_day.merged IS 'Arrivals that merged into a lead: later touches.';
COMMENT ON COLUMN views.source_day.refused IS 'Arrivals that were answered with a conflict.';
COMMENT ON COLUMN views.source_day.recorded IS 'Arrivals that were recorded on the day, whenever the person came: a file may have earlier ones.';
COMMENT ON COLUMN views.source_day.lines IS 'Those of the recorded ones that were lines of a batch or of a file.';

CREATE TABLE views.spend (
    "position" bigint NOT NULL,
    ordinal integer NOT NULL,
    account text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    day date NOT NULL,
    source text COLLATE "C" NOT NULL,
    utm_source text COLLATE "C" NOT NULL,
    utm_medium text COLLATE "C" NOT NULL,
    utm_campaign text COLLATE "C" NOT NULL,
    amount text COLLATE "C" NOT NULL,
    CONSTRAINT spend_position PRIMARY KEY ("position", ordinal)
);
CREATE INDEX spend_day ON views.spend USING btree (account, day, source, utm_source, utm_medium, utm_campaign, "position" DESC);
COMMENT ON TABLE views.spend IS 'What days of advertising cost, in the order of the log: of a day and key the last row up to a position counts.';
COMMENT ON COLUMN views.spend."position" IS 'Of the event on the log.';
COMMENT ON COLUMN views.spend.ordinal IS 'Of the row in its event.';
COMMENT ON COLUMN views.spend.account IS 'The account that paid.';
COMMENT ON COLUMN views.spend.at IS 'When it was recorded.';
COMMENT ON COLUMN views.spend.day IS 'The day, in UTC.';
COMMENT ON COLUMN views.spend.source IS 'Empty: the key has none, and so in the columns behind.';
COMMENT ON COLUMN views.spend.utm_source IS 'utm_source of the key; empty: it has none.';
COMMENT ON COLUMN views.spend.utm_medium IS 'utm_medium of the key; empty: it has none.';
COMMENT ON COLUMN views.spend.utm_campaign IS 'utm_campaign of the key; empty: it has none.';
COMMENT ON COLUMN views.spend.amount IS 'Decimal, in the account''s currency.';

CREATE TABLE views.time_index (
    "position" bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT time_index_position PRIMARY KEY ("position")
);
CREATE UNIQUE INDEX time_index_at ON views.time_index USING btree (at);
COMMENT ON TABLE views.time_index IS 'An index of the log by time: at most one row a minute.';
COMMENT ON COLUMN views.time_index."position" IS 'Of an event, so that every engine can read from here on.';
COMMENT ON COLUMN views.time_index.at IS 'The latest time of all events up to this one.';

CREATE TABLE views.token (
    token_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    rotated_at timestamp with time zone,
    deleted_at timestamp with time zone,
    last_used_at timestamp with time zone,
    announced_at timestamp with time zone,
    CONSTRAINT token_id PRIMARY KEY (token_id)
);
CREATE INDEX token_newest ON views.token USING btree (account, created_at DESC, token_id DESC);
CREATE INDEX token_unannounced ON views.token USING btree (expires_at) WHERE ((deleted_at IS NULL) AND (announced_at IS NULL));
COMMENT ON TABLE views.token IS 'API tokens, deleted ones too. Neither values nor their hashes.';
COMMENT ON COLUMN views.token.token_id IS 'Id of the token.';
COMMENT ON COLUMN views.token.account IS 'The account that it is of.';
COMMENT ON COLUMN views.token.name IS 'What the account calls it.';
COMMENT ON COLUMN views.token.prefix IS 'The first characters of its value, to recognize it by.';
COMMENT ON COLUMN views.token.expires_at IS 'When it expires.';
COMMENT ON COLUMN views.token.created_at IS 'When it was created.';
COMMENT ON COLUMN views.token.created_by IS 'Who created it.';
COMMENT ON COLUMN views.token.rotated_at IS 'When its value was last replaced; NULL: never.';
COMMENT ON COLUMN views.token.deleted_at IS 'When it was deleted; NULL: it is not.';
COMMENT ON COLUMN views.token.last_used_at IS 'Of the latest sample, which is the first use of its minute.';
COMMENT ON COLUMN views.token.announced_at IS 'When token.expiring was recorded for the present expiry; NULL: not yet.';

CREATE TABLE views.token_event (
    "position" bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    ip text NOT NULL,
    user_agent text NOT NULL,
    request_id text NOT NULL,
    data json NOT NULL,
    digest text NOT NULL DEFAULT ''::text,
    leaf bigint NOT NULL DEFAULT '-1'::integer,
    CONSTRAINT token_event_position PRIMARY KEY ("position")
);
CREATE INDEX token_event_account ON views.token_event USING btree (account, "position");
CREATE INDEX token_event_at ON views.token_event USING btree (account, at);
CREATE INDEX token_event_token ON views.token_event USING btree (token_id, "position");
CREATE INDEX token_event_type ON views.token_event USING btree (account, type, "position");
COMMENT ON TABLE views.token_event IS 'What happened to API tokens: who did it, from where, by which request.';
COMMENT ON COLUMN views.token_event."position" IS 'Position on the log of the event.';
COMMENT ON COLUMN views.token_event.event_id IS 'Id of the event.';
COMMENT ON COLUMN views.token_event.token_id IS 'The token.';
COMMENT ON COLUMN views.token_event.account IS 'The account of the token.';
COMMENT ON COLUMN views.token_event.type IS 'Public name, without version.';
COMMENT ON COLUMN views.token_event.at IS 'When it happened.';
COMMENT ON COLUMN views.token_event.actor IS 'Who did it.';
COMMENT ON COLUMN views.token_event.ip IS 'Address that the request came from.';
COMMENT ON COLUMN views.token_event.user_agent IS 'Program that sent the request.';
COMMENT ON COLUMN views.token_event.request_id IS 'Id of the request.';
COMMENT ON COLUMN views.token_event.data IS 'Without the hash of the value.';
COMMENT ON COLUMN views.token_event.digest IS 'Hash of its leaf in the tree of the log, in hexadecimal.';
COMMENT ON COLUMN views.token_event.leaf IS 'Index in the account''s tree, from 0; -1 in rows of before there was one.';

CREATE TABLE views.token_tree (
    account text COLLATE "C" NOT NULL,
    level smallint NOT NULL,
    number bigint NOT NULL,
    hashes bytea NOT NULL,
    CONSTRAINT token_tree_hashes_check CHECK ((((octet_length(hashes) >= 32) AND (octet_length(hashes) <= 8192)) AND ((octet_length(hashes) % 32) = 0))),
    CONSTRAINT token_tree_tile PRIMARY KEY (account, level, number)
);
COMMENT ON TABLE views.token_tree IS 'Hash tiles of the Merkle tree over each account''s token events, as in audit.tile.';
COMMENT ON COLUMN views.token_tree.account IS 'The account of the tree.';
COMMENT ON COLUMN views.token_tree.level IS 'Level of the tile; 0: its hashes are of leaves.';
COMMENT ON COLUMN views.token_tree.number IS 'Number of the tile on its level, from 0.';
COMMENT ON COLUMN views.token_tree.hashes IS 'Up to 256 hashes of 32 bytes.';

CREATE TABLE views.touch (
    "position" bigint NOT NULL,
    touch_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    lead_id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    kind text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    first boolean NOT NULL,
    utm_source text COLLATE "C" NOT NULL,
    utm_medium text COLLATE "C" NOT NULL,
    utm_campaign text COLLATE "C" NOT NULL,
    utm_id text COLLATE "C" NOT NULL,
    credential text COLLATE "C" NOT NULL,
    intake_id text COLLATE "C" NOT NULL,
    visitor text COLLATE "C" NOT NULL,
    erased boolean NOT NULL,
    stage text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    key_id bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0,
    CONSTRAINT touch_position PRIMARY KEY ("position")
);
CREATE INDEX touch_at ON views.touch USING btree (account, at, "position") WHERE (kind <> 'visit'::text);
CREATE INDEX touch_lead ON views.touch USING btree (lead_id) WHERE (lead_id <> ''::text);
CREATE INDEX touch_source ON views.touch USING btree (account, source, at, "position") WHERE (source <> ''::text);
CREATE INDEX touch_visit_at ON views.touch USING btree (account, at, "position") WHERE (kind = 'visit'::text);
CREATE INDEX touch_visitor ON views.touch USING btree (visitor, "position") WHERE (visitor <> ''::text);
COMMENT ON TABLE views.touch IS 'One row for each arrival of a lead, and for each visit by a campaign. Nothing in it is personal.';
COMMENT ON COLUMN views.touch."position" IS 'Position on the log of the event.';
COMMENT ON COLUMN views.touch.touch_id IS 'The event. It begins with the time at which it was recorded.';
COMMENT ON COLUMN views.touch.account IS 'The account of the touch.';
COMMENT ON COLUMN views.touch.lead_id IS 'Whom the arrival came to, before any join; empty for a visit, and kept after an erasure.';
COMMENT ON COLUMN views.touch.at IS 'When the person came.';
COMMENT ON COLUMN views.touch.kind IS 'created, merged or visit.';
COMMENT ON COLUMN views.touch.source IS 'Empty for a visit.';
COMMENT ON COLUMN views.touch.first IS 'An entry of the source history: the first arrival of its lead, after joins, from this source.';
COMMENT ON COLUMN views.touch.utm_source IS 'The parameter utm_source of the arrival or visit; empty: none.';
COMMENT ON COLUMN views.touch.utm_medium IS 'The parameter utm_medium; empty: none.';
COMMENT ON COLUMN views.touch.utm_campaign IS 'The parameter utm_campaign; empty: none.';
COMMENT ON COLUMN views.touch.utm_id IS 'The parameter utm_id; empty: none.';
COMMENT ON COLUMN views.touch.credential IS 'token:{id}, user:{sub}, intake:{id} or system:{what}.';
COMMENT ON COLUMN views.touch.intake_id IS 'The intake that took the arrival; empty: none.';
COMMENT ON COLUMN views.touch.visitor IS 'Stream of the visitor: whose visit it is, or whom the arrival links with the lead; empty: none.';
COMMENT ON COLUMN views.touch.erased IS 'The person is forgotten.';
COMMENT ON COLUMN views.touch.stage IS 'Of a lead that the arrival created, folded; else empty.';
COMMENT ON COLUMN views.touch.value IS 'Of the opportunity, as the arrival gave it; else empty.';
COMMENT ON COLUMN views.touch.key_id IS 'The key that sealed the event; 0: none.';
COMMENT ON COLUMN views.touch.revision IS 'Of the event in its stream.';

CREATE TABLE views.touch_owner (
    "position" bigint NOT NULL,
    since bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    begins boolean NOT NULL,
    CONSTRAINT touch_owner_touch PRIMARY KEY ("position", since)
);
CREATE INDEX touch_owner_lead ON views.touch_owner USING btree (owner, "position");
COMMENT ON TABLE views.touch_owner IS 'Which lead an arrival belongs to from a position on, after joins and splits: the last row up to a position says it. One without a row belongs to the lead that it came to.';
COMMENT ON COLUMN views.touch_owner."position" IS 'Position on the log of the arrival, as in touch.';
COMMENT ON COLUMN views.touch_owner.since IS 'The position from which the arrival belongs to the owner.';
COMMENT ON COLUMN views.touch_owner.owner IS 'The lead that it belongs to.';
COMMENT ON COLUMN views.touch_owner.account IS 'The account of the lead.';
COMMENT ON COLUMN views.touch_owner.begins IS 'The first arrival of a lead that a split created.';

CREATE TABLE views.touch_personal (
    "position" bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    metadata json NOT NULL,
    ip text NOT NULL,
    user_agent text NOT NULL,
    request_id text NOT NULL,
    changed json NOT NULL,
    CONSTRAINT touch_personal_position PRIMARY KEY ("position")
);
COMMENT ON TABLE views.touch_personal IS 'What is personal in a touch. It has no row for one that is erased.';
COMMENT ON COLUMN views.touch_personal."position" IS 'Position on the log, as in touch.';
COMMENT ON COLUMN views.touch_personal.account IS 'The account of the touch.';
COMMENT ON COLUMN views.touch_personal.metadata IS 'As the arrival gave it. Of a visit: the parameters of the URL, with page_url and referrer.';
COMMENT ON COLUMN views.touch_personal.ip IS 'Address that the request came from.';
COMMENT ON COLUMN views.touch_personal.user_agent IS 'Program that sent the request.';
COMMENT ON COLUMN views.touch_personal.request_id IS 'Id of the request.';
COMMENT ON COLUMN views.touch_personal.changed IS 'The lead''s fields that the arrival set.';

CREATE TABLE views.trail (
    "position" bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    ip text NOT NULL,
    user_agent text NOT NULL,
    request_id text NOT NULL,
    data json NOT NULL,
    CONSTRAINT trail_position PRIMARY KEY ("position")
);
CREATE INDEX trail_account ON views.trail USING btree (account, "position");
CREATE INDEX trail_at ON views.trail USING btree (account, at);
CREATE INDEX trail_subject ON views.trail USING btree (account, subject, "position");
COMMENT ON TABLE views.trail IS 'Who did what in an account, and who read personal data. It holds no personal data itself, and no secret.';
COMMENT ON COLUMN views.trail."position" IS 'Position on the log of the event.';
COMMENT ON COLUMN views.trail.event_id IS 'Id of the event.';
COMMENT ON COLUMN views.trail.account IS 'The account that it happened in.';
COMMENT ON COLUMN views.trail.type IS 'Public name of the event, without version, such as webhook.updated.';
COMMENT ON COLUMN views.trail.at IS 'When it happened.';
COMMENT ON COLUMN views.trail.actor IS 'Who did it.';
COMMENT ON COLUMN views.trail.subject IS 'Id of what the act was about; of a search, what was searched.';
COMMENT ON COLUMN views.trail.ip IS 'Of the actor. Empty for acts on leads, where it is sealed with the person.';
COMMENT ON COLUMN views.trail.user_agent IS 'Program that sent the request.';
COMMENT ON COLUMN views.trail.request_id IS 'Id of the request.';
COMMENT ON COLUMN views.trail.data IS 'A changed setting is an object of old and new.';

CREATE TABLE views.trail_setting (
    stream text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    settings json NOT NULL,
    CONSTRAINT trail_setting_stream PRIMARY KEY (stream)
);
COMMENT ON TABLE views.trail_setting IS 'The settings of accounts, endpoints and intakes as of their latest event, which the next one is compared with.';
COMMENT ON COLUMN views.trail_setting.stream IS 'Stream of the account, endpoint or intake.';
COMMENT ON COLUMN views.trail_setting.account IS 'The account that it is of.';
COMMENT ON COLUMN views.trail_setting.settings IS 'The settings.';

CREATE TABLE views.visitor_activity (
    "position" bigint NOT NULL,
    activity_id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    visitor_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    recorded_at timestamp with time zone NOT NULL,
    url text NOT NULL,
    title text NOT NULL,
    referrer text NOT NULL,
    properties json NOT NULL,
    stream text COLLATE "C" NOT NULL DEFAULT ''::text,
    key_id bigint NOT NULL DEFAULT 0,
    CONSTRAINT visitor_activity_position PRIMARY KEY ("position")
);
CREATE INDEX visitor_activity_stream ON views.visitor_activity USING btree (stream);
CREATE INDEX visitor_activity_visitor ON views.visitor_activity USING btree (account, visitor_id, at, "position");
COMMENT ON TABLE views.visitor_activity IS 'What visitors of web sites did. The leads that they are have their ids in VisitorIDs of their state.';
COMMENT ON COLUMN views.visitor_activity."position" IS 'Position on the log of the event.';
COMMENT ON COLUMN views.visitor_activity.activity_id IS 'Id of the event.';
COMMENT ON COLUMN views.visitor_activity.account IS 'The account of the web site.';
COMMENT ON COLUMN views.visitor_activity.visitor_id IS 'The visitor, as the web site names them.';
COMMENT ON COLUMN views.visitor_activity.type IS 'What the visitor did, such as page_view.';
COMMENT ON COLUMN views.visitor_activity.at IS 'When it happened, by the sender''s clock.';
COMMENT ON COLUMN views.visitor_activity.recorded_at IS 'When it came to the log.';
COMMENT ON COLUMN views.visitor_activity.url IS 'Address of the page.';
COMMENT ON COLUMN views.visitor_activity.title IS 'Title of the page.';
COMMENT ON COLUMN views.visitor_activity.referrer IS 'Address of the page before.';
COMMENT ON COLUMN views.visitor_activity.properties IS 'What the web site sent besides.';
COMMENT ON COLUMN views.visitor_activity.stream IS 'Stream of the visitor on the log.';
COMMENT ON COLUMN views.visitor_activity.key_id IS 'The key that sealed it on the log; 0: none.';

CREATE TABLE views.won_day (
    account text COLLATE "C" NOT NULL,
    day date NOT NULL,
    source text COLLATE "C" NOT NULL,
    leads bigint NOT NULL,
    value numeric NOT NULL,
    CONSTRAINT won_day_key PRIMARY KEY (account, day, source)
) WITH (fillfactor=50);
COMMENT ON TABLE views.won_day IS 'Leads that are won now, by the day (UTC) on which they were opened and the source that opened them.';
COMMENT ON COLUMN views.won_day.account IS 'The account of the leads.';
COMMENT ON COLUMN views.won_day.day IS 'The day (UTC) on which the leads were opened.';
COMMENT ON COLUMN views.won_day.source IS 'The source that opened them.';
COMMENT ON COLUMN views.won_day.leads IS 'How many leads there are.';
COMMENT ON COLUMN views.won_day.value IS 'Of their opportunities, together.';

CREATE TABLE views.won_stages (
    "position" bigint NOT NULL,
    account text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    stages jsonb NOT NULL,
    first text COLLATE "C" NOT NULL,
    CONSTRAINT won_stages_position PRIMARY KEY ("position")
);
CREATE INDEX won_stages_account ON views.won_stages USING btree (account, "position");
COMMENT ON TABLE views.won_stages IS 'The stages that count as a conversion, folded, from each setting of an account on.';
COMMENT ON COLUMN views.won_stages."position" IS 'Position on the log of the setting.';
COMMENT ON COLUMN views.won_stages.account IS 'The account.';
COMMENT ON COLUMN views.won_stages.at IS 'When it was set.';
COMMENT ON COLUMN views.won_stages.stages IS 'The stages, folded.';
COMMENT ON COLUMN views.won_stages.first IS 'Of the pipeline, folded: where new leads are.';
