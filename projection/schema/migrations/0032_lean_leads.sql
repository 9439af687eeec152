-- +goose Up

-- The state says no longer what the columns say. The first process of this version that takes the view over writes the
-- rows anew.
COMMENT ON COLUMN views.lead.state IS 'The rest of the lead but for its sources, without what is empty. Without Phones or Emails: the one in the column alone. Without UpdatedAt: nothing was since created_at. Not jsonb, which writes numbers its own way: what a caller sent is shown as it was sent.';
