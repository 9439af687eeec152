-- +goose Up

-- Who has a phone or an email is found where the log keeps who owns it. Both are random, so these two indexes cost a
-- capture, and a log that grows, more than all others together; a program of before reads every lead of an account instead.
DROP INDEX views.lead_phone;
DROP INDEX views.lead_email;
