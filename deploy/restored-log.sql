-- For a log that was restored from a backup older than the views and deliveries. Run this with every leadlog serve stopped, in the
-- database of the views; head is the position of the log's last event, SELECT max(position) FROM log.event in its own database:
--
--     psql -v head=POSITION -f deploy/restored-log.sql
--     leadlog replay all
--
-- Events in the backup were sent already, so webhooks continue after it. Queued deliveries of lost events are cancelled.
\set ON_ERROR_STOP on
BEGIN;
UPDATE delivery.origin SET position = :head;
DELETE FROM delivery.checkpoint;
DELETE FROM delivery.endpoint; -- goes with its checkpoint: the service rebuilds it from the log, and queues nothing up to the head
UPDATE delivery.delivery SET state = 'cancelled' WHERE delivery_id IN (SELECT delivery_id FROM delivery.queue WHERE position > :head);
DELETE FROM delivery.queue WHERE position > :head;
DELETE FROM delivery.deferred WHERE position > :head;
-- Retries and replays requested at lost positions are dropped: other events will get these positions.
UPDATE delivery.delivery SET retried = :head WHERE retried > :head;
DELETE FROM delivery.replay WHERE requested > :head;
COMMIT;
