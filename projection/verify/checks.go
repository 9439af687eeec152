package verify

// settings of the transaction: no nested loops, since the planner has no statistics of the temporary tables, and enough
// memory to sort.
const settings = `SET LOCAL enable_nestloop = off; SET LOCAL jit = off; SET LOCAL work_mem = '32MB'`

// temporary creates the tables for the data read from the log, and for the data derived from it.
const temporary = `
	CREATE TEMP TABLE seen (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, hash bigint NOT NULL,
	  revision bigint NOT NULL,
	                        event_id uuid NOT NULL, at timestamptz) ON COMMIT DROP;
	CREATE TEMP TABLE claimed (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, revision bigint NOT NULL,
	                           kind text COLLATE "C" NOT NULL, holder text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE leaf (position bigint NOT NULL, stream text COLLATE "C" NOT NULL,
	  account text COLLATE "C" NOT NULL,
	                        index bigint NOT NULL, hash bytea NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE joined_into (position bigint NOT NULL, lead_id text COLLATE "C" NOT NULL,
	  into_id text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE joined (position bigint NOT NULL, lead_id text COLLATE "C" NOT NULL,
	  from_id text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE lived (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, lives boolean NOT NULL)
	ON COMMIT DROP;

	CREATE TEMP TABLE known (lead_id text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL,
	  kind text COLLATE "C" NOT NULL,
	                         value text COLLATE "C") ON COMMIT DROP;
	CREATE TEMP TABLE held (lead_id text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
	  stream text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE uneven (lead_id text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, vals bigint NOT NULL,
	                          claims bigint NOT NULL) ON COMMIT DROP`

// derivations fill the tables that several checks use. $1 is the position of the leads.
//
// A claim's last event is the one that no later event of its stream follows. Few claims have more than one.
var derivations = []string{
	// The values of each lead. Its state is JSON, which is parsed once. Without a list, the lead only has the value in
	// the column.
	`INSERT INTO known
	 SELECT lead_id, account, v.kind, v.value
	   FROM views.lead, json_to_record(state) AS s (phones json, emails json), LATERAL (
	        SELECT 'phone', json_array_elements_text(CASE json_typeof(phones) WHEN 'array' THEN phones END)
	         UNION ALL
	        SELECT 'phone', phone WHERE phones IS NULL AND phone <> ''
	         UNION ALL
	        SELECT 'email', json_array_elements_text(CASE json_typeof(emails) WHEN 'array' THEN emails END)
	         UNION ALL
	        SELECT 'email', email WHERE emails IS NULL AND email <> '') AS v (kind, value)
	  WHERE $1::bigint >= 0`,

	// The claims of each lead.
	`INSERT INTO held
	 SELECT holder, kind, stream
	   FROM claimed c
	  WHERE c.position <= $1 AND holder <> '' AND kind IN ('phone', 'email')
	    AND NOT EXISTS (SELECT FROM claimed l WHERE l.revision > 0 AND l.position <= $1 AND l.stream = c.stream
	      AND l.position > c.position)`,

	// The leads whose numbers of values and of claims differ.
	`INSERT INTO uneven
	 SELECT lead_id, kind, sum(vals), sum(claims)
	   FROM (SELECT lead_id, kind, 1 AS vals, 0 AS claims FROM known UNION ALL SELECT lead_id, kind, 0, 1 FROM held) b
	  WHERE $1::bigint >= 0
	  GROUP BY lead_id, kind HAVING sum(vals) <> sum(claims)`,
}

// checks are queries that return findings as sentences. $1 is the position of the leads, $2 the maximum number of
// findings.
//
// Names of claims are hashes under a key that is not needed here: no two leads may share a phone or email, and each
// lead must hold at least as many claims as it has values. A lead with events after the position is left out.
var checks = []string{
	// Events are sorted by the hashes of their streams, which is several times faster than by name. If the revisions
	// within a hash have gaps, its events are sorted by name: two streams may have the same hash.
	`SELECT format('stream %s: event at position %s has revision %s, not %s', stream, position, revision, expected)
	   FROM (SELECT *, row_number() OVER (PARTITION BY stream ORDER BY position) - 1 AS expected FROM seen
	          WHERE hash IN (SELECT hash
	            FROM (SELECT hash, revision, row_number() OVER (PARTITION BY hash ORDER BY position) - 1 AS expected
	              FROM seen) h
	                          WHERE revision <> expected)) s
	  WHERE revision <> expected AND $1::bigint >= 0
	  ORDER BY position LIMIT $2`,

	// Sealed data can be opened only in its own stream, but at any revision: a copy of an event has the same id.
	`SELECT format('event at position %s of stream %s repeats the event at position %s', c.position, c.stream,
		o.position)
	   FROM (SELECT event_id, min(position) AS position FROM seen GROUP BY event_id HAVING count(*) > 1) o
	   JOIN seen c ON c.event_id = o.event_id AND c.position > o.position
	  WHERE $1::bigint >= 0
	  ORDER BY c.position LIMIT $2`,

	// Sealed data is not bound to a revision either. But the times of a lead's events never decrease.
	`SELECT format('event at position %s of stream %s is older than the event that it follows', position, stream)
	   FROM (SELECT *, lag(at) OVER (PARTITION BY hash, stream ORDER BY position) AS before FROM seen
	          WHERE at IS NOT NULL AND hash IN (SELECT hash FROM seen WHERE at IS NOT NULL AND revision > 0)) s
	  WHERE at < before AND $1::bigint >= 0
	  ORDER BY position LIMIT $2`,

	`WITH twice AS (
	     SELECT account, kind, value FROM known WHERE $1::bigint >= 0 GROUP BY account, kind, value
	     HAVING min(lead_id) <> max(lead_id)
	 )
	 SELECT format('leads %s of account %s have the same %s', string_agg(DISTINCT lead_id, ', ' ORDER BY lead_id),
	   account, kind)
	   FROM twice JOIN known USING (account, kind, value)
	  GROUP BY account, kind, value
	  ORDER BY 1 LIMIT $2`,

	`SELECT format('lead %s has %s values of kind %s, and claims on %s', lead_id, vals, kind, claims)
	   FROM uneven
	  WHERE vals > claims
	    AND lead_id NOT IN (SELECT substr(stream, 6) FROM seen WHERE position > $1 AND stream ^@ 'lead-')
	  ORDER BY 1 LIMIT $2`,

	`SELECT format('lead %s was joined into lead %s, but its stream has no earlier event of that', j.from_id, j.lead_id)
	   FROM joined j LEFT JOIN joined_into d ON d.lead_id = j.from_id AND d.position < j.position
	  WHERE d.lead_id IS NULL AND $1::bigint >= 0
	  ORDER BY j.position LIMIT $2`,

	// A claim and its holder are appended together. A lead that was erased while it could not be read keeps its claims.
	`SELECT format('%s: the %s is claimed for %s, which does not exist', stream, kind, holding)
	   FROM (SELECT *, CASE kind WHEN 'token-slot' THEN 'token-' WHEN 'webhook-slot' THEN 'webhook-' WHEN 'intake-slot'
	     THEN 'intake-' ELSE 'lead-' END || holder AS holding
	           FROM claimed WHERE holder <> ''
	           AND kind IN ('phone', 'email', 'token-slot', 'webhook-slot', 'intake-slot')) c
	   LEFT JOIN (SELECT stream AS holding, bool_or(lives) AS lived,
	     (array_agg(lives ORDER BY position DESC))[1] AS lives FROM lived GROUP BY stream) h USING (holding)
	  WHERE NOT EXISTS (SELECT FROM claimed l WHERE l.revision > 0 AND l.stream = c.stream AND l.position > c.position)
	    AND NOT coalesce(h.lived AND (h.lives OR kind IN ('phone', 'email')
	      AND holder NOT IN (SELECT lead_id FROM joined_into)), false)
	    AND $1::bigint >= 0
	  ORDER BY stream LIMIT $2`,

	`SELECT format('lead-%s has %s values of kind %s, and claims on %s: %s', lead_id, vals, kind, claims,
		string_agg(stream, ', ' ORDER BY stream))
	   FROM uneven JOIN held USING (lead_id, kind)
	  WHERE claims > vals
	    AND 'lead-' || lead_id IN (SELECT stream FROM lived GROUP BY stream
	      HAVING (array_agg(lives ORDER BY position DESC))[1])
	    AND lead_id NOT IN (SELECT substr(stream, 6) FROM seen WHERE position > $1 AND stream ^@ 'lead-')
	    AND lead_id NOT IN (SELECT h.lead_id FROM held h JOIN claimed l USING (stream) WHERE l.position > $1)
	  GROUP BY lead_id, kind, vals, claims
	  ORDER BY lead_id, kind LIMIT $2`,
}
