-- The role leadlog_analyst reads the views and copies of them (leadlog replay VIEW --into SCHEMA), but not the log, deliveries or
-- secrets. Run this once, after leadlog migrate, as a superuser in leadlog's database:
--
--     psql -d leadlog -f deploy/analyst.sql
--     psql -d leadlog -c '\password leadlog_analyst'
--
-- It includes readers.sql of the same folder, and may be run again. Later copies are readable to roles that may read the views; an earlier one becomes readable when the same
-- replay is run again.

DO $$
DECLARE
    owner regrole := (SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'views');
    maker regrole;
BEGIN
    IF owner IS NULL THEN
        RAISE EXCEPTION 'the schema views does not exist: run leadlog migrate first';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leadlog_analyst') THEN
        CREATE ROLE leadlog_analyst LOGIN;
    END IF;
    -- For views of later migrations, which run as the owner or, with deploy/roles.sql, as leadlog_owner.
    FOREACH maker IN ARRAY ARRAY[owner, to_regrole('leadlog_owner')] LOOP
        IF maker IS NOT NULL THEN
            EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA views GRANT SELECT ON TABLES TO leadlog_analyst', maker);
        END IF;
    END LOOP;
END
$$;

\ir readers.sql

GRANT USAGE ON SCHEMA views TO leadlog_analyst;
GRANT SELECT ON ALL TABLES IN SCHEMA views TO leadlog_analyst;

ALTER ROLE leadlog_analyst CONNECTION LIMIT 10;
ALTER ROLE leadlog_analyst SET search_path = views;
ALTER ROLE leadlog_analyst SET default_transaction_read_only = on;
-- A replay that replaces a view waits a minute for its readers, and then ends their sessions.
ALTER ROLE leadlog_analyst SET statement_timeout = '10min';
ALTER ROLE leadlog_analyst SET idle_in_transaction_session_timeout = '1min';
