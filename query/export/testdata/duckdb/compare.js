// Compares name.parquet with name.csv in a directory, cell by cell, and prints the types of the columns.
import { DuckDBInstance } from "@duckdb/node-api";

const [directory, name] = process.argv.slice(2);
const connection = await (await DuckDBInstance.create(":memory:")).connect();
const rows = async (sql) => (await connection.runAndReadAll(sql)).getRowsJson();

await connection.run(`CREATE VIEW p AS SELECT * FROM read_parquet('${directory}/${name}.parquet')`);
await connection.run(`CREATE VIEW c AS SELECT * FROM read_csv('${directory}/${name}.csv', header = true, all_varchar = true,
  delim = ',', quote = '"', escape = '"', new_line = '\\n', nullstr = 'NULL', max_line_size = 10000000)`);

// asCSV is an expression for a column's text in CSV.
function asCSV(column, type) {
  const c = `"${column}"`;
  if (type.startsWith("TIMESTAMP")) return `strftime(${c} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ')`;
  if (type.endsWith("[]")) return `array_to_string(${c}, ' ')`;
  if (type.startsWith("DECIMAL")) return `regexp_replace(${c}::VARCHAR, '\\.?0*$', '')`;
  return `${c}::VARCHAR`;
}

const columns = (await rows(`DESCRIBE p`)).map(([column, type]) => ({ column, type }));
const texts = columns.map(({ column, type }) => `coalesce(${asCSV(column, type)}, '') AS "${column}"`).join(", ");
const [[parquet], [csv], [differing]] = [
  ...(await rows(`SELECT count(*)::INTEGER FROM p`)),
  ...(await rows(`SELECT count(*)::INTEGER FROM c`)),
  ...(await rows(`SELECT count(*)::INTEGER FROM (
    (SELECT ${texts} FROM p EXCEPT ALL SELECT * FROM c) UNION ALL (SELECT * FROM c EXCEPT ALL SELECT ${texts} FROM p))`)),
];
if (differing > 0) {
  console.log(await rows(`SELECT ${texts} FROM p EXCEPT ALL SELECT * FROM c LIMIT 2`));
  console.log(await rows(`SELECT * FROM c EXCEPT ALL SELECT ${texts} FROM p LIMIT 2`));
}
console.log(JSON.stringify({ parquet, csv, differing, types: columns.map(({ column, type }) => `${column} ${type}`) }));
