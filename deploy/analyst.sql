-- The role leadlog_analyst reads the views, and copies of them as of a day (leadlog replay VIEW --into SCHEMA), and nothing
-- else: not the log, not deliveries, not secrets. Run it once, after leadlog migrate, as a superuser in leadlog's database:
--
--     psql -d leadlog -f deploy/analyst.sql
--     psql -d leadlog -c '\password leadlog_analyst'
--
-- It may be run again. A copy that is made later is readable for whoever may read the views; one that was made before
-- becomes so when the same replay is run again.

DO $$
DECLARE
    owner regrole := (SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'views');
    maker regrole;
BEGIN
    IF owner IS NULL THEN
        RAISE EXCEPTION 'there is no schema views: run leadlog migrate first';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leadlog_analyst') THEN
        CREATE ROLE leadlog_analyst LOGIN;
    END IF;
    -- Views that a later migration brings: as the owner or, with deploy/roles.sql, as leadlog_owner.
    FOREACH maker IN ARRAY ARRAY[owner, to_regrole('leadlog_owner')] LOOP
        IF maker IS NOT NULL THEN
            EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA views GRANT SELECT ON TABLES TO leadlog_analyst', maker);
        END IF;
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA views TO leadlog_analyst;
GRANT SELECT ON ALL TABLES IN SCHEMA views TO leadlog_analyst;

ALTER ROLE leadlog_analyst SET search_path = views;
ALTER ROLE leadlog_analyst SET default_transaction_read_only = on;
-- A replay that takes a view's place waits for those who read it, a minute at most.
ALTER ROLE leadlog_analyst SET statement_timeout = '10min';
ALTER ROLE leadlog_analyst SET idle_in_transaction_session_timeout = '1min';
