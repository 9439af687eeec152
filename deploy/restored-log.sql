-- After the log alone was brought back from a backup, while views and deliveries are of a later moment. With every
-- leadlog serve stopped, in the database of the views; head is the position of the log's last event, which
-- SELECT max(position) FROM log.event  tells in the log's own database:
--
--     psql -v head=POSITION -f deploy/restored-log.sql
--     leadlog replay all
--
-- What the backup has was sent already, so webhooks begin behind it. What was still to be sent of events that the log
-- has lost can never be sent: those deliveries are cancelled, and stay to be read.
\set ON_ERROR_STOP on
BEGIN;
UPDATE delivery.origin SET position = :head;
DELETE FROM delivery.checkpoint;
DELETE FROM delivery.endpoint; -- goes with its checkpoint: the service reads the log anew for it, and queues nothing up to the head
UPDATE delivery.delivery SET state = 'cancelled' WHERE delivery_id IN (SELECT delivery_id FROM delivery.queue WHERE position > :head);
DELETE FROM delivery.queue WHERE position > :head;
-- What was asked for in what the log has lost is not asked for any more, and must not pass for what will be asked there.
UPDATE delivery.delivery SET retried = :head WHERE retried > :head;
DELETE FROM delivery.replay WHERE requested > :head;
COMMIT;
