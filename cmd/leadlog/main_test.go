package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestRun_InterruptHasNoHint(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, args := range [][]string{{"migrate"}, {"tail"}, {"verify"}, {"export", "leads", "--account", "acme"}} {
		var printed strings.Builder
		require.Equal(t, exitFailed, run(ctx, append(args, "--database-url", pgtest.Database(t)), cli.Output{
			Out: io.Discard, Err: &printed,
		}))
		require.Equal(t, "leadlog: interrupted\n", printed.String(), args)
	}
}

// The hint was once that the server is unreachable, so users checked the network.
func TestHint_ReadOnlyServer(t *testing.T) {
	t.Parallel()
	for code, try := range map[string]string{
		"53100": "again, when the disk of PostgreSQL has free space",
		"25006": "again, when this server is the primary",
	} {
		require.Contains(t,
			hint(fmt.Errorf("replay all: %w: %w", eventstore.ErrUnavailable, &pgconn.PgError{Code: code})), try)
	}
}

// On a full disk, leadlog jwt > FILE once wrote an empty file and exited with 0.
func TestRun_WriteErrorFails(t *testing.T) {
	t.Parallel()
	full, writer := io.Pipe()
	require.NoError(t, full.CloseWithError(syscall.ENOSPC))
	var printed strings.Builder
	args := []string{"jwt", "--account", "acme", "--jwt-secret", strings.Repeat("s", 32)}
	require.Equal(t, exitFailed, run(t.Context(), args, cli.Output{Out: writer, Err: &printed}))
	require.Contains(t, printed.String(), "no space left on device")
}

func TestImport_OutcomeMustBeAnotherFile(t *testing.T) {
	t.Parallel()
	const text = "phone\n98765 43210\n"
	path := filepath.Join(t.TempDir(), "leads.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	link := filepath.Join(filepath.Dir(path), "link.csv")
	require.NoError(t, os.Symlink(path, link))
	for _, outcome := range []string{path, link} {
		var printed strings.Builder
		// Nothing listens on the port. The arguments are rejected before a connection.
		args := []string{
			"import", path, "--account", "acme", "--outcome", outcome, "--database-url", "postgres://127.0.0.1:1/none",
		}
		require.Equal(t, exitUsage, run(t.Context(), args, cli.Output{Out: &printed, Err: &printed}), printed.String())
		require.Contains(t, printed.String(), "must be another file")
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(kept))
	}
}

// A path that cannot be written once came to light after the whole log was read, or after a lead was erased.
func TestRun_ResultFileIsCheckedFirst(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "none", "result")
	key := "A" + strings.Repeat("A", 42) + "="
	for _, args := range [][]string{
		{"verify", "--head", bad},
		{"verify", "--head", ""},
		{"export", "tokens", "--account", "acme", "--format", "ndjson", "--head", bad},
		{"export", "tokens", "--account", "acme", "--format", "ndjson", "--head", ""},
		{"report", "attribution", "--account", "acme", "--out", bad},
		{"report", "attribution", "--account", "acme", "--out", ""},
		{
			"forget", "01M8GDE2SBXRQ73ZKJDRHTMPP8", "--account", "acme", "--yes", "--claim-key", key, "--seal-key", key,
			"--certificate", bad,
		},
		{
			"forget", "01M8GDE2SBXRQ73ZKJDRHTMPP8", "--account", "acme", "--yes", "--claim-key", key, "--seal-key", key,
			"--certificate", "",
		},
	} {
		var printed strings.Builder
		// Nothing listens on the port. The arguments are rejected before a connection.
		args = append(args, "--database-url", "postgres://127.0.0.1:1/none")
		require.Equal(t, exitUsage, run(t.Context(), args, cli.Output{Out: &printed, Err: &printed}),
			"%v: %s", args, printed.String())
		require.Contains(t, printed.String(), "must be a file that can be written", args)
	}
}

// verify once took any name, and tree-key complained about a malformed verifier id.
func TestRun_RefusesBadLogOrigin(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"verify"}, {"tree-key", "--tree-key", strings.Repeat("A", 43) + "="}} {
		for _, name := range []string{"a b", "a+b", "leads/accounts/acme"} {
			var printed strings.Builder
			// Nothing listens on the port. The arguments are rejected before a connection.
			given := append(slices.Clone(args), "--log-origin", name, "--database-url", "postgres://127.0.0.1:1/none")
			require.Equal(t, exitUsage, run(t.Context(), given, cli.Output{Out: &printed, Err: &printed}),
				"%v: %s", given, printed.String())
			require.Contains(t, printed.String(), "LEADLOG_LOG_ORIGIN="+strconv.Quote(name)+": must be", given)
		}
	}
}

func TestJWT_RefusesEmptySubject(t *testing.T) {
	t.Parallel()
	var printed strings.Builder
	args := []string{"jwt", "--account", "acme", "--jwt-secret", strings.Repeat("s", 32), "--subject", ""}
	require.Equal(t, exitUsage, run(t.Context(), args, cli.Output{Out: io.Discard, Err: &printed}))
	require.Contains(t, printed.String(), `--subject="": must not be empty`)
}

// A quorum without a receipt, evidence or certificate was ignored: the log and the views were verified instead.
func TestVerify_QuorumNeedsProof(t *testing.T) {
	t.Parallel()
	var printed strings.Builder
	// Nothing listens on the port. The arguments are rejected before a connection.
	args := []string{"verify", "--quorum", "1", "--database-url", "postgres://127.0.0.1:1/none"}
	require.Equal(t, exitUsage, run(t.Context(), args, cli.Output{Out: io.Discard, Err: &printed}), printed.String())
	require.Contains(t, printed.String(), "give --receipt with --event, --evidence, or --certificate")
}

func TestRun_UsualArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--version": "leadlog ", "help": "Usage: leadlog <command>", "help export": "Usage: leadlog export --account=ID <what>",
		"completion bash": "complete ", "completion zsh": "bashcompinit", "completion fish": "complete -f -c leadlog",
	} {
		var out, errs strings.Builder
		require.Zero(t, run(t.Context(), strings.Fields(args), cli.Output{Out: &out, Err: &errs}), args)
		require.Contains(t, out.String(), want, args)
		require.Empty(t, errs.String(), args)
	}
}

// A read once made a whole PostgreSQL in whatever directory it was called.
func TestRun_ReadsMakeNoDatabase(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	for _, args := range []string{
		"export leads --account acme", "tail", "verify", "replay all", "report attribution --account acme --out " + dir + ".json",
	} {
		var printed strings.Builder
		given := append(strings.Fields(args), "--data-dir", dir)
		require.Equal(t, exitFailed, run(t.Context(), given, cli.Output{Out: io.Discard, Err: &printed}), args)
		require.Contains(t, printed.String(), "there is no database in "+dir+"\nTry: the LEADLOG_DATABASE_URL", args)
		require.NoDirExists(t, dir, args)
	}
}

func TestImport_UndoRefusesFlagsOfAFile(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{
		"--outcome=a.csv", "--map=Tel=phone", "--keep=Tel", "--at=When", "--format=csv", "--delimiter=;", "--skip=1",
		"--encoding=utf-8", "--on-duplicate=merge",
	} {
		var printed strings.Builder
		args := []string{
			"import", "--undo", "01JQKXZ8V4W9H6M3T2R5N7P0AB", "--account", "acme", flag, "--yes", "--database-url",
			"postgres://127.0.0.1:1/none",
		}
		require.Equal(t, exitUsage, run(t.Context(), args, cli.Output{Out: &printed, Err: &printed}), printed.String())
		name, _, _ := strings.Cut(flag, "=")
		require.Equal(t, "leadlog: "+name+" has no meaning with --undo\n", printed.String())
	}
}
