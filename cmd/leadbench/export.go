package main

import (
	"context"
	"fmt"
	"io"
)

// export is one of the source history that came to its end.
type export struct {
	finished
	format string
	rows   lines
}

// export has the source history of an account written out that has as many entries as are asked for. They are put into
// the view, and not on the log: it is the last thing that is measured. Times are of whole milliseconds, as on the log: lists
// go on behind such a time.
func (m *replayMeasures) export(ctx context.Context, rows int) error {
	say("making a source history of %d entries", rows)
	const many = "many"
	if _, err := m.command(ctx, io.Discard, "account", "set", many, "--feature", "crm_api"); err != nil {
		return err
	}
	err := execute(ctx, m.address, `
		INSERT INTO views.source_history (lead_id, source, account, position, first_seen_at, last_seen_at, arrivals,
		                                  credential, metadata, ip, user_agent, request_id, changed)
		SELECT lpad(n::text, 26, '0'), 'website', $1, n, date_trunc('milliseconds', now()), date_trunc('milliseconds', now()), 1,
		       'token:01J000000000000000000000TK', '{"source":"website","utm_campaign":"diwali"}', '198.51.100.7', 'Mozilla/5.0', lpad(n::text, 26, '0'), '["name","phone"]'
		  FROM generate_series(1, $2::integer) AS n`, many, rows)
	if err != nil {
		return err
	}
	if err := m.checkpoint(ctx); err != nil {
		return err
	}
	for _, format := range []string{"csv", "ndjson"} {
		e := export{format: format}
		if e.finished, err = m.command(ctx, &e.rows, "export", "sources", "--account", many, "--format", format); err != nil {
			return err
		}
		if int(e.rows) < rows {
			return fmt.Errorf("%d lines of %d entries as %s", e.rows, rows, format)
		}
		m.exports = append(m.exports, e)
	}
	return nil
}

// lines counts them.
type lines int

func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' {
			*l++
		}
	}
	return len(p), nil
}
