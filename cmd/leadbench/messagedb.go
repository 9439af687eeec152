package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// messageDBFiles are what message-db is installed of, in order. A pattern names files that do not need each other.
var messageDBFiles = []string{"schema/*.sql", "extensions/*.sql", "types/*.sql", "tables/*.sql", "functions/*.sql", "indexes/*.sql"}

// messageDBFacts is the script for pgbench that appends a new lead with message-db: three new streams. In one statement it is
// fastest: the lock that writers of a category share is held for no round trip, and there is one commit.
var messageDBFacts = func() string {
	script, separator := "\\set n random(1, 9000000000000000000)\nSELECT ", ""
	for i, write := range arrival()[len(checked):] {
		fact := write.Events[0]
		category, _, _ := strings.Cut(write.Stream, "-")
		script += fmt.Sprintf("%swrite_message(gen_random_uuid()::text, '%s-%d' || :n, '%s', '%s', '{\"account\":\"%s\",\"actor\":\"%s\",\"requestId\":\"%s\"}', -1)",
			separator, category, i, fact.Type, fact.Data, fact.Metadata.Account, fact.Metadata.Actor, fact.Metadata.RequestID)
		separator = ", "
	}
	return script + ";\n"
}()

// messageDB makes a database with message-db in it, whose SQL files stand in the directory named.
func (r *rig) messageDB(ctx context.Context, directory string) (string, error) {
	address, err := r.database(ctx, "messagedb")
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	// As its own installer does; what it makes finds itself by this path.
	for _, path := range []string{`ALTER DATABASE messagedb SET search_path TO message_store, public`, `SET search_path TO message_store, public`} {
		if _, err := conn.Exec(ctx, path); err != nil {
			return "", err
		}
	}
	for _, pattern := range messageDBFiles {
		files, err := filepath.Glob(filepath.Join(directory, pattern))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("no %s of message-db in %s", pattern, directory)
		}
		for _, file := range files {
			statements, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if _, err := conn.PgConn().Exec(ctx, string(statements)).ReadAll(); err != nil {
				return "", fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return address, nil
}
