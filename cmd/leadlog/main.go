// Command leadlog is the service and everything to run it with: see leadlog --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Dev     devCommand     `cmd:"" help:"Run the service with a private PostgreSQL and a demo account, to try it."`
	Serve   serveCommand   `cmd:"" help:"Run the service, configured by the environment."`
	Migrate migrateCommand `cmd:"" help:"Bring the database's schema up to date."`
	Account accountCommand `cmd:"" help:"Provision accounts."`
	JWT     jwtCommand     `cmd:"" name:"jwt" help:"Mint a JWT with the HS256 secret."`
	Import  importCommand  `cmd:"" help:"Import leads from a file, CSV or JSON lines."`
	Spend   spendCommand   `cmd:"" help:"Set advertising costs."`
	Export  exportCommand  `cmd:"" help:"Write a list of an account to stdout: source history, touches, leads, token events or the change feed."`
	Report  reportCommand  `cmd:"" help:"Make reports with a proof, and compare them."`
	Replay  replayCommand  `cmd:"" help:"Rebuild views from the log while the service runs."`
	Tail    tailCommand    `cmd:"" help:"Follow the log."`
	Verify  verifyCommand  `cmd:"" help:"Verify that the log and the views agree; or a report, an export of token events, a receipt, evidence or a certificate."`
	TreeKey treeKeyCommand `cmd:"" name:"tree-key" help:"Print the public key that verifies checkpoints and receipts."`
	CopyLog copyLogCommand `cmd:"" name:"copy-log" help:"Move the log to another store, and the views with it."`
	Forget  forgetCommand  `cmd:"" help:"Erase a lead: destroy its personal data irrevocably."`
	Version versionCommand `cmd:"" help:"Print version, commit and Go version."`

	Completion completionCommand `cmd:"" help:"Print a script with which a shell completes commands and flags."`
}

func main() {
	ctx, release := interruptible()
	defer release()
	os.Exit(run(ctx, os.Args[1:], cli.Output{Out: os.Stdout, Err: os.Stderr}))
}

// interruptible returns a context that ends at the first SIGINT, SIGTERM or SIGHUP. A second SIGINT or SIGTERM kills
// the process. A second SIGHUP does not, because a terminal that closes may send several; and under nohup, which
// ignores SIGHUP, it stays ignored.
//
// SIGPIPE is sent when the reader of stdout or stderr has exited. It would kill the process at once and leave its
// private PostgreSQL running, so it is ignored, and the write returns an error instead.
func interruptible() (context.Context, func()) {
	signal.Ignore(syscall.SIGPIPE)
	endings := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		endings = append(endings, syscall.SIGHUP)
	}
	ctx, release := signal.NotifyContext(context.Background(), endings...)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		release()
	})
	return ctx, release
}

func run(ctx context.Context, args []string, c cli.Output) int {
	// net/http prints unsolicited bytes from webhook endpoints there, which may be personal data
	log.SetOutput(io.Discard)
	out := &results{Writer: c.Out}
	c.Out = out
	exited := -1
	parser, err := kong.New(&commands{},
		kong.Name("leadlog"),
		kong.Description("Leads, credentials and webhook endpoints on one append-only log."),
		kong.Writers(c.Out, c.Err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
	)
	if err != nil {
		fmt.Fprintln(c.Err, "leadlog:", err)
		return exitFailed
	}
	kongcompletion.Register(parser)
	parsed, err := parser.Parse(usual(args))
	switch {
	case exited >= 0: // --help
		return exited
	case err != nil:
		fmt.Fprintf(c.Err, "leadlog: %v\nTry: %s --help\n", err, called(err))
		return exitUsage
	}
	if err = parsed.Run(findUnknownSettings(parser.Model, os.Environ())); err == nil && out.failed != nil {
		err = fmt.Errorf("not everything was written: %w", out.failed)
	}
	if errors.Is(err, syscall.EPIPE) && out.failed != nil { // the reader, such as head, has what it wants
		return 0
	}
	var usage *cli.UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(c.Err, "leadlog:", err)
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled): // the operation that was interrupted does not matter
		fmt.Fprintln(c.Err, "leadlog: interrupted")
		return exitFailed
	}
	fmt.Fprintln(c.Err, "leadlog:", err)
	if hint := hint(err); hint != "" {
		fmt.Fprintln(c.Err, "Try:", hint)
	}
	return exitFailed
}

// usual translates the usual spellings of help and version.
func usual(args []string) []string {
	switch {
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// called returns the command whose arguments were wrong, or plain leadlog when none was recognised.
func called(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) {
		for node := wrong.Context.Selected(); node != nil; node = node.Parent {
			if node.Type == kong.CommandNode {
				return node.FullPath()
			}
		}
	}
	return "leadlog"
}

// results remembers the last error of a write, because commands print without checking for one.
type results struct {
	io.Writer
	failed error
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if err != nil {
		r.failed = err
	}
	return n, err
}
