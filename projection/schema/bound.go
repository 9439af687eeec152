package schema

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// AnswerTime is how long a statement of a bound connection may take. Nothing that the service does comes near it.
const AnswerTime = 30 * time.Second

const cachedStatements = 64 // of a connection

// Session makes a connection independent of the server's and the role's defaults. Connecting ends in time, and the server finds
// out when this machine is gone: within two minutes, and not two hours, whatever locks the session holds are free. Statements
// that wait for a row use its value at that time, and do not fail. No transaction ends because it takes long, as a replay or a
// verification does. And no query is compiled: for the longest, a search among a million leads, that costs more than it saves.
func Session(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	config.RuntimeParams["tcp_keepalives_idle"] = "20"
	config.RuntimeParams["tcp_keepalives_interval"] = "10"
	config.RuntimeParams["default_transaction_isolation"] = "read committed"
	config.RuntimeParams["statement_timeout"] = "0"
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	config.RuntimeParams["jit"] = "off"
	// The driver reserves memory for as many statements as it may cache, by default for 512, in each connection.
	config.StatementCacheCapacity = min(config.StatementCacheCapacity, cachedStatements)
	config.DescriptionCacheCapacity = min(config.DescriptionCacheCapacity, cachedStatements)
}

// Bound is Session for a connection with short statements. They fail when they are not answered within AnswerTime; otherwise they
// would wait for ever for a server that has vanished.
func Bound(config *pgx.ConnConfig) {
	Session(config)
	BoundBy(config, AnswerTime)
}

// BoundBy makes the statements of a connection fail that take longer than a time.
func BoundBy(config *pgx.ConnConfig, most time.Duration) { config.Tracer = limit(most) }

// Within returns the context for a statement that is sent without pgx, and so is not bounded by Bound.
func Within(ctx context.Context, conn *pgx.Conn) (context.Context, context.CancelFunc) {
	if l, bound := conn.Config().Tracer.(limit); bound {
		return context.WithTimeout(ctx, time.Duration(l))
	}
	return context.WithCancel(ctx)
}

// limit bounds statements: the driver carries them out under the context that a tracer returns.
type limit time.Duration

var (
	_ pgx.QueryTracer    = limit(0)
	_ pgx.BatchTracer    = limit(0)
	_ pgx.CopyFromTracer = limit(0)
)

type cancelKey struct{}

func (l limit) begin(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l))
	return context.WithValue(ctx, cancelKey{}, cancel)
}

func (limit) end(ctx context.Context) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

func (l limit) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return l.begin(ctx)
}

func (l limit) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { l.end(ctx) }

func (l limit) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return l.begin(ctx)
}

func (limit) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (l limit) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { l.end(ctx) }

func (l limit) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return l.begin(ctx)
}

func (l limit) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromEndData) {
	l.end(ctx)
}
