-- +goose Up

-- The event that a row of the queue is about, by its id: on a log that was brought back from a backup another one may
-- stand where it was. Rows of a program of before this have none. Like all of the schema delivery, it may run again.
ALTER TABLE delivery.queue ADD COLUMN IF NOT EXISTS event_id text COLLATE "C" NOT NULL DEFAULT '';
UPDATE delivery.queue q SET event_id = d.event_id FROM delivery.delivery d WHERE d.delivery_id = q.delivery_id AND q.event_id = '';

COMMENT ON COLUMN delivery.queue.event_id IS 'Empty: not known.';
