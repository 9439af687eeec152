// Addlog registers a log with a litewitness that is not running, like witnessctl add-log and add-key.
package main

import (
	"crypto/sha256"
	"encoding/base64"
	"log"
	"os"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func main() {
	database, origin, key := os.Args[1], os.Args[2], os.Args[3]
	db, err := sqlite.OpenConn(database, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	empty := sha256.Sum256(nil)
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{"CREATE TABLE log (origin TEXT PRIMARY KEY, tree_size INTEGER NOT NULL, tree_hash TEXT NOT NULL)", nil},
		{"CREATE TABLE key (origin TEXT NOT NULL, key TEXT NOT NULL, FOREIGN KEY(origin) REFERENCES log(origin))", nil},
		{"INSERT INTO log VALUES (?, 0, ?)", []any{origin, base64.StdEncoding.EncodeToString(empty[:])}},
		{"INSERT INTO key VALUES (?, ?)", []any{origin, key}},
	} {
		if err := sqlitex.Execute(db, step.sql, &sqlitex.ExecOptions{Args: step.args}); err != nil {
			log.Fatal(err)
		}
	}
}
