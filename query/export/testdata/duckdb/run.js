// Runs the SQL statements of a JSON list, given on standard input, in a directory, and prints a JSON list of their rows.
import { readFileSync } from "node:fs";
import { DuckDBInstance } from "@duckdb/node-api";

const statements = JSON.parse(readFileSync(0, "utf8"));
process.chdir(process.argv[2]);
const connection = await (await DuckDBInstance.create(":memory:")).connect();
const results = [];
for (const statement of statements) results.push((await connection.runAndReadAll(statement)).getRowsJson());
console.log(JSON.stringify(results));
