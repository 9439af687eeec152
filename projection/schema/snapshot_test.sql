-- Every table with its columns, constraints, parameters, indexes and comments, one text each.
SELECT format(E'CREATE TABLE %I.%I (\n%s\n)%s%s;', n.nspname, c.relname, concat_ws(E',\n',
         (SELECT string_agg(format('    %I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                     CASE WHEN a.attcollation <> t.typcollation THEN format(' COLLATE %I', l.collname) END,
                     CASE WHEN a.attnotnull THEN ' NOT NULL' END,
                     CASE a.attgenerated WHEN '' THEN ' DEFAULT ' ELSE ' GENERATED ' END || pg_get_expr(d.adbin, d.adrelid)), E',\n' ORDER BY a.attnum)
            FROM pg_attribute a
            JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_collation l ON l.oid = a.attcollation
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
         (SELECT string_agg(format('    CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), E',\n' ORDER BY k.conname)
            FROM pg_constraint k
           WHERE k.conrelid = c.oid AND k.contype <> 'n')), -- PostgreSQL 18 counts NOT NULL among the constraints
         ' PARTITION BY ' || pg_get_partkeydef(c.oid), ' WITH (' || array_to_string(c.reloptions, ', ') || ')')
       || coalesce((SELECT string_agg(E'\n' || pg_get_indexdef(x.indexrelid) || ';', '' ORDER BY x.indexrelid::regclass::text)
            FROM pg_index x
           WHERE x.indrelid = c.oid AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = x.indexrelid)), '')
       || coalesce((SELECT string_agg(E'\n' || format('COMMENT ON %s IS %L;',
                     CASE o.objsubid WHEN 0 THEN format('TABLE %I.%I', n.nspname, c.relname)
                     ELSE format('COLUMN %I.%I.%I', n.nspname, c.relname, a.attname) END, o.description), '' ORDER BY o.objsubid)
            FROM pg_description o
            LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = o.objsubid
           WHERE o.classoid = 'pg_class'::regclass AND o.objoid = c.oid), '')
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname IN ('views', 'secret', 'delivery', 'person', 'lease') AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('migration', 'migration_lock')
 ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C";
