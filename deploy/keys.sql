-- The role leadlog_keys owns the keys of persons, for their backup; only it and the service can read them. Run this once, after leadlog
-- migrate, as a superuser in the database of the log (of the views, if the log is in EventStoreDB), with the service's role:
--
--     psql -d leadlog -v service=leadlog -f deploy/keys.sql
--     psql -d leadlog -c '\password leadlog_keys'
--
-- It may be run again. If it fails, for example because service is no role, it changes nothing.
\set ON_ERROR_STOP on
BEGIN;
SELECT 'CREATE ROLE leadlog_keys LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leadlog_keys') \gexec

ALTER SCHEMA person OWNER TO leadlog_keys;
ALTER TABLE person.key OWNER TO leadlog_keys;
ALTER TABLE person.content OWNER TO leadlog_keys;
ALTER TABLE person.destroyed OWNER TO leadlog_keys;
REVOKE ALL ON SCHEMA person FROM PUBLIC;
REVOKE ALL ON person.key, person.content, person.destroyed FROM PUBLIC;
GRANT USAGE ON SCHEMA person TO :"service";
GRANT SELECT, INSERT, UPDATE, DELETE ON person.key, person.content, person.destroyed TO :"service";
COMMIT;
