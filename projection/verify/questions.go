package verify

// temporary holds what is remembered of the log.
const temporary = `
	CREATE TEMP TABLE seen (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, revision bigint NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE claimed (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
	                           holder text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE leaf (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL,
	                        ordinal bigint NOT NULL, hash bytea NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE departed (position bigint NOT NULL, lead_id text COLLATE "C" NOT NULL, into_id text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE joined (position bigint NOT NULL, lead_id text COLLATE "C" NOT NULL, from_id text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE lived (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, lives boolean NOT NULL) ON COMMIT DROP`

// questions each yield sentences about what is wrong. $1 is the position that the leads are of, $2 the most answers.
//
// Names of claims are hashes under a key that is not needed here: every phone and email of a lead must be no other
// lead's, and each lead must hold at least as many claims as it has values. A lead that something happened to behind
// the position is left out.
var questions = []string{
	`SELECT format('stream %s: event at position %s has revision %s, not %s', stream, position, revision, place)
	   FROM (SELECT *, row_number() OVER (PARTITION BY stream ORDER BY position) - 1 AS place FROM seen) s
	  WHERE revision <> place AND $1::bigint >= 0
	  ORDER BY position LIMIT $2`,

	`SELECT format('leads %s of account %s have the same %s', string_agg(lead_id, ', ' ORDER BY lead_id), account, kind)
	   FROM (SELECT DISTINCT account, lead_id, 'phone' AS kind, json_array_elements_text(state -> 'Phones') AS value
	           FROM views.lead WHERE json_typeof(state -> 'Phones') = 'array'
	          UNION ALL
	         SELECT DISTINCT account, lead_id, 'email', json_array_elements_text(state -> 'Emails')
	           FROM views.lead WHERE json_typeof(state -> 'Emails') = 'array') v
	  WHERE $1::bigint >= 0
	  GROUP BY account, kind, value HAVING count(*) > 1
	  ORDER BY 1 LIMIT $2`,

	held + `
	 SELECT format('lead %s has %s values of kind %s, and claims on %s', lead_id, vals, kind, coalesce(cardinality(claims), 0))
	   FROM known FULL JOIN held USING (lead_id, kind)
	  WHERE vals > coalesce(cardinality(claims), 0)
	    AND lead_id NOT IN (SELECT substr(stream, 6) FROM seen WHERE position > $1 AND stream ^@ 'lead-')
	  ORDER BY 1 LIMIT $2`,

	`SELECT format('lead %s was joined into lead %s, and did not depart before', j.from_id, j.lead_id)
	   FROM joined j LEFT JOIN departed d ON d.lead_id = j.from_id AND d.position < j.position
	  WHERE d.lead_id IS NULL AND $1::bigint >= 0
	  ORDER BY j.position LIMIT $2`,
}

// held is how many values each lead has, as of the position, and which claims: those too that name a lead which is part of
// it by now. The two are joined by FULL JOIN, which is never done row by row, whatever the planner believes of tables that
// it has not seen before.
const held = `WITH RECURSIVE heir AS (
	     SELECT lead_id, into_id, 1 AS steps FROM departed WHERE position <= $1
	      UNION ALL
	     SELECT h.lead_id, d.into_id, steps + 1 FROM heir h JOIN departed d ON d.lead_id = h.into_id WHERE d.position <= $1 AND steps < 1000
	 ), last AS (
	     SELECT DISTINCT ON (lead_id) lead_id, into_id FROM heir ORDER BY lead_id, steps DESC
	 ), held AS (
	     SELECT coalesce(into_id, holder) AS lead_id, kind, array_agg(stream ORDER BY stream) AS claims
	       FROM (SELECT DISTINCT ON (stream) stream, kind, holder FROM claimed WHERE position <= $1 ORDER BY stream, position DESC) c
	       LEFT JOIN last ON last.lead_id = holder
	      WHERE holder <> '' AND kind IN ('phone', 'email')
	      GROUP BY 1, 2
	 ), known AS (
	     SELECT lead_id, 'phone' AS kind, json_array_length(state -> 'Phones') AS vals FROM views.lead WHERE json_typeof(state -> 'Phones') = 'array'
	      UNION ALL
	     SELECT lead_id, 'email', json_array_length(state -> 'Emails') FROM views.lead WHERE json_typeof(state -> 'Emails') = 'array'
	 )`

// leftovers are claims whose holder does not have what was claimed for it, or not yet. Which of several claims of a lead
// it is cannot be told without the key of their names.
var leftovers = []string{
	`SELECT ARRAY[c.stream], format('%s: the %s is claimed for %s, which is not there', c.stream, kind, holding)
	   FROM (SELECT DISTINCT ON (stream) stream, kind, holder,
	                CASE kind WHEN 'token-slot' THEN 'token-' WHEN 'webhook-slot' THEN 'webhook-' ELSE 'lead-' END || holder AS holding
	           FROM claimed ORDER BY stream, position DESC) c
	   FULL JOIN (SELECT DISTINCT ON (stream) stream, lives FROM lived ORDER BY stream, position DESC) l ON l.stream = holding
	  WHERE holder <> '' AND kind IN ('phone', 'email', 'token-slot', 'webhook-slot') AND NOT coalesce(lives, false)
	    AND $1::bigint >= 0
	  ORDER BY c.stream`,

	held + `
	 SELECT claims, format('lead-%s has %s values of kind %s, and claims on %s: %s', lead_id, coalesce(vals, 0), kind,
	                       cardinality(claims), array_to_string(claims, ', '))
	   FROM held FULL JOIN known USING (lead_id, kind)
	  WHERE cardinality(claims) > coalesce(vals, 0)
	    AND lead_id IN (SELECT substr(stream, 6) FROM lived WHERE lives AND stream ^@ 'lead-')
	    AND lead_id NOT IN (SELECT substr(stream, 6) FROM seen WHERE position > $1 AND stream ^@ 'lead-')
	  ORDER BY lead_id, kind`,
}
