-- Keeps roles that only read from holding up the service. The scripts that create such roles include it; it need not be run alone.

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

-- A replay ends sessions of readers that keep it from replacing a view for a minute.
DO $$
DECLARE
    owner regrole := (SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'views');
BEGIN
    IF NOT pg_has_role(owner, 'pg_signal_backend', 'MEMBER') THEN
        EXECUTE format('GRANT pg_signal_backend TO %s', owner);
    END IF;
EXCEPTION
WHEN unique_violation THEN NULL; -- granted meanwhile
WHEN insufficient_privilege THEN
    RAISE WARNING 'readers can keep a replay from replacing a view: %', SQLERRM;
END
$$;
