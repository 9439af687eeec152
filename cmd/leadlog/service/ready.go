package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/query"
)

// readyTimeout is how long a probe waits for a database.
const readyTimeout = 2 * time.Second

// ready reports whether the service can do its work: the views' database and the log answer, and no projection is
// stuck. A projection on standby counts as ready while its view moves, since another process does its work.
func (a *App) ready(ctx context.Context) []httpapi.Component {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	database := httpapi.Component{Name: "database", Ready: true}
	if err := a.pool.Ping(ctx); err != nil {
		database.Ready, database.Detail = false, "does not answer"
	}
	log := httpapi.Component{Name: "log", Ready: true}
	if store, ok := a.appends.log.(*esdb.Store); ok {
		log.Detail = store.Server().String()
	}
	views, err := a.runner.Status(ctx)
	if err != nil {
		log.Ready, log.Detail = false, "does not answer"
		if errors.Is(err, postgres.ErrNotReplicated) {
			log.Detail = "waits for a synchronous standby"
		}
	}
	all := behind(ctx, a.runner, views)
	fanOut, _ := a.fanOut.Status(ctx) // it reads the same log, whose error is handled above
	all = append(all, behind(ctx, a.fanOut, fanOut)...)
	components := []httpapi.Component{database, log}
	if a.draining.Load() {
		components = append(components, httpapi.Component{Name: "service", Detail: "is about to stop"})
	}
	components = append(append(components, projections(all)...), filters(a.courier.Backlog(ctx)),
		conversions(a.reader.ConversionProgress(ctx)))
	return append(components, a.logTreeReady(ctx)...)
}

// alarmDelay is how far a projection may be behind the log, and the filters of an account behind the fan-out, before an
// operator is told.
const alarmDelay = 10 * time.Second

// filters reports whether the filters of an account have fallen behind. It makes no process unready, because other
// accounts do not wait.
func filters(waiting courier.Backlog, err error) httpapi.Component {
	component := httpapi.Component{Name: "webhook filters", Ready: true}
	switch {
	case err != nil:
		component.Detail = "not known"
	case waiting.Deferred > 0:
		component.Alarm = waiting.OldestDeferred > alarmDelay
		component.Detail = fmt.Sprintf("%d events wait because the filters of their accounts cost much, the "+
			"oldest for %s",
			waiting.Deferred, waiting.OldestDeferred.Round(time.Second))
	}
	return component
}

// conversions reports how far the conversions of large accounts are rebuilt. They have the figures of an earlier
// position until then.
func conversions(progress query.ConversionProgress, err error) httpapi.Component {
	component := httpapi.Component{Name: "conversions", Ready: true}
	switch {
	case err != nil:
		component.Detail = "not known"
	case progress.Built < 1:
		component.Detail = fmt.Sprintf("rebuilding: %.0f %% of the log", math.Floor(100*progress.Built))
	case progress.Swept < 1:
		component.Detail = fmt.Sprintf("rebuilding after a change of won stages: %.0f %%",
			math.Floor(100*progress.Swept))
	}
	return component
}

// logTreeReady reports why the log is not published. It makes no process unready, because captures do not depend on it.
func (a *App) logTreeReady(ctx context.Context) []httpapi.Component {
	status, err := a.logTree.Status(ctx)
	if err != nil {
		return []httpapi.Component{{Name: "log tree", Ready: true, Detail: "not known"}}
	}
	tree := httpapi.Component{Name: "log tree", Ready: true}
	if status.Fault != "" {
		tree.Alarm, tree.Detail = true,
			"nothing is signed: "+status.Fault+"; see deploy/docs/runbook.md on a log that differs"
	}
	components := []httpapi.Component{tree}
	for _, w := range status.Witnesses {
		component := httpapi.Component{Name: "witness " + w.Name, Ready: true, Detail: "cosigns"}
		switch {
		case !w.Asked:
			component.Detail = "pending: not asked yet"
		case w.Reason != "":
			component.Alarm, component.Detail = true, w.Describe()
		}
		components = append(components, component)
	}
	return components
}

// progress is the status of a projection, with the age of the oldest event that it has not applied.
type progress struct {
	projection.Status
	delay time.Duration
}

func behind(ctx context.Context, runner *projection.Runner, views []projection.Status) []progress {
	all := make([]progress, len(views))
	for i, view := range views {
		delay, _ := runner.Delay(ctx, view) // the error is that of the log
		all[i] = progress{view, delay}
	}
	return all
}

func projections(views []progress) (components []httpapi.Component) {
	for _, view := range views {
		component := httpapi.Component{Name: "projection " + view.Name, Ready: true, Detail: string(view.State)}
		if view.delay > alarmDelay {
			component.Alarm = true
			component.Detail += fmt.Sprintf("; %s behind the log", view.delay.Round(time.Second))
		}
		if view.State == projection.Failed || view.State == projection.Stale {
			component.Ready = false
		}
		if component.Ready && view.Stalled {
			component.Ready, component.Detail = false, component.Detail+"; has not moved for a minute"
		}
		if errors.Is(view.Err, projection.ErrReplayDue) {
			component.Detail = "built by another version; run leadlog replay " + view.Name
		}
		if errors.Is(view.Err, projection.ErrForeignLog) || errors.Is(view.Err, projection.ErrAheadOfLog) {
			component.Detail = "is of another log, or of a later one than this backup of it; see Backup and recovery " +
				"in deploy/docs/runbook.md"
		}
		components = append(components, component)
	}
	return components
}
