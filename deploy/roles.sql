-- PostgreSQL roles with least privilege:
--
--   leadlog_owner   owns the log; only leadlog migrate runs as it
--   leadlog_writer  leadlog serve and every other command: appends to the log, and cannot change or delete events.
--                   Owns the views, copies of them, and deliveries
--   leadlog_reader  reads the log and the views, but no secrets: for operators
--
-- Analysts, who read only views, have deploy/analyst.sql. This script includes readers.sql of the same folder. Run it as a superuser
-- in leadlog's database before the first leadlog migrate, and again after each. It may run beside the service: objects that have
-- their owner are skipped, because changing an owner waits for sessions that use the table.
--
--     psql -d leadlog -f deploy/roles.sql
--     psql -d leadlog -c '\password leadlog_owner' -c '\password leadlog_writer' -c '\password leadlog_reader'

DO $$
DECLARE
    schema_name text;
    role_name   text;
    object      record;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['leadlog_owner', 'leadlog_writer', 'leadlog_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', role_name);
        END IF;
    END LOOP;
    IF NOT pg_has_role('leadlog_owner', 'leadlog_writer', 'MEMBER') THEN -- migrations change what the writer owns
        GRANT leadlog_writer TO leadlog_owner;
    END IF;
    EXECUTE format('GRANT CREATE, CONNECT, TEMPORARY ON DATABASE %I TO leadlog_owner, leadlog_writer', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO leadlog_reader', current_database());

    FOR schema_name, role_name IN -- the log last: a session that locks views may have to read it first
        SELECT unnest(ARRAY['views', 'delivery', 'lease', 'secret', 'arrival', 'audit', 'quota']), 'leadlog_writer'
        UNION ALL -- copies of views, finished or in progress
        SELECT nspname, 'leadlog_writer' FROM pg_namespace WHERE obj_description(oid, 'pg_namespace') LIKE 'leadlog copy %'
        UNION ALL
        SELECT 'log', 'leadlog_owner'
    LOOP
        IF to_regnamespace(quote_ident(schema_name)) IS NULL THEN
            CONTINUE;
        END IF;
        EXECUTE format('ALTER SCHEMA %I OWNER TO %I', schema_name, role_name);
        FOR object IN
            SELECT 'TABLE ' || c.oid::regclass AS name FROM pg_class c
             WHERE c.relnamespace = to_regnamespace(quote_ident(schema_name)) AND c.relkind IN ('r', 'p', 'v') AND c.relowner <> role_name::regrole
            UNION ALL -- a column's sequence follows its table
            SELECT 'SEQUENCE ' || c.oid::regclass FROM pg_class c
             WHERE c.relnamespace = to_regnamespace(quote_ident(schema_name)) AND c.relkind = 'S' AND c.relowner <> role_name::regrole
               AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))
            UNION ALL
            SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = to_regnamespace(quote_ident(schema_name)) AND p.proowner <> role_name::regrole
        LOOP
            EXECUTE format('ALTER %s OWNER TO %I', object.name, role_name);
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

\ir readers.sql

ALTER ROLE leadlog_reader CONNECTION LIMIT 10;
ALTER ROLE leadlog_reader SET default_transaction_read_only = on;
ALTER ROLE leadlog_reader SET statement_timeout = '10min';
ALTER ROLE leadlog_reader SET idle_in_transaction_session_timeout = '1min';
