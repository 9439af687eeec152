-- A role that reads the views of one account, for SQL users of that account, restricted by PostgreSQL's row level security. The
-- service owns the views, so the policies do not apply to it and cost it nothing.
-- It includes readers.sql of the same folder. Run it once for each account, after leadlog migrate, as a superuser in leadlog's database. It prints the role's name:
--
--     psql -d leadlog -v account=acme -f deploy/account-reader.sql
--     psql -d leadlog -c '\password leadlog_3f1c09a2be47'
--
-- Every role sees the names of all roles and policies, so the name is random, and readers cannot read the table of roles and accounts.
--
-- Run it again after a migration: new views are closed to readers until then. Replays and copies of views (leadlog replay VIEW
-- --into SCHEMA) keep the policies. To remove a reader:
-- DELETE FROM reader.account WHERE role = '…'; DROP OWNED BY …; DROP ROLE …
--
-- It briefly locks each view without a policy. A long query of such a view blocks it, and queries after it, so it fails after some
-- seconds and changes nothing. Run it again then.

SET client_min_messages = warning;
SET lock_timeout = '3s';
SELECT set_config('leadlog.account', :'account', false);

\ir readers.sql

DO $$
DECLARE
    wanted text := current_setting('leadlog.account');
    member name;
    view   record;
BEGIN
    IF wanted !~ '^[A-Za-z0-9_-]{1,64}$' THEN
        RAISE EXCEPTION '% is not the name of an account', wanted;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leadlog_account_readers') THEN
        CREATE ROLE leadlog_account_readers NOLOGIN;
    END IF;
    CREATE SCHEMA IF NOT EXISTS reader;
    CREATE TABLE IF NOT EXISTS reader.account (role name PRIMARY KEY, account text NOT NULL UNIQUE);
    COMMENT ON TABLE reader.account IS 'The account that each role reads: deploy/account-reader.sql.';
    CREATE OR REPLACE FUNCTION reader.account() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS
        'SELECT account FROM reader.account WHERE role = session_user';
    COMMENT ON FUNCTION reader.account() IS 'The account of the session''s role.';
    GRANT USAGE ON SCHEMA reader TO PUBLIC; -- for the policies; the table has no grant

    SELECT role INTO member FROM reader.account WHERE account = wanted;
    IF member IS NULL THEN
        member := 'leadlog_' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 12);
        INSERT INTO reader.account VALUES (member, wanted);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = member) THEN
        EXECUTE format('CREATE ROLE %I LOGIN', member);
    ELSIF EXISTS (SELECT FROM pg_roles WHERE rolname = member AND (rolsuper OR rolbypassrls)) THEN
        RAISE EXCEPTION 'policies do not apply to the role %', member;
    END IF;
    EXECUTE format('GRANT leadlog_account_readers TO %I', member);

    FOR view IN
        SELECT c.relname AS name, a.attname AS owned
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'views'::regnamespace AND c.relkind = 'r' AND a.attname IN ('account', 'account_id')
           AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid AND polname = 'one_account')
    LOOP
        EXECUTE format('ALTER TABLE views.%I ENABLE ROW LEVEL SECURITY', view.name);
        -- Other roles still see all rows.
        EXECUTE format('CREATE POLICY all_rows ON views.%I USING (true)', view.name);
        EXECUTE format('CREATE POLICY one_account ON views.%I AS RESTRICTIVE TO leadlog_account_readers USING (%I = (SELECT reader.account()))',
                       view.name, view.owned);
        EXECUTE format('GRANT SELECT ON views.%I TO leadlog_account_readers', view.name);
    END LOOP;
    GRANT USAGE ON SCHEMA views TO leadlog_account_readers;
    EXECUTE format('ALTER ROLE %I CONNECTION LIMIT 5', member);
    EXECUTE format('ALTER ROLE %I SET search_path = views', member);
    EXECUTE format('ALTER ROLE %I SET default_transaction_read_only = on', member);
    EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', member, '10min');
    EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', member, '1min');
END
$$;

SELECT role FROM reader.account WHERE account = current_setting('leadlog.account');
