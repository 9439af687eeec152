// Command leadbench measures leadlog beside comparable programs: in turn, in one run, on one machine, with the median
// of several rounds. Compare ratios: absolute numbers depend on the machine and on its other load.
//
// It starts a PostgreSQL of its own, durable as in production, and runs leadlog as a separate process. It uses no other
// database.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type benchmarks struct {
	Captures    capturesBenchmark    `cmd:"" help:"Captures over HTTP, beside plain rows written by pgbench and by a minimal HTTP handler."`
	Against     againstBenchmark     `cmd:"" help:"Captures by two builds of leadlog, interleaved: what a change costs or gains."`
	Append      appendBenchmark      `cmd:"" help:"Appends to the log alone, beside plain rows written by pgbench, and message-db."`
	Webhooks    webhooksBenchmark    `cmd:"" help:"Webhook deliveries: rate, cost and latency."`
	Intake      intakeBenchmark      `cmd:"" help:"Arrivals at an intake, beside the same captures by the API."`
	Replay      replayBenchmark      `cmd:"" help:"Reading the log, building the views from it and verifying both, beside a COPY of its rows."`
	Catchup     catchUpBenchmark     `cmd:"" help:"Captures while the views start empty and read the log, beside those after it."`
	Feed        feedBenchmark        `cmd:"" help:"The change feed, and exports in every format."`
	Reads       readsBenchmark       `cmd:"" help:"Routes and pages of a large account, beside those of a small one."`
	Attribution attributionBenchmark `cmd:"" help:"Reports on conversions, beside a scan of the touches."`
	Hostile     hostileBenchmark     `cmd:"" help:"Captures of one account while another account's intakes are attacked."`
	Form        formBenchmark        `cmd:"" help:"Times of answers to a form, for new and for known people."`
	Attack      attacker             `cmd:"" hidden:"" help:"Attacks an intake."`
	Minimal     minimalHandler       `cmd:"" hidden:"" help:"The minimal HTTP handler of captures."`
}

// settings are the flags of every benchmark.
type settings struct {
	Rounds  int      `default:"3" help:"Rounds; their median is printed."`
	Leadlog string   `placeholder:"FILE" help:"The program to measure. Default: built from the source in this directory's module."`
	Setting []string `sep:"none" placeholder:"NAME=VALUE" help:"Further setting of leadlog, such as GOGC=50. May be repeated."`
	Cluster []string `sep:"none" placeholder:"NAME=VALUE" help:"Setting of PostgreSQL, for everything that is measured, such as shared_buffers=6GB. May be repeated."`
	Dir     string   `placeholder:"DIR" help:"Directory for PostgreSQL's files, which are removed at the end. Default: the one for temporary files."`
}

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	context.AfterFunc(ctx, release)
	parsed := kong.Parse(&benchmarks{},
		kong.Name("leadbench"),
		kong.Description("Measures leadlog beside comparable programs."),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "leadbench:", err)
		release()
		os.Exit(1)
	}
}
