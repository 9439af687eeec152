-- +goose Up

-- By stream, so that who is forgotten is found among the deliveries of a month without reading them all: the fan-out does
-- that in its transaction, and everybody's deliveries wait for it.
CREATE INDEX IF NOT EXISTS delivery_stream ON delivery.delivery (stream);
