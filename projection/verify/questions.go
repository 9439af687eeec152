package verify

// temporary holds what is remembered of the log.
const temporary = `
	CREATE TEMP TABLE seen (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, revision bigint NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE claimed (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
	                           holder text COLLATE "C" NOT NULL) ON COMMIT DROP;
	CREATE TEMP TABLE leaf (position bigint NOT NULL, stream text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL,
	                        ordinal bigint NOT NULL, hash bytea NOT NULL) ON COMMIT DROP`

// questions each yield sentences about what is wrong. $1 is the position that the leads are of, $2 the most answers.
//
// Names of claims are hashes under a key that is not needed here: every phone and email of a lead must be no other
// lead's, and each lead must hold exactly as many claims as it has values. A lead that something happened to behind
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

	`WITH held AS (
	     SELECT holder AS lead_id, kind, count(*) AS claims
	       FROM (SELECT DISTINCT ON (stream) kind, holder FROM claimed WHERE position <= $1 ORDER BY stream, position DESC) c
	      WHERE holder <> '' AND kind IN ('phone', 'email')
	      GROUP BY 1, 2
	 ), known AS (
	     SELECT lead_id, 'phone' AS kind, json_array_length(state -> 'Phones') AS vals FROM views.lead WHERE json_typeof(state -> 'Phones') = 'array'
	      UNION ALL
	     SELECT lead_id, 'email', json_array_length(state -> 'Emails') FROM views.lead WHERE json_typeof(state -> 'Emails') = 'array'
	 )
	 SELECT format('lead %s has %s values of kind %s, and claims on %s', lead_id, coalesce(vals, 0), kind, coalesce(claims, 0))
	   FROM held FULL JOIN known USING (lead_id, kind)
	  WHERE coalesce(vals, 0) <> coalesce(claims, 0)
	    AND lead_id NOT IN (SELECT substr(stream, 6) FROM seen WHERE position > $1 AND stream ^@ 'lead-')
	  ORDER BY 1 LIMIT $2`,
}
