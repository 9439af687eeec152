-- A role that reads the views of one account and of no other, for somebody of that account who asks SQL. It is a second
-- wall behind the queries: PostgreSQL itself lets no row of another account through, whatever is asked (row level
-- security). The service owns the views, so it is not judged by it and pays nothing for it. Run this once, after leadlog
-- migrate, as a superuser in leadlog's database, under a name of your choice:
--
--     psql -d leadlog -v role=acme_reader -v account=acme -f deploy/account-reader.sql
--     psql -d leadlog -c '\password acme_reader'
--
-- It may be run again, and should be after a migration: views that are new stay closed to the role until then. A replay
-- that takes a view's place, and copies as of a day (leadlog replay VIEW --into SCHEMA), take the wall along.
--
-- It has each view for itself for a moment. Somebody who reads one for long keeps it waiting, and everybody else behind it;
-- so after some seconds it gives up, and changes nothing. Then run it again.

SET client_min_messages = warning;
SET lock_timeout = '3s';
SELECT set_config('leadlog.role', :'role', false), set_config('leadlog.account', :'account', false);

DO $$
DECLARE
    reader  text := current_setting('leadlog.role');
    account text := current_setting('leadlog.account');
    view    record;
BEGIN
    IF account !~ '^[A-Za-z0-9_-]{1,64}$' THEN
        RAISE EXCEPTION 'no account is called %', account;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = reader) THEN
        EXECUTE format('CREATE ROLE %I LOGIN', reader);
    ELSIF EXISTS (SELECT FROM pg_roles WHERE rolname = reader AND (rolsuper OR rolbypassrls)) THEN
        RAISE EXCEPTION 'no wall stands before the role %', reader;
    END IF;
    FOR view IN
        SELECT c.relname AS name, a.attname AS owned
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'views'::regnamespace AND c.relkind = 'r' AND a.attname IN ('account', 'account_id')
    LOOP
        EXECUTE format('ALTER TABLE views.%I ENABLE ROW LEVEL SECURITY', view.name);
        -- Who is not confined sees what was to be seen before.
        EXECUTE format('DROP POLICY IF EXISTS anybody ON views.%I', view.name);
        EXECUTE format('CREATE POLICY anybody ON views.%I USING (true)', view.name);
        EXECUTE format('DROP POLICY IF EXISTS %I ON views.%I', reader, view.name);
        EXECUTE format('CREATE POLICY %I ON views.%I AS RESTRICTIVE TO %I USING (%I = %L)', reader, view.name, reader, view.owned, account);
        EXECUTE format('GRANT SELECT ON views.%I TO %I', view.name, reader);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA views TO %I', reader);
    EXECUTE format('ALTER ROLE %I SET search_path = views', reader);
    EXECUTE format('ALTER ROLE %I SET default_transaction_read_only = on', reader);
    EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', reader, '10min');
    EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', reader, '1min');
END
$$;
