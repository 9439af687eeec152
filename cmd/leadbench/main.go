// Command leadbench measures leadlog beside comparable programs: in turn, in one run, on one machine, with the median of
// several rounds. What counts is the ratio; absolute numbers change with the machine and with whatever else runs on it.
//
// It starts its own PostgreSQL, durable as in production, and runs leadlog as a separate process. It touches no other
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
	Captures capturesBenchmark `cmd:"" help:"Captures over HTTP, beside plain rows written by pgbench and by a minimal HTTP handler."`
	Batch    batchBenchmark    `cmd:"" help:"Many leads a request, beside one a request over many connections."`
	Append   appendBenchmark   `cmd:"" help:"Appends to the log alone, beside plain rows written by pgbench."`
	Growth   growthBenchmark   `cmd:"" help:"Captures and appends on logs of several lengths, beside tables of as many plain rows."`
	Against  againstBenchmark  `cmd:"" help:"Captures by this program and by another build of it, in turn: what a change costs or gains."`
	Webhooks webhooksBenchmark `cmd:"" help:"Deliveries to webhook endpoints: rate, cost, latency, and what endpoints that hang do to others."`
	Replay   replayBenchmark   `cmd:"" help:"Reading the log and building the views out of it, beside a plain COPY of its rows; exports; time travel."`
	Scale    scaleSimulation   `cmd:"" help:"What up to a billion leads take: machines, disks, cost. Works it out, and measures nothing."`
	Crud     crudServer        `cmd:"" hidden:"" help:"The minimal handler that captures is compared with."`
}

// settings are what every benchmark takes.
type settings struct {
	Rounds  int      `default:"3" help:"Rounds; the median of them is told."`
	Leadlog string   `placeholder:"FILE" help:"The program to measure. Default: built from the source around here."`
	Setting []string `sep:"none" placeholder:"NAME=VALUE" help:"Further setting of leadlog, such as GOGC=50. May be repeated."`
	Cluster []string `sep:"none" placeholder:"NAME=VALUE" help:"Setting of PostgreSQL, of all that is compared, such as shared_buffers=6GB. May be repeated."`
	Dir     string   `placeholder:"DIR" help:"Where PostgreSQL keeps its files for as long as it is measured, in a directory of their own. Default: the one for temporary files."`
}

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	context.AfterFunc(ctx, release)
	parsed := kong.Parse(&benchmarks{},
		kong.Name("leadbench"),
		kong.Description("Measures leadlog beside what it is compared with."),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "leadbench:", err)
		release()
		os.Exit(1)
	}
}
