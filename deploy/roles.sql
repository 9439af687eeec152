-- PostgreSQL roles with least privilege:
--
--   leadlog_owner   owns the log; only leadlog migrate runs as it
--   leadlog_writer  leadlog serve and every other command: appends to the log, and cannot change or delete events.
--                   Owns the views, copies of them, and deliveries
--   leadlog_reader  reads the log and the views, but no secrets: for operators
--
-- Analysts, who read only views, have deploy/analyst.sql. Run this as a superuser in leadlog's database before the first leadlog
-- migrate, and again after each. It may run beside the service: objects that have their owner are skipped, because changing an
-- owner waits for sessions that use the table.
--
--     psql -d leadlog -f deploy/roles.sql
--     psql -d leadlog -c '\password leadlog_owner' -c '\password leadlog_writer' -c '\password leadlog_reader'

DO $$
DECLARE
    place  text;
    keeper text;
    object record;
BEGIN
    FOREACH place IN ARRAY ARRAY['leadlog_owner', 'leadlog_writer', 'leadlog_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = place) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', place);
        END IF;
    END LOOP;
    IF NOT pg_has_role('leadlog_owner', 'leadlog_writer', 'MEMBER') THEN -- migrations change what the writer owns
        GRANT leadlog_writer TO leadlog_owner;
    END IF;
    EXECUTE format('GRANT CREATE, CONNECT, TEMPORARY ON DATABASE %I TO leadlog_owner, leadlog_writer', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO leadlog_reader', current_database());

    BEGIN -- a replay ends sessions of readers that keep it from replacing a view
        GRANT pg_signal_backend TO leadlog_writer;
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING 'readers can keep a replay from replacing a view: %', SQLERRM;
    END;

    FOR place, keeper IN -- the log last: a session that locks views may have to read it first
        SELECT unnest(ARRAY['views', 'delivery', 'lease', 'secret', 'arrival', 'audit', 'quota']), 'leadlog_writer'
        UNION ALL -- copies of views, finished or in progress
        SELECT nspname, 'leadlog_writer' FROM pg_namespace WHERE obj_description(oid, 'pg_namespace') LIKE 'leadlog copy %'
        UNION ALL
        SELECT 'log', 'leadlog_owner'
    LOOP
        IF to_regnamespace(quote_ident(place)) IS NULL THEN
            CONTINUE;
        END IF;
        EXECUTE format('ALTER SCHEMA %I OWNER TO %I', place, keeper);
        FOR object IN
            SELECT 'TABLE ' || c.oid::regclass AS name FROM pg_class c
             WHERE c.relnamespace = to_regnamespace(quote_ident(place)) AND c.relkind IN ('r', 'p', 'v') AND c.relowner <> keeper::regrole
            UNION ALL -- a column's sequence follows its table
            SELECT 'SEQUENCE ' || c.oid::regclass FROM pg_class c
             WHERE c.relnamespace = to_regnamespace(quote_ident(place)) AND c.relkind = 'S' AND c.relowner <> keeper::regrole
               AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))
            UNION ALL
            SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = to_regnamespace(quote_ident(place)) AND p.proowner <> keeper::regrole
        LOOP
            EXECUTE format('ALTER %s OWNER TO %I', object.name, keeper);
        END LOOP;
    END LOOP;

    IF to_regnamespace('log') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA log TO leadlog_writer, leadlog_reader;
        GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA log TO leadlog_writer;
        GRANT UPDATE ON log.append_lock TO leadlog_writer; -- to lock it; it has no rows
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA log TO leadlog_writer, leadlog_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA log TO leadlog_reader;
    END IF;
    IF to_regnamespace('person') IS NOT NULL THEN -- deploy/keys.sql may change its owner
        GRANT USAGE ON SCHEMA person TO leadlog_writer;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA person TO leadlog_writer;
    END IF;
    IF to_regnamespace('views') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA views TO leadlog_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA views TO leadlog_reader;
    END IF;
END
$$;

-- By default any role can fill the server's lock table, with advisory locks, large objects or temporary tables, and so hold up the
-- service. Where these rights cannot be revoked, as on some managed servers, there is a warning.
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT DISTINCT nspowner::regrole FROM pg_namespace WHERE nspname IN ('views', 'log') LOOP
        EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO %s', current_database(), name);
    END LOOP;
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    FOR name IN
        SELECT oid::regprocedure FROM pg_proc
         WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^(pg_(try_)?advisory_|lo_|loread|lowrite)'
           AND has_function_privilege('public', oid, 'EXECUTE')
    LOOP
        PERFORM set_config('client_min_messages', 'error', true); -- without superuser rights, each function would be a warning
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', name);
    END LOOP;
    PERFORM set_config('client_min_messages', 'warning', true);
    IF has_function_privilege('public', 'pg_catalog.pg_advisory_lock(bigint)', 'EXECUTE') THEN
        RAISE WARNING 'readers can still fill the lock table: run this script as a superuser';
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'readers can still fill the lock table: %', SQLERRM;
END
$$;

-- DDL locks a table before it checks rights, and such a lock, waiting for a reader's open query, would hold up the service. So an event
-- trigger refuses DDL of readers. It needs a superuser; without one, there is a warning.
DO $$
BEGIN
    IF to_regnamespace('reader') IS NULL THEN
        CREATE SCHEMA reader;
    END IF;
    CREATE OR REPLACE FUNCTION reader.refuse_ddl() RETURNS event_trigger LANGUAGE plpgsql SET search_path = '' AS $body$
        BEGIN
            IF NOT has_database_privilege(session_user, current_database(), 'CREATE')
               AND EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname IN ('leadlog_account_readers', 'leadlog_analyst', 'leadlog_reader')
                                                             AND pg_has_role(session_user, oid, 'MEMBER')) THEN
                RAISE EXCEPTION 'readers may not run %', tg_tag USING ERRCODE = 'insufficient_privilege';
            END IF;
        END
    $body$;
    COMMENT ON FUNCTION reader.refuse_ddl() IS 'Refuses DDL of roles that only read.';
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'leadlog_readers') THEN
        CREATE EVENT TRIGGER leadlog_readers ON ddl_command_start EXECUTE FUNCTION reader.refuse_ddl();
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'readers can still lock views by DDL: %', SQLERRM;
END
$$;

-- The lock table belongs to the whole server, but the rights above are revoked in this database only.
DO $$
DECLARE
    others text;
BEGIN
    SELECT string_agg(quote_ident(datname), ', ' ORDER BY datname) INTO others FROM pg_database
     WHERE datallowconn AND datname <> current_database() AND has_database_privilege('public', oid, 'CONNECT');
    IF others IS NOT NULL THEN
        RAISE WARNING 'readers can still fill the lock table from other databases: let pg_hba.conf admit them to % only, or REVOKE CONNECT ON DATABASE % FROM PUBLIC',
            quote_ident(current_database()), others;
    END IF;
END
$$;

ALTER ROLE leadlog_reader CONNECTION LIMIT 10;
ALTER ROLE leadlog_reader SET default_transaction_read_only = on;
ALTER ROLE leadlog_reader SET statement_timeout = '10min';
ALTER ROLE leadlog_reader SET idle_in_transaction_session_timeout = '1min';
