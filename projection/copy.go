package projection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// execer is a connection or a transaction.
type execer interface {
	Rows
	schema.Executor
}

// These queries yield statements that create another table like an existing one. Names stay the same, because a later
// migration finds constraints and indexes by name. $1 is the existing schema, $2 the other one, $3 the table.
const (
	copyTable = `
		SELECT format('DROP TABLE IF EXISTS %I.%I', $2::text, $3::text)
		 UNION ALL
		SELECT format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING ALL EXCLUDING INDEXES)', $2::text, $3::text, $1::text,
		  $3::text)
		 UNION ALL
		SELECT format('ALTER TABLE %I.%I SET (%s)', $2::text, $3::text, array_to_string(c.reloptions, ', '))
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = $1 AND c.relname = $3 AND c.reloptions IS NOT NULL
		 UNION ALL
		SELECT format('COMMENT ON TABLE %I.%I IS %L', $2::text, $3::text, obj_description(c.oid, 'pg_class'))
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = $1 AND c.relname = $3 AND obj_description(c.oid, 'pg_class') IS NOT NULL
		 UNION ALL
		SELECT format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s', $2::text, $3::text, k.conname,
		  pg_get_constraintdef(k.oid))
		  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = $1 AND c.relname = $3 AND k.contype IN ('p', 'u')`

	// Indexes that back no constraint are built after the rows are written, several at a time.
	copyIndexes = `
		SELECT format('CREATE %sINDEX IF NOT EXISTS %I ON %I.%I %s', CASE WHEN x.indisunique
		  THEN 'UNIQUE ' END, i.relname,
		              $2::text, $3::text, substr(pg_get_indexdef(i.oid), strpos(pg_get_indexdef(i.oid), ' USING ') + 1))
		  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
		  JOIN pg_class c ON c.oid = x.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = $1 AND c.relname = $3 AND NOT EXISTS (SELECT FROM pg_constraint k
		   WHERE k.conindid = x.indexrelid)`

	// The roles that may read the live table may read the one that replaces it, under the same row policies.
	copyGrants = `
		SELECT format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY', $2::text, $3::text)
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = $1 AND c.relname = $3 AND c.relrowsecurity
		 UNION ALL
		SELECT s.statement
		  FROM pg_policies p, LATERAL (VALUES
		       (1, format('DROP POLICY IF EXISTS %I ON %I.%I', p.policyname, $2::text, $3::text)),
		       (2, format('CREATE POLICY %I ON %I.%I AS %s FOR %s TO %s USING (%s)', p.policyname, $2::text, $3::text,
		         p.permissive, p.cmd,
		                  (SELECT string_agg(CASE r WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(r) END, ', ')
		                    FROM unnest(p.roles) r), p.qual))
		       ) AS s (ordinal, statement)
		 WHERE p.schemaname = $1 AND p.tablename = $3 AND p.qual IS NOT NULL
		 UNION ALL
		SELECT format('GRANT %s ON %I.%I TO %s', g.privilege_type, $2::text, $3::text,
		              CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END)
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) g
		 WHERE n.nspname = $1 AND c.relname = $3 AND g.grantee <> c.relowner`

	// The roles that may use the live schema may use the copy's.
	copyUsage = `
		SELECT format('GRANT USAGE ON SCHEMA %I TO %s', $2::text,
		              CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END)
		  FROM pg_namespace n, aclexplode(n.nspacl) g
		 WHERE n.nspname = $1 AND g.grantee <> n.nspowner AND g.privilege_type = 'USAGE' AND $3::text = ''`
)

func createLike(ctx context.Context, db execer, from, to, table string) error {
	return execGenerated(ctx, db, copyTable, from, to, table)
}

func grantTable(ctx context.Context, db execer, from, to, table string) error {
	return execGenerated(ctx, db, copyGrants, from, to, table)
}

func grantSchema(ctx context.Context, db execer, from, to string) error {
	return execGenerated(ctx, db, copyUsage, from, to, "")
}

// execGenerated executes the statements that a query yields.
func execGenerated(ctx context.Context, db execer, query, from, to, table string) error {
	statements, err := generateStatements(ctx, db, query, from, to, table)
	for _, statement := range statements {
		if _, err := db.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return err
}

func generateStatements(
	ctx context.Context, db execer, query, from, to, table string,
) (statements []string, err error) {
	rows, err := db.Query(ctx, query, from, to, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
