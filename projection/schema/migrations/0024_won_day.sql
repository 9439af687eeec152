-- +goose Up

-- What is won of the leads that a day opened, added up by the projector of leads with every change: a report of a year no
-- longer goes over every lead that was won. A projector of before this may run on until its process is replaced; it does
-- not keep the table, and whichever newer one takes over from it fills it first. Until then the report counts the leads.
CREATE TABLE views.won_day (
    account text    COLLATE "C" NOT NULL,
    day     date    NOT NULL,
    source  text    COLLATE "C" NOT NULL,
    leads   bigint  NOT NULL,
    value   numeric NOT NULL,
    CONSTRAINT won_day_key PRIMARY KEY (account, day, source)
) WITH (fillfactor = 50);

COMMENT ON TABLE views.won_day IS 'Leads that are won now, by the day (UTC) on which they were opened and the source that opened them.';
COMMENT ON COLUMN views.won_day.value IS 'Of their opportunities, together.';

-- The column won stays: reports of programs that still run read it, and so does what fills the table.
DROP INDEX views.lead_won;
